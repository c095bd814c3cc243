"""Landlock: which parts of the file system the process may read and write; needs no privilege (Linux 5.13)."""

import ctypes
import os
import stat
import struct
from collections.abc import Sequence

from cospec.scoring.code.jail.kernel import syscall
from cospec.scoring.code.jail.syscalls import LANDLOCK_ADD_RULE, LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF

_ASK_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FILE_ACCESS = _EXECUTE | _WRITE_FILE | _READ_FILE
_FIRST_VERSION = (1 << 13) - 1
_REFER, _TRUNCATE, _DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
# Version of the interface -> what it can forbid beside what the one before it could.
_ADDED = {1: _FIRST_VERSION, 2: _REFER, 3: _TRUNCATE, 5: _DEVICE_CONTROL}
# Mapping a shared library needs only reading; nothing in the jail needs to be executed.
_READING = _READ_FILE | _READ_DIR
_TCP_BIND_AND_CONNECT = 3
_ABSTRACT_SOCKETS_AND_SIGNALS = 3


def version() -> int:
    """The interface's version; OSError where the kernel has no Landlock or it is switched off."""
    return syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))


def restrict(readable: Sequence[str], devices: Sequence[str], writable: str | None) -> None:
    """From here on this process reads beneath ``readable``, uses ``devices`` and writes beneath ``writable`` alone.

    Paths that do not exist are left out. OSError where the kernel has no Landlock.
    """
    known = version()
    handled = 0
    for added_in, access in _ADDED.items():
        handled |= access if added_in <= known else 0
    # The kernel accepts a longer structure only as far as the rest is zero.
    network = _TCP_BIND_AND_CONNECT if known >= 4 else 0
    scope = _ABSTRACT_SOCKETS_AND_SIGNALS if known >= 6 else 0
    attributes = struct.pack("=QQQ", handled, network, scope)[: 24 if known >= 6 else 16 if known >= 4 else 8]
    rules = syscall(LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    try:
        for path in readable:
            _allow(rules, path, _READING)
        for path in devices:
            _allow(rules, path, _READ_FILE | _WRITE_FILE)
        if writable is not None:
            _allow(rules, writable, handled & ~(_EXECUTE | _DEVICE_CONTROL))
        syscall(LANDLOCK_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0))
    finally:
        os.close(rules)


def _allow(rules: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    # A library folder of another distribution: nothing there to allow.
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            access &= _FILE_ACCESS
        rule = struct.pack("=Qi", access, place)
        syscall(LANDLOCK_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(place)
