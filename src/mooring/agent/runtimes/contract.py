"""The contract of a runtime: what knows how to run tasks of one sort. Found through `mooring.runtimes` entry points.

An entry point names a callable that takes a `RuntimeContext` and gives a `Runtime`, or None where it cannot run (no
engine answers, say). The name of the entry point is the runtime's name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

import structlog

from mooring.agent.options import Options
from mooring.installed import entry_points
from mooring.wire.agent import DesiredTask, EndWarning, Purpose, TaskMeasure

log = structlog.get_logger(__name__)

Status = Literal["PREPARING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]
StopCause = Literal["requested", "agent-stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A task as it is on this node."""

    status: Status
    workload_name: str = ""
    gone: bool = False
    """Nothing of it is left: its capacity is free."""
    ran: bool = False
    exit_code: int | None = None
    restarts: int = 0
    code: str = ""
    reason: str = ""
    stop_grace_seconds: int | None = None
    """Set once its end was asked for."""
    ready: bool = True
    """Its readiness probes say yes, or it has none."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """By container: what its image was when it was started."""
    address: str | None = None
    """Where its peers reach it."""
    warning: EndWarning | None = None
    """What it was ordered to be told before its time is over."""
    acknowledged: bool = False
    """The server has stored the end."""

    @property
    def ended(self) -> bool:
        return self.status not in ("PREPARING", "RUNNING")


@dataclass(frozen=True, slots=True)
class RuntimeContext:
    """What a runtime gets: where to keep things, for which node, and whom to call when something changed."""

    root: Path
    node_id: UUID
    options: Options
    changed: Callable[[], None]
    """Call it, on the agent's loop, when `observe` would answer differently than before."""
    term: Callable[[], int] = lambda: 0
    """Of the leader whose orders are followed."""


class Runtime(Protocol):
    """Every call may come again after a crash: starting what runs and stopping what ended change nothing."""

    name: str
    enforces: Mapping[str, str]
    """Per slot: how a limit is kept (`cgroup`, `rlimit`, `none`)."""

    async def open(self) -> None: ...

    async def prepare(self, task: DesiredTask) -> None:
        """Make ready what its start needs (fetch its image, say); MooringError when it cannot be run here."""

    async def start(self, task: DesiredTask) -> None:
        """Begin the task and return; MooringError when it cannot be run here, which is then reported as its failure."""

    async def stop(self, task_id: UUID, grace_seconds: int | None, cause: StopCause) -> None:
        """Ask for the end and return. None: the grace that the task came with."""

    async def warn(self, task_id: UUID, warning: EndWarning) -> None:
        """Send the task's processes this signal at that time, also if the agent is not there then; it replaces an
        order before it. The same order twice is one.
        """

    async def observe(self, listed: Set[UUID]) -> Mapping[UUID, Observed]:
        """Every task started here, also by agents before this one; acknowledged ends only of those `listed`."""
        ...

    async def acknowledge(self, task_id: UUID) -> None:
        """The server has stored the end: the task need not be reported again, also not by the next agent."""

    async def tidy(self, keep: Set[UUID]) -> None:
        """Remove what is kept of acknowledged ends where it is too old or too much; never of those in `keep`."""

    def logs(self, task_id: UUID, container: str, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        """The kept output of a task; MooringError when there is none."""
        ...

    async def close(self) -> None:
        """Let go without ending any task."""


class Reached(Protocol):
    """The inside end of a way into a task; closing it twice is closing it once."""

    async def read(self) -> tuple[bytes, bool] | None:
        """What comes out, and whether it is standard error; None: nothing more will."""
        ...

    async def write(self, data: bytes) -> None:
        """Hand in; none at all: nothing more will come."""
        ...

    async def resize(self, rows: int, columns: int) -> None: ...

    async def exit_code(self) -> int | None:
        """Of a command that has ended; None where there is no command."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class WayIn(Protocol):
    """What a runtime offers beside, if its tasks can be reached."""

    async def reach(self, task_id: UUID, container: str | None, purpose: Purpose) -> Reached:
        """NotFound where this runtime has no such task or container; MooringError where it cannot be done."""
        ...


@runtime_checkable
class Conditional(Protocol):
    """What a runtime has that cannot always start tasks, as while no engine answers; others always can."""

    @property
    def available(self) -> bool: ...


@runtime_checkable
class Measuring(Protocol):
    async def measures(self) -> list[TaskMeasure]:
        """Of all tasks that run at this moment."""
        ...


@runtime_checkable
class ImageKeeping(Protocol):
    async def images(self) -> Mapping[str, int]:
        """Those that are present, by each of their names, with their bytes."""
        ...


class Progress(NamedTuple):
    words: str
    """For people."""
    heard: int
    """It grows while something happens, whether or not the words change."""


@runtime_checkable
class Fetching(Protocol):
    def progress(self, task: DesiredTask) -> Progress | None:
        """How far it is with what the task needs; None where nothing is being fetched."""
        ...


def runtime_of(task: DesiredTask) -> str:
    """The name of the runtime that a task needs."""
    return "container" if any(container.image is not None for container in task.containers) else "process"


def discover(context: RuntimeContext) -> dict[str, Runtime]:
    """The runtimes that other packages offer and that work on this machine, by name."""
    found: dict[str, Runtime] = {}
    for point in entry_points(group="mooring.runtimes"):
        try:
            runtime = point.load()(context)
        except Exception as error:
            log.warning("runtime could not be loaded", runtime=point.name, error=str(error))
            continue
        if runtime is not None:
            found[point.name] = runtime
    return found
