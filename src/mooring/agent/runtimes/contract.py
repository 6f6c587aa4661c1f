"""The contract of a runtime, which runs one kind of task. Runtimes are `mooring.runtimes` entry points.

An entry point names a callable that takes a `RuntimeContext` and returns a `Runtime`, or None if it cannot run (no
engine answers, for example). The name of the entry point is the runtime's name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

import structlog

from mooring.agent.files.safe_files import Folder
from mooring.agent.files.unpacking import Ownership
from mooring.agent.options import Options
from mooring.concurrency.background import BackgroundTasks
from mooring.extensions.entry_points import entry_points
from mooring.wire.agents.agent_protocol import LastExit, Purpose, TaskMeasure
from mooring.wire.agents.desired_tasks import DesiredTask, EndWarning

log = structlog.get_logger(__name__)

Status = Literal["PREPARING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]
StopCause = Literal["requested", "agent-stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The observed state of a task on this node."""

    status: Status
    workload_name: str = ""
    gone: bool = False
    """No process or container is left: its capacity is free."""
    ran: bool = False
    exit_code: int | None = None
    restarts: int = 0
    crashes: int = 0
    """Ends of its containers soon after their start, in a row."""
    last_exit: LastExit | None = None
    """Of a living task: the last end of one of its containers."""
    code: str = ""
    reason: str = ""
    stop_grace_seconds: int | None = None
    """Set once a stop was requested."""
    ready: bool = True
    """Its readiness probes succeed, or it has none."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """By container: the digest of its image at the start."""
    address: str | None = None
    """Address for its peers."""
    warning: EndWarning | None = None
    """The warning before its time limit that was ordered."""
    acknowledged: bool = False
    """The server has stored the end."""

    @property
    def ended(self) -> bool:
        return self.status not in ("PREPARING", "RUNNING")


@dataclass(frozen=True, slots=True)
class RuntimeContext:
    """Environment of a runtime: its folder, its node, and the callback for changes."""

    root: Path
    node_id: UUID
    options: Options
    changed: Callable[[], None]
    """To be called on the agent's event loop when the result of `observe` would change."""
    term: Callable[[], int] = lambda: 0
    """Term of the leader whose orders are followed."""


class Runtime(Protocol):
    """Every call may be repeated after a crash: starting a running task or stopping an ended one changes nothing."""

    name: str
    enforces: Mapping[str, str]
    """Return how the limit of each slot is enforced (`cgroup`, `rlimit`, `none`)."""

    async def open(self) -> None: ...

    async def prepare(self, task: DesiredTask) -> None:
        """Prepare the start, for example pull the image; MooringError if the task cannot run here."""

    async def start(self, task: DesiredTask) -> None:
        """Start the task and return; MooringError if it cannot run here, which is reported as its failure."""

    async def stop(self, task_id: UUID, grace_seconds: int | None, cause: StopCause) -> None:
        """Request the stop and return. None: the grace period of the task."""

    async def warn(self, task_id: UUID, warning: EndWarning) -> None:
        """Send the task's processes this signal at that time, also if the agent is not there then; it replaces an
        order before it. The same order twice is one.
        """

    async def observe(self, listed: Set[UUID]) -> Mapping[UUID, Observed]:
        """Return every task started here, also by earlier agents; acknowledged ends only of those `listed`."""
        ...

    async def acknowledge(self, task_id: UUID) -> None:
        """Note that the server has stored the end, so that neither this nor the next agent reports it again."""

    async def tidy(self, keep: Set[UUID]) -> None:
        """Remove old or excess data of acknowledged tasks, never of those in `keep`."""

    def logs(
        self,
        task_id: UUID,
        container: str,
        tail: int | None,
        follow: bool,
        *,
        since: float | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[bytes]:
        """Yield the stored output of a task; MooringError if there is none.

        `tail`: number of last lines; None: all. `follow`: until the task has ended. `since`: only lines that arrived
        from this Unix time on. `timestamps`: each line begins with its time, as `agent.access.logs.stamp` writes it.
        """
        ...

    async def close(self) -> None:
        """Release resources without stopping any task."""


class TaskChannel(Protocol):
    """The task's end of a channel. Closing is idempotent."""

    async def read(self) -> tuple[bytes, bool] | None:
        """Return output and whether it is standard error; None at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write input; empty data is the end of the input."""
        ...

    async def resize(self, rows: int, columns: int) -> None: ...

    async def exit_code(self) -> int | None:
        """Return the exit code of a command that has ended; None without a command."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class AccessibleRuntime(Protocol):
    """A runtime whose tasks can be accessed."""

    async def reach(self, task_id: UUID, container: str | None, purpose: Purpose) -> TaskChannel:
        """Open a channel; NotFound if this runtime has no such task or container, MooringError if it fails."""
        ...


@runtime_checkable
class Supervised(Protocol):
    """A runtime with its own background tasks."""

    background: BackgroundTasks


@runtime_checkable
class Conditional(Protocol):
    """A runtime that cannot always start tasks, for example while no engine answers."""

    @property
    def available(self) -> bool: ...


@runtime_checkable
class Measuring(Protocol):
    async def measures(self) -> list[TaskMeasure]:
        """Return the usage of all running tasks."""
        ...


@runtime_checkable
class ImageKeeping(Protocol):
    async def images(self) -> Mapping[str, int]:
        """Return the images that are present, by each of their names, with their size in bytes."""
        ...


Unpack = Callable[[Folder, Ownership], None]
"""Unpacks files into an empty folder that is private to the agent. Blocking."""


class Progress(NamedTuple):
    words: str
    """Human-readable text."""
    heard: int
    """A counter that grows with any activity, even if the text does not change."""


@runtime_checkable
class FileReceiving(Protocol):
    """A runtime whose tasks can find files in their working folder."""

    async def place_files(self, task: DesiredTask, unpack: Unpack) -> None:
        """Unpack the task's files before its start, replacing those of an interrupted start."""


@runtime_checkable
class Fetching(Protocol):
    def progress(self, task: DesiredTask) -> Progress | None:
        """Return the progress of a task's preparation; None if nothing is being pulled."""
        ...


def runtime_of(task: DesiredTask) -> str:
    """Return the name of the runtime that a task needs."""
    return "container" if any(container.image is not None for container in task.containers) else "process"


def discover(context: RuntimeContext) -> dict[str, Runtime]:
    """Return the runtimes of other packages that work on this machine, by name."""
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
