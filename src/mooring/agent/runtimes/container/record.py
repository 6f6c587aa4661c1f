"""What is kept on disk about a task of containers, beside what the engine knows; never a secret."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mooring.agent.records import ExitRecord
from mooring.agent.supervisor import record as files
from mooring.wire.agent import DesiredTask, EndWarning


class Stopping(msgspec.Struct, kw_only=True):
    """The task has to end. `cause`: who asked for it; empty where it came about by itself."""

    kill_at: float
    """In seconds since 1970."""
    cause: str = ""
    grace_seconds: int | None = None
    """As it was asked for."""
    told: list[str] = []
    """Containers that have their signal."""


class TaskRecord(msgspec.Struct, kw_only=True):
    task: DesiredTask
    """Without logins and secrets."""
    boot_id: str
    began: bool = False
    """Containers may exist: a start that was cut short before can be made afresh."""
    ran: bool = False
    """All of its containers have been started."""
    started: list[str] = []
    """Containers that were, at least once."""
    passed: list[str] = []
    """Init containers that have ended well."""
    restarts: dict[str, int] = {}
    rejoin: list[str] = []
    """Containers that are to share the network of one that was started again, and have to be, too."""
    errors: dict[str, str] = {}
    """Why containers could not be started."""
    starved: list[str] = []
    """Containers that were ended for want of memory, since their last start."""
    ready: dict[str, float] = {}
    """Containers whose readiness probe says yes, and the start of the run of which it does."""
    unhealthy: list[str] = []
    """Containers that were killed since their liveness probe failed, since their last start."""
    images: dict[str, str] = {}
    """By container: the engine's own name of its image, which cannot come to mean another."""
    digests: dict[str, str] = {}
    address: str | None = None
    commands: list[str] = []
    """The marks of what people run in its containers: whoever comes after a crash ends that."""
    failed: str = ""
    """The container that failed first for good."""
    stop: Stopping | None = None
    warning: EndWarning | None = None
    warned_at: float | None = None
    """The time of the warning that was given."""
    outcome: ExitRecord | None = None
    removed: bool = False
    """Nothing of it is left in the engine."""
    acknowledged: bool = False


def of(task: DesiredTask, boot_id: str) -> TaskRecord:
    return TaskRecord(task=msgspec.structs.replace(task, logins=[], secrets=[]), boot_id=boot_id)


def write(path: Path, record: TaskRecord) -> None:
    """Whole or not at all, also after a power cut."""
    files.write(str(path), msgspec.to_builtins(record), durable=True)
