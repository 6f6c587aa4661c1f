"""Namespaces of a task: created before its process starts, entered by additional commands.

Root creates them directly; without root a user namespace comes first, in which the agent's user keeps its uid. The
PID namespace applies from the next fork, so callers of `unshare` or `enter` have to fork afterwards.
"""

# ruff: noqa: PTH101, PTH102, PTH103, PTH112, PTH123
from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mooring.agent.runtimes.process.supervisor.record import TaskSpec

_NEW_MOUNT = 0x00020000
_NEW_UTS = 0x04000000
_NEW_IPC = 0x08000000
_NEW_USER = 0x10000000
_NEW_PID = 0x20000000
_NEW_NETWORK = 0x40000000

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_BIND, _MS_REC, _MS_SLAVE = 4096, 16384, 1 << 19

_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1

_MEMORY_FOLDERS = (("/tmp", "tmp"), ("/var/tmp", "var-tmp"), ("/dev/shm", "shm"))
"""World-writable folders, which are private to a task, with their names in its tmpfs; /tmp first."""
_FEWEST_INODES, _MAX_INODES = 4096, 1_000_000

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(task: TaskSpec) -> None:
    """Leave the machine's namespaces; the next child of this process is PID 1 of the new PID namespace."""
    flags = _NEW_MOUNT | _NEW_UTS | _NEW_IPC | _NEW_PID
    if task["network"] == "none":
        flags |= _NEW_NETWORK
    if task["namespaces"] == "user":
        uid, gid = os.getuid(), os.getgid()
        _call("unshare", _NEW_USER | flags)
        # Without CAP_SETGID in the outer namespace the kernel maps a group only when groups cannot be dropped.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    else:
        _call("unshare", flags)


def mount_private(task: TaskSpec, tmpfs_bytes: int) -> None:
    """As PID 1 of the new namespaces, mount private /tmp, /var/tmp and /dev/shm, and a /proc of this PID namespace.

    The temporary folders share one tmpfs, whose size is part of the task's memory: see `limits.memory_limits`.
    """
    if task["network"] == "none":
        _raise_loopback()
    # Later mounts of the machine propagate to the task, but none of the task's to the machine.
    _mount(None, "/", None, _MS_REC | _MS_SLAVE)
    folder = os.path.realpath(task["work_folder"])
    hidden = any(f"{folder}/".startswith(f"{os.path.realpath(hiding)}/") for hiding, _ in _MEMORY_FOLDERS)
    work = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _mount_memory(tmpfs_bytes)
    if hidden:
        os.makedirs(folder, exist_ok=True)
        _mount(f"/proc/self/fd/{work}", folder, None, _MS_BIND | _MS_REC)
    os.close(work)
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    if os.path.ismount("/dev/mqueue"):
        _mount("mqueue", "/dev/mqueue", "mqueue", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def open_all(pid: int, task: TaskSpec) -> list[int]:
    """Open the namespaces of PID 1 of a task, in the order in which they can be entered."""
    names = ["ipc", "uts", "pid", "mnt"]
    if task["network"] == "none":
        names.insert(0, "net")
    if task["namespaces"] == "user":
        names.insert(0, "user")
    return [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]


def enter(opened: list[int]) -> None:
    """Enter the namespaces; the next child of this process is in the task's PID namespace."""
    for descriptor in opened:
        _call("setns", descriptor, 0)
        os.close(descriptor)


def _mount_memory(size_bytes: int) -> None:
    """Mount the tmpfs on /tmp, then each of its folders at its path, /tmp itself last since that covers the others."""
    inodes = min(max(size_bytes // 4096, _FEWEST_INODES), _MAX_INODES)
    options = f"mode=0755,size={size_bytes},nr_inodes={inodes}"
    _mount("mooring", "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    for folder, name in reversed(_MEMORY_FOLDERS):
        # The real path, such as /run/shm. A link to /tmp is private already.
        target = os.path.realpath(folder)
        if not os.path.isdir(target) or (name != "tmp" and target.startswith("/tmp")):
            continue
        os.mkdir(f"/tmp/{name}")
        os.chmod(f"/tmp/{name}", 0o1777)
        _mount(f"/tmp/{name}", target, None, _MS_BIND)


def _raise_loopback() -> None:
    import _socket
    import fcntl
    import struct

    request = struct.pack("16sH14x", b"lo", _IFF_UP)
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        fcntl.ioctl(sock.fileno(), _SIOCSIFFLAGS, request)
    finally:
        sock.close()


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, options)]
    if _libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot mount {kind or source or 'private'} on {target}: {os.strerror(number)}")


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
