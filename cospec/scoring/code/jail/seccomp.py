"""A system call filter (seccomp-bpf): no network, no new processes, no reach into other ones; needs no privilege.

A refused call fails with EPERM, so that the program sees an exception where it stands.
"""

import ctypes
import errno
import struct
from collections.abc import Sequence

from cospec.scoring.code.jail.kernel import machine, prctl
from cospec.scoring.code.jail.syscalls import AUDIT_ARCH, CONDITIONAL, FORBIDDEN, numbers

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_PR_SET_PDEATHSIG = 1
_CLONE_THREAD = 0x00010000
_X32_BIT = 0x40000000
_RLIMIT_STACK = 3
_FCNTL_OWNERS = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX
_IOCTL_OWNERS = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP

# Classic BPF: load a word, jump if equal / at least / a bit is set, return.
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


def install_filter() -> None:
    """Put the filter on this process for ever; OSError where the kernel or the processor has none."""
    if machine() not in AUDIT_ARCH:
        raise OSError(errno.ENOSYS, f"no system call numbers for {machine()}")
    instructions = b"".join(struct.pack("=HBBI", *one) for one in _program(machine()))
    code = ctypes.create_string_buffer(instructions, len(instructions))
    header = struct.pack("@HP", len(instructions) // 8, ctypes.addressof(code))
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.create_string_buffer(header, len(header)))


def _program(name: str) -> list[_Instruction]:
    conditional, forbidden = numbers(CONDITIONAL, name), numbers(FORBIDDEN, name)
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCH_AT),
        # Another calling convention (32-bit) has other numbers: whoever uses it is up to something.
        (_JUMP_EQUAL, 1, 0, AUDIT_ARCH[name]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
        # glibc falls back to clone, whose flags can be read, where clone3 is missing.
        (_JUMP_EQUAL, 0, 1, conditional["clone3"]),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
    ]
    program += _only_if(conditional["clone"], argument=0, jump=_JUMP_IF_SET, operand=_CLONE_THREAD)
    program += _only_if(conditional["prctl"], argument=0, jump=_JUMP_EQUAL, operand=_PR_SET_PDEATHSIG, negate=True)
    # Contest programs raise their stack, which the limit on memory bounds all the same.
    program += _only_if(conditional["setrlimit"], argument=0, jump=_JUMP_EQUAL, operand=_RLIMIT_STACK)
    program += _reads_or_sets_own_stack(conditional["prlimit64"])
    # What has the kernel send a signal, of any kind, to any process of the user when a file is ready.
    program += _unless(conditional["fcntl"], argument=1, operands=_FCNTL_OWNERS)
    program += _unless(conditional["ioctl"], argument=1, operands=_IOCTL_OWNERS)
    for number in sorted(forbidden.values()):
        program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _FAIL | errno.EPERM)]
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _only_if(number: int, *, argument: int, jump: int, operand: int, negate: bool = False) -> list[_Instruction]:
    """Allow call ``number`` where the low word of the argument passes the test (fails it, with ``negate``)."""
    passes, fails = (1, 0) if negate else (0, 1)
    return [
        (_JUMP_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument),
        (jump, passes, fails, operand),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
    ]


def _unless(number: int, *, argument: int, operands: Sequence[int]) -> list[_Instruction]:
    """Refuse call ``number`` where the low word of the argument is one of ``operands``."""
    left = range(len(operands), 0, -1)
    return [
        (_JUMP_EQUAL, 0, len(operands) + 3, number),
        (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument),
        *((_JUMP_EQUAL, to_refusal, 0, operand) for to_refusal, operand in zip(left, operands, strict=True)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
    ]


def _reads_or_sets_own_stack(number: int) -> list[_Instruction]:
    """Allow prlimit64(pid, resource, new limits, ...) without new limits, or for the stack of pid 0, oneself."""
    pid, resource, new = (_ARGUMENTS_AT + 8 * argument for argument in range(3))
    return [
        (_JUMP_EQUAL, 0, 10, number),
        (_LOAD, 0, 0, new),
        (_JUMP_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, new + 4),
        (_JUMP_EQUAL, 4, 0, 0),
        (_LOAD, 0, 0, resource),
        (_JUMP_EQUAL, 0, 3, _RLIMIT_STACK),
        (_LOAD, 0, 0, pid),
        (_JUMP_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
    ]
