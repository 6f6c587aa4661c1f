"""The seccomp filter for tasks, compiled once per agent by libseccomp and loaded by every process of a task.

A deny list like those of Docker and systemd: calls that administer the machine, access other processes, or are a
large attack surface that ordinary programs do not need.
"""

from __future__ import annotations

import errno
import tempfile
from typing import Any

_REFUSED = {
    "mounts": "mount umount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr"
    " quotactl quotactl_fd fanotify_init open_by_handle_at",
    "namespaces": "unshare setns",
    "modules and boot": "init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff",
    "raw hardware": "ioperm iopl pciconfig_iobase pciconfig_read pciconfig_write lookup_dcookie",
    "clock": "settimeofday clock_settime clock_adjtime adjtimex stime",
    "identity of the machine": "sethostname setdomainname acct syslog vhangup nfsservctl sysfs _sysctl",
    "other processes": "process_vm_readv process_vm_writev pidfd_getfd",
    "keys": "add_key request_key keyctl",
    "observation of the kernel": "bpf perf_event_open userfaultfd",
    "asynchronous I/O rings": "io_uring_setup io_uring_enter io_uring_register",
    "obsolete": "create_module get_kernel_syms query_module uselib ustat vm86 vm86old",
}
_PTRACE_ATTACH, _PTRACE_SEIZE = 16, 0x4206
_NEW_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
"""Flags of `clone`: mount, cgroup, UTS, IPC, user, PID and network."""
_UNKNOWN_CALL = -1


class SeccompMissing(Exception):
    """libseccomp cannot be loaded."""


def compile_filter() -> bytes:
    """Return the BPF program that denies these calls with EPERM, for all architectures of the CPU."""
    library = _library()
    refuse = library.ERRNO(errno.EPERM)
    program = library.SyscallFilter(library.ALLOW)
    # A 32-bit program on a 64-bit machine uses other numbers for the same calls.
    for other in _peer_hosts(library):
        program.add_arch(other)
    for name in " ".join(_REFUSED.values()).split():
        if _known(library, name):
            program.add_rule(refuse, name)
    # A debugger may start and trace a program, but not attach to a running process.
    for request in (_PTRACE_ATTACH, _PTRACE_SEIZE):
        program.add_rule(refuse, "ptrace", library.Arg(0, library.EQ, request))
    for flag in _NEW_NAMESPACES:
        program.add_rule(refuse, "clone", library.Arg(0, library.MASKED_EQ, flag, flag))
    if _known(library, "clone3"):
        # Its flags are in memory, which a filter cannot read. The C library falls back to `clone`.
        program.add_rule(library.ERRNO(errno.ENOSYS), "clone3")
    with tempfile.TemporaryFile() as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()


def _library() -> Any:
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise SeccompMissing(f"libseccomp cannot be loaded ({error}); install libseccomp2") from error
    return pyseccomp


def _peer_hosts(library: Any) -> list[int]:
    arches = library.Arch
    return {
        arches.X86_64: [arches.X86, arches.X32],
        arches.AARCH64: [arches.ARM],
        arches.S390X: [arches.S390],
    }.get(library.system_arch(), [])


def _known(library: Any, name: str) -> bool:
    """Return whether this version of the library knows the call."""
    return bool(library.resolve_syscall(library.Arch.NATIVE, name) != _UNKNOWN_CALL)
