"""The record of a container task on disk, in addition to the engine's state; never a secret."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mooring.agent.runtimes.process.supervisor import record as files
from mooring.agent.runtimes.records import ContainerExit, ExitRecord
from mooring.wire.agents.desired_tasks import DesiredTask, EndWarning


class Stopping(msgspec.Struct, kw_only=True):
    """An order to end the task. `cause`: the origin of the stop; empty if a container failed."""

    kill_at: float
    """Unix time."""
    cause: str = ""
    grace_seconds: int | None = None
    """Grace period of the request."""
    signalled: list[str] = []
    """Containers that were sent their stop signal."""


class TaskRecord(msgspec.Struct, kw_only=True):
    task: DesiredTask
    """The order, without logins and secrets."""
    boot_id: str
    began: bool = False
    """Containers may exist. An interrupted start before this point can simply be repeated."""
    ran: bool = False
    """All containers have been started."""
    started: list[str] = []
    """Containers that were started at least once."""
    passed: list[str] = []
    """Init containers that have succeeded."""
    restarts: dict[str, int] = {}
    crashes: dict[str, int] = {}
    """By container: ends soon after a start, in a row, up to its last restart."""
    last_exit: ContainerExit | None = None
    """The end before the last restart."""
    rejoin: list[str] = []
    """Containers to restart because the container whose network they share was restarted."""
    errors: dict[str, str] = {}
    """Reasons why containers could not be started."""
    starved: list[str] = []
    """Containers that were OOM-killed since their last start."""
    ready: dict[str, float] = {}
    """Ready containers, and the start time of the run to which that applies."""
    unhealthy: list[str] = []
    """Containers that were killed by a failed liveness probe since their last start."""
    images: dict[str, str] = {}
    """By container: the engine's id of its image, which never refers to another one."""
    digests: dict[str, str] = {}
    address: str | None = None
    commands: list[str] = []
    """Marks of commands that users run in its containers, which the next agent ends after a crash."""
    failed: str = ""
    """The container that failed first for good."""
    stop: Stopping | None = None
    warning: EndWarning | None = None
    warned_at: float | None = None
    """Time of the warning that was sent."""
    outcome: ExitRecord | None = None
    removed: bool = False
    """Nothing of the task is left in the engine."""
    acknowledged: bool = False


def of(task: DesiredTask, boot_id: str) -> TaskRecord:
    return TaskRecord(task=msgspec.structs.replace(task, logins=[], secrets=[]), boot_id=boot_id)


def write(path: Path, record: TaskRecord) -> None:
    """Write the record atomically and durably."""
    files.write(str(path), msgspec.to_builtins(record), durable=True)
