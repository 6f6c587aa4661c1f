"""What the files of a task's folder say, as the agent reads them; the supervisor writes them."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    log: str
    cgroup: str | None = None


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
    """Those that the task was given, each after the number that it is asked for by."""


class StateRecord(msgspec.Struct, frozen=True, kw_only=True):
    phase: str
    boot_id: str
    pid: int
    start_time: int | None
    restarts: int = 0
    ready: bool = True
    """None of its processes waits to be started again."""


class StopRecord(msgspec.Struct, frozen=True, kw_only=True):
    grace_seconds: int
    cause: str


class WarningRecord(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    name: str


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended. `failure`: a code that the agent gives when there was nobody left to see the exit."""

    ended_at: float
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    """Why the command could not be started."""
    out_of_memory: bool = False
    container: str = ""
    """Which of several containers it was."""
    stop_cause: str = ""
    restarts: int = 0
    ran: bool = False
    failure: str = ""


Record = TypeVar("Record", bound=msgspec.Struct)


def read(path: Path, kind: type[Record]) -> Record | None:
    """The record, or None when it is not there or was cut short by a crash."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None
