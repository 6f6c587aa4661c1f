"""The files that agent and supervisor exchange, and the identity of a process: boot id, pid, start time."""

# ruff: noqa: PTH105, PTH108, PTH120, PTH123
from __future__ import annotations

import contextlib
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, TypedDict

    class ContainerSpec(TypedDict):
        name: str
        command: list[str]
        environment: dict[str, str]
        folder: str
        log: str
        cgroup: str | None
        memory_bytes: int | None
        """RLIMIT_DATA; None if a cgroup limits the memory, or nothing does."""
        processes: int | None
        oom_score: int
        tmpfs_bytes: int
        """Size of the private /tmp, /var/tmp and /dev/shm together."""
        terminal: bool
        stdin: bool
        """It has an input, which users attach to; a terminal always has one."""
        terminal_size: tuple[int, int]
        """Rows and columns at the start."""

    class TaskSpec(TypedDict):
        task_id: str
        workload_name: str
        boot_id: str
        containers: list[ContainerSpec]
        restart: Literal["never", "on-failure", "always"]
        max_restarts: int
        grace_seconds: int
        uid: int | None
        """None: the task runs as the supervisor's user."""
        gid: int
        groups: list[int]
        cgroup: str | None
        work_folder: str
        ports: list[tuple[int, int]]
        """Pairs of container port and assigned node port."""
        log_bytes: int
        log_files: int
        notify: str
        namespaces: Literal["", "root", "user"]
        """The privilege that creates the task's namespaces; empty: the task has none of its own."""
        network: Literal["host", "none"]
        syscall_filter: str | None
        """File with the seccomp program, if the node has one."""


SPEC = "spec.json"
STATE = "state.json"
EXIT = "exit.json"
STOP = "stop.json"
WARNING = "warning.json"
LOCK = "lock"


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    # The command's name is in parentheses and may itself hold spaces and parentheses.
    return text.rpartition(")")[2].split()


def start_time(pid: int) -> int | None:
    """Return the start time of the process in clock ticks since boot; None if it is gone or a zombie."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def spec(folder: str) -> TaskSpec:
    """Return the task's spec; one of an agent without support for namespaces has none."""
    found: dict[str, Any] = {"namespaces": "", "network": "host", "syscall_filter": None}
    return found | (read(f"{folder}/{SPEC}") or {})  # type: ignore[return-value]


def read(path: str) -> dict[str, Any] | None:
    """Return a record; None if it was never written, or cut off by a crash."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write(path: str, value: object, *, durable: bool = False) -> None:
    """Write a record atomically; `durable`: also with respect to a power failure."""
    write_bytes(path, json.dumps(value).encode(), durable=durable)


def write_bytes(path: str, data: bytes, *, durable: bool = False) -> None:
    draft = f"{path}.{os.getpid()}.draft"
    # A draft left by a crash is not reused: it may be a link or have another hard link.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(draft, path)
    if durable:
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
