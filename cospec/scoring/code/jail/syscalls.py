"""Numbers of the system calls the filter speaks of, by processor (from the kernel's unistd headers)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class _Numbers(NamedTuple):
    x86_64: int | None
    aarch64: int | None


AUDIT_ARCH: Mapping[str, int] = MappingProxyType({"x86_64": 0xC000003E, "aarch64": 0xC00000B7})
"""What the kernel calls the processor in the data a filter sees."""

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
"""The same on every processor."""

CONDITIONAL: Mapping[str, _Numbers] = MappingProxyType(
    {
        "clone": _Numbers(56, 220),
        "clone3": _Numbers(435, 435),
        "prctl": _Numbers(157, 167),
        "prlimit64": _Numbers(302, 261),
        "setrlimit": _Numbers(160, 164),
        "fcntl": _Numbers(72, 25),
        "ioctl": _Numbers(16, 29),
    }
)
"""Allowed or not by their arguments."""

FORBIDDEN: Mapping[str, _Numbers] = MappingProxyType(
    {
        # The network. socketpair stays: asyncio needs it, and it leads nowhere.
        "socket": _Numbers(41, 198),
        "io_uring_setup": _Numbers(425, 425),  # its operations pass by every filter
        # Other processes: to signal, trace, read or write them.
        "kill": _Numbers(62, 129),
        "tkill": _Numbers(200, 130),
        "tgkill": _Numbers(234, 131),
        "rt_sigqueueinfo": _Numbers(129, 138),
        "rt_tgsigqueueinfo": _Numbers(297, 240),
        "pidfd_open": _Numbers(434, 434),
        "pidfd_getfd": _Numbers(438, 438),
        "pidfd_send_signal": _Numbers(424, 424),
        "ptrace": _Numbers(101, 117),
        "process_vm_readv": _Numbers(310, 270),
        "process_vm_writev": _Numbers(311, 271),
        "process_madvise": _Numbers(440, 440),
        "kcmp": _Numbers(312, 272),
        # New processes and programs; threads come through `clone`.
        "fork": _Numbers(57, None),
        "vfork": _Numbers(58, None),
        "execve": _Numbers(59, 221),
        "execveat": _Numbers(322, 281),
        # Namespaces and mounts.
        "unshare": _Numbers(272, 97),
        "setns": _Numbers(308, 268),
        "mount": _Numbers(165, 40),
        "umount2": _Numbers(166, 39),
        "pivot_root": _Numbers(155, 41),
        "chroot": _Numbers(161, 51),
        "open_tree": _Numbers(428, 428),
        "move_mount": _Numbers(429, 429),
        "fsopen": _Numbers(430, 430),
        "mount_setattr": _Numbers(442, 442),
        "open_by_handle_at": _Numbers(304, 265),
        # Modes, owners, times and attributes of files: Landlock does not look at them.
        "chmod": _Numbers(90, None),
        "fchmod": _Numbers(91, 52),
        "fchmodat": _Numbers(268, 53),
        "fchmodat2": _Numbers(452, 452),
        "chown": _Numbers(92, None),
        "fchown": _Numbers(93, 55),
        "lchown": _Numbers(94, None),
        "fchownat": _Numbers(260, 54),
        "utime": _Numbers(132, None),
        "utimes": _Numbers(235, None),
        "futimesat": _Numbers(261, None),
        "utimensat": _Numbers(280, 88),
        "setxattr": _Numbers(188, 5),
        "lsetxattr": _Numbers(189, 6),
        "fsetxattr": _Numbers(190, 7),
        "removexattr": _Numbers(197, 14),
        "lremovexattr": _Numbers(198, 15),
        "fremovexattr": _Numbers(199, 16),
        # What would outlive the program.
        "shmget": _Numbers(29, 194),
        "semget": _Numbers(64, 190),
        "msgget": _Numbers(68, 186),
        "mq_open": _Numbers(240, 180),
        "memfd_create": _Numbers(319, 279),
        "add_key": _Numbers(248, 217),
        "request_key": _Numbers(249, 218),
        "keyctl": _Numbers(250, 219),
        # The kernel's own doors.
        "bpf": _Numbers(321, 280),
        "perf_event_open": _Numbers(298, 241),
        "userfaultfd": _Numbers(323, 282),
        "personality": _Numbers(135, 92),
        "init_module": _Numbers(175, 105),
        "finit_module": _Numbers(313, 273),
        "kexec_load": _Numbers(246, 104),
        "kexec_file_load": _Numbers(320, 294),
        "reboot": _Numbers(169, 142),
        "swapon": _Numbers(167, 224),
        "acct": _Numbers(163, 89),
        "syslog": _Numbers(103, 116),
    }
)
"""Refused whatever their arguments."""


def numbers(table: Mapping[str, _Numbers], machine: str) -> dict[str, int]:
    """The calls of ``table`` that this processor has, with their numbers; ``machine`` is a key of `AUDIT_ARCH`."""
    found = {name: entry.x86_64 if machine == "x86_64" else entry.aarch64 for name, entry in table.items()}
    return {name: number for name, number in found.items() if number is not None}
