"""Records in the folders of tasks: the process, its supervisor, stops, warnings and exits."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    log: str
    cgroup: str | None = None
    terminal: bool = False
    stdin: bool = False

    @property
    def attachable(self) -> bool:
        return self.terminal or self.stdin


class SpecRecord(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    grace_seconds: int
    work_folder: str
    containers: list[ContainerRecord]
    log_files: int
    workload_name: str = ""
    uid: int | None = None
    cgroup: str | None = None
    ports: list[tuple[int, int]] = []
    """Pairs of container port and assigned node port."""
    namespaces: str = ""
    network: str = "host"


class InitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """PID 1 of a container's PID namespace, as the agent sees it."""

    pid: int
    start_time: int | None


class ContainerExit(msgspec.Struct, frozen=True, kw_only=True):
    """The last end of a container of a living task."""

    exit_code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    container: str = ""
    retry_at: float | None = None
    """Unix time of its restart; None: it was restarted."""


class StateRecord(msgspec.Struct, frozen=True, kw_only=True):
    phase: str
    boot_id: str
    pid: int
    start_time: int | None
    restarts: int = 0
    crashes: int = 0
    last_exit: ContainerExit | None = None
    ready: bool = True
    """No container waits for a restart."""
    inits: list[InitRecord | None] = []
    """By container; empty without namespaces."""


class StopRecord(msgspec.Struct, frozen=True, kw_only=True):
    grace_seconds: int
    cause: str


class WarningRecord(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    name: str


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The exit of a task. `failure`: a code of the agent if no supervisor saw the exit."""

    ended_at: float
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    """Reason why the command could not be started."""
    out_of_memory: bool = False
    container: str = ""
    """The container that determined the exit, if there are several."""
    stop_cause: str = ""
    restarts: int = 0
    crashes: int = 0
    ran: bool = False
    failure: str = ""


Record = TypeVar("Record", bound=msgspec.Struct)


def read(path: Path, kind: type[Record]) -> Record | None:
    """Return the record; None if it does not exist or was cut off by a crash."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None
