"""Threads that wait for processes, and stop waiting as soon as nobody wants their results any more."""

import os
import select
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")
_AHEAD = 1000

# The descriptor that tells this thread to stop, once it can be read; the main thread has signals for that.
_STOP: ContextVar[int | None] = ContextVar("stop", default=None)


@contextmanager
def stoppable_threads(num_threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads; whatever ends the block, an interrupt too, drops waiting jobs and stops the running ones.

    A job is stopped where it waits by `wait_readable`, with a KeyboardInterrupt, so that it can end its process and
    tidy up; the block is left when all have done so.
    """
    stopped, running = os.pipe()
    pool = ThreadPoolExecutor(num_threads, "scoring", _STOP.set, (stopped,))
    try:
        yield pool
    finally:
        # What waits is dropped first: a thread whose job is stopped would begin the next one.
        pool.shutdown(wait=False, cancel_futures=True)
        # Not closing alone: a process that was forked meanwhile may hold a copy of this end.
        os.write(running, b"stop")
        os.close(running)
        pool.shutdown()
        os.close(stopped)


def in_order(pool: ThreadPoolExecutor, function: Callable[[_Job], _Result], jobs: Iterable[_Job]) -> Generator[_Result]:
    """As ``pool.map``, which hands out all jobs before the first result: here, a thousand ahead of it at most."""
    waiting: deque[Future[_Result]] = deque()
    for job in jobs:
        waiting.append(pool.submit(function, job))
        while waiting and (len(waiting) >= _AHEAD or waiting[0].done()):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def wait_readable(descriptor: int, seconds: float | None) -> bool:
    """Whether something comes, or the other side hangs up, within these seconds (None: however long it takes).

    KeyboardInterrupt in a thread of `stoppable_threads` that is to stop.
    """
    waiter = select.poll()
    waiter.register(descriptor, select.POLLIN)
    stop = _STOP.get()
    if stop is not None:
        waiter.register(stop, select.POLLIN)
    ready = [found for found, _ in waiter.poll(None if seconds is None else seconds * 1000)]
    if stop in ready:
        raise KeyboardInterrupt
    return bool(ready)
