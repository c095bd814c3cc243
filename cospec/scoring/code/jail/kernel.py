"""The few Linux calls that Python does not offer, through libc; each raises OSError when the kernel refuses."""

import ctypes
import functools
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAP_VERSION_3 = 0x20080522
_NUM_CAPABILITIES = 64

NEW_NAMESPACES = 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000
"""Flags of `unshare`: new PID, network, IPC and host name namespaces."""

NEW_USER_NAMESPACE = 0x10000000

IS_LINUX = sys.platform == "linux"


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def machine() -> str:
    """The processor's name as the kernel gives it: x86_64, aarch64, ..."""
    return os.uname().machine


def syscall(number: int, *arguments: object) -> int:
    """One raw system call; returns its non-negative result."""
    return _checked(_libc().syscall(ctypes.c_long(number), *arguments))


def prctl(option: int, *arguments: object) -> int:
    """One `prctl`; whole numbers are passed as unsigned longs, as the kernel reads them."""
    words = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_libc().prctl(option, *words, *[ctypes.c_ulong(0)] * (4 - len(words))))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def become_subreaper() -> None:
    """Make orphaned descendants of this process its children, so that none of them is out of reach."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; a change of user id undoes it."""
    prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def wake_with_parent() -> None:
    """Have the kernel continue this process, should it be stopped, when its parent ends."""
    prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT))


def hide_memory(hidden: bool = True) -> None:
    """Let no other process of the same user read or trace this one, nor those it forks; or let them again."""
    prctl(_PR_SET_DUMPABLE, int(not hidden))


def refuse_new_privileges() -> None:
    """Set-uid programs give nothing from here on; seccomp and Landlock ask for it."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up every capability, for this process and all it may start."""
    for capability in range(_NUM_CAPABILITIES):
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        # Beyond the last capability, or an ordinary user, who has none to drop.
        except OSError:
            break
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAP_VERSION_3, 0)
    _checked(_libc().capset(header, (ctypes.c_uint32 * 6)()))


def unshare(flags: int) -> None:
    """Move this process, and for PIDs its next children, to new namespaces."""
    _checked(_libc().unshare(ctypes.c_int(flags)))
