"""Processes that a test has started: whether they live, and what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], Any]) -> Any:
    """The condition's value as soon as it is true; a failure only after a minute."""
    for _ in range(600):
        if value := condition():
            return value
        time.sleep(0.1)
    return condition()
