"""Permanent loss of privileges: user, capabilities, system calls, and surviving the parent."""

# ruff: noqa: PTH123
from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Become a subreaper: orphaned descendants become children, so that nothing leaves the task by daemonising."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Set the parent-death signal. The caller has to check afterwards that the parent still lives."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def hide_memory() -> None:
    """Prevent unprivileged processes, even of the same user, from tracing this one or reading its /proc files."""
    _prctl(_PR_SET_DUMPABLE, 0)


def last_capability() -> int:
    with open("/proc/sys/kernel/cap_last_cap") as file:
        return int(file.read())


def change_user(uid: int, gid: int, groups: list[int], last: int) -> None:
    """Become the user, without capabilities up to number `last`, which no program can regain."""
    for capability in range(last + 1):
        _prctl(_PR_CAPBSET_DROP, capability)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def drop() -> None:
    """Drop all capabilities, and prevent gaining any by executing a program."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    if _libc.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        _raise()
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def filter_system_calls(program: bytes) -> None:
    """Load a seccomp filter that the agent compiled; requires `drop` before."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    loaded = Program(len(program) // _INSTRUCTION_BYTES, program)
    if _libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(loaded), 0, 0) != 0:
        _raise()


def _prctl(option: int, value: int) -> None:
    arguments = [ctypes.c_ulong(argument) for argument in (value, 0, 0, 0)]
    if _libc.prctl(option, *arguments) != 0:
        _raise()


def _raise() -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
