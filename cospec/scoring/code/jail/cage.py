"""What a process of the jail may do, and how it locks itself in."""

import contextlib
import os
import resource
from typing import Any, NamedTuple

from cospec.scoring.code.jail import kernel, landlock, seccomp
from cospec.scoring.code.jail.processes import num_tasks_of

MECHANISMS = ("seccomp", "landlock", "namespaces", "user")
"""What a machine may offer; `cospec.scoring.code.isolation` finds out which of them work."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
# Ids that belong to nobody; a run's own ones lie above the base, two for each process id.
_FIRST_FREE_USER, _NOBODY = (1 << 31) - (1 << 23), 65534
_LOWEST_PRIORITY = 19


# A named tuple, as all records of the jail: importing dataclasses is a quarter of the time a run takes to start.
class Cage(NamedTuple):
    """The bounds of one run: mechanisms in use, the folders, and the limits of each process in it."""

    mechanisms: frozenset[str]
    scratch: str
    readable: tuple[str, ...]
    cpu_s: int
    wall_s: float
    memory_bytes: int
    file_bytes: int
    scratch_bytes: int
    scratch_files: int
    output_bytes: int
    open_files: int
    processes: int

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Cage":
        """The cage that was sent as its fields; JSON has no sets or tuples."""
        return cls(**{**value, "mechanisms": frozenset(value["mechanisms"]), "readable": tuple(value["readable"])})

    @property
    def forks_freely(self) -> bool:
        """The kernel does not bound the number of the program's processes, so the supervisor has to count them."""
        return self.mechanisms.isdisjoint(("seccomp", "user"))


def enter_namespaces() -> None:
    """Move the children of this process to PID, network, IPC and host name namespaces of their own."""
    try:
        kernel.unshare(kernel.NEW_NAMESPACES)
    # An ordinary user may do so inside a user namespace alone; OSError again where that is closed, too.
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        kernel.unshare(kernel.NEW_USER_NAMESPACE | kernel.NEW_NAMESPACES)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")


def lock_in(cage: Cage, *, writable: str | None, user: int | None) -> None:
    """Bind this process for ever to the cage, as ``user`` if one is given; it writes beneath ``writable`` alone.

    OSError where a mechanism that the cage asks for is refused: a weaker cage is never used in its place.
    """
    _set_limits(cage)
    if kernel.IS_LINUX:
        # The first to go should memory run out. Where /proc is not writable, the order is the kernel's.
        with contextlib.suppress(OSError):
            _write("/proc/self/oom_score_adj", "1000")
        if user is not None:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        kernel.die_with_parent()
        kernel.refuse_new_privileges()
        kernel.drop_capabilities()
    if cage.forks_freely:
        # A swarm of processes must not starve the one that ends it.
        os.setpriority(os.PRIO_PROCESS, 0, _LOWEST_PRIORITY)
    if "landlock" in cage.mechanisms:
        landlock.restrict(cage.readable, _DEVICES, writable)
    if "seccomp" in cage.mechanisms:
        seccomp.install_filter()


def free_user(role: int) -> int:
    """A user id that no other run has (role 0 or 1 of this process), or nobody's where few ids are mapped."""
    with open("/proc/self/uid_map", encoding="ascii") as lines:
        highest = max(int(first) + int(count) for first, _, count in map(str.split, lines))
    own = _FIRST_FREE_USER + 2 * os.getpid() + role
    return own if highest > own else _NOBODY


def _set_limits(cage: Cage) -> None:
    # The hard CPU limit alone kills what ignores or, as the first of its namespace, cannot get SIGXCPU.
    _limit(resource.RLIMIT_CPU, cage.cpu_s)
    # Elsewhere the limit does nothing, or cannot be set.
    if kernel.IS_LINUX:
        _limit(resource.RLIMIT_AS, cage.memory_bytes)
    _limit(resource.RLIMIT_FSIZE, cage.file_bytes)
    _limit(resource.RLIMIT_NOFILE, cage.open_files)
    _limit(resource.RLIMIT_CORE, 0)
    # The limit counts all processes and threads of a user, and does not hold for root.
    if "user" in cage.mechanisms:
        _limit(resource.RLIMIT_NPROC, cage.processes)
    elif cage.forks_freely and os.geteuid() != 0:
        _limit(resource.RLIMIT_NPROC, num_tasks_of(os.geteuid()) + cage.processes)


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as out:
        out.write(text)
