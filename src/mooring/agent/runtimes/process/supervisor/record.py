"""The files through which agent and supervisor speak, and the identity of a process: boot id, pid, start time."""

# ruff: noqa: PTH105, PTH120, PTH123
from __future__ import annotations

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
        """Kept by an rlimit; None where a cgroup does it."""
        processes: int | None
        oom_score: int

    class TaskSpec(TypedDict):
        task_id: str
        workload_name: str
        boot_id: str
        containers: list[ContainerSpec]
        restart: Literal["never", "on-failure", "always"]
        max_restarts: int
        grace_seconds: int
        uid: int | None
        """None: the task runs as whoever runs the supervisor."""
        gid: int
        groups: list[int]
        cgroup: str | None
        work_folder: str
        ports: list[tuple[int, int]]
        """Those that the task was given, each after the number that it is asked for by."""
        log_bytes: int
        log_files: int
        notify: str


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
    """The fields of /proc/PID/stat from the state on; empty when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    # The command's name is in parentheses and may itself hold spaces and parentheses.
    return text.rpartition(")")[2].split()


def start_time(pid: int) -> int | None:
    """When the process began, in clock ticks since boot; None when it is gone or only waits to be reaped."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def read(path: str) -> dict[str, Any] | None:
    """A record; None when it was never written, or not to its end before a crash."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write(path: str, value: object, *, durable: bool = False) -> None:
    """Whole or not at all; `durable`: also after a power cut."""
    draft = f"{path}.{os.getpid()}.draft"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = json.dumps(value).encode()
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
