"""State machine of a container task: its record and the engine's containers in, steps out. Pure, no I/O.

Init containers run one after the other, sidecars among them keep running; then all others start. The first that fails
for good ends the rest; sidecars end last. The agent restarts containers by their restart policy, with backoff.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from mooring.agent.runtimes.container.record import Stopping, TaskRecord
from mooring.agent.runtimes.records import ContainerExit, ExitRecord
from mooring.concurrency import backoff
from mooring.model.workloads.lifetime.health import RAN_WELL
from mooring.wire.agents.desired_tasks import ContainerSpec

_FIRST_BACKOFF_SECONDS = 1.0
_MAX_BACKOFF_SECONDS = 30.0
_SIGNALS = range(129, 193)
"""Exit codes of processes that were killed by a signal."""


@dataclass(frozen=True, slots=True)
class ContainerState:
    """The state of a container in the engine."""

    id: str
    status: Literal["created", "running", "ended"]
    exit_code: int | None = None
    out_of_memory: bool = False
    started_at: float = 0.0
    ended_at: float = 0.0
    pid: int = 0
    address: str | None = None
    stop_signal: str = "TERM"
    """Stop signal of its image."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    name: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    name: str
    signal: str


@dataclass(frozen=True, slots=True)
class NextSteps:
    """Steps to take now, the latest time of the next look, and the task's outcome if it has ended."""

    steps: tuple[Start | Send, ...] = ()
    due: float | None = None
    stopping: Stopping | None = None
    """The task has to end because a container failed."""
    failed: str = ""
    outcome: ExitRecord | None = None


def sidecars(record: TaskRecord) -> list[ContainerSpec]:
    return [each for each in record.task.init_containers if each.sidecar]


def network_holder(record: TaskRecord) -> str:
    """Return the container whose network the others share: the first that runs as long as the task."""
    return (sidecars(record) or record.task.containers)[0].name


def passed(record: TaskRecord, seen: Mapping[str, ContainerState]) -> list[str]:
    """Return the init containers that have succeeded, even if they were removed afterwards."""
    return [
        each.name
        for each in record.task.init_containers
        if not each.sidecar and (each.name in record.passed or (each.name in seen and seen[each.name].exit_code == 0))
    ]


def decided(record: TaskRecord, seen: Mapping[str, ContainerState]) -> bool:
    """Return whether the task's outcome is certain, so that a stop does not change it."""
    return bool(record.failed) or all(is_final(record, each, seen) for each in record.task.containers)


def next_steps(record: TaskRecord, seen: Mapping[str, ContainerState], now: float) -> NextSteps:
    if record.stop is not None:
        return _end(record, seen, now)
    failed = _failed(record, seen)
    if failed:
        return NextSteps(stopping=Stopping(kill_at=now + record.task.grace_seconds), failed=failed)
    if all(is_final(record, each, seen) for each in record.task.containers):
        return NextSteps(stopping=Stopping(kill_at=now + record.task.grace_seconds))
    waits: list[float] = []
    steps: list[Start | Send] = list(_warnings(record, seen, now, waits))
    steps += _starts(record, seen, now, waits)
    return NextSteps(tuple(steps), due=min(waits, default=None))


def _starts(record: TaskRecord, seen: Mapping[str, ContainerState], now: float, waits: list[float]) -> Iterator[Start]:
    """Return the containers to start: the next init container or all others, and restarts that are due."""
    for each in record.task.init_containers:
        found = seen.get(each.name)
        if each.sidecar:
            yield from _start(record, each, found, now, waits)
            if found is None or found.status == "created":
                return
        elif not record.ran and each.name not in record.passed:
            yield from _start(record, each, found, now, waits)
            return
    holder = network_holder(record)
    for each in record.task.containers:
        found = seen.get(each.name)
        shares = each.name != holder and found is not None and found.status == "ended"
        if not shares or (holder in seen and seen[holder].status == "running"):
            yield from _start(record, each, found, now, waits)


def _start(
    record: TaskRecord, each: ContainerSpec, found: ContainerState | None, now: float, waits: list[float]
) -> Iterator[Start]:
    if found is None:
        if each.sidecar or each.name not in record.started:
            yield Start(each.name)
    elif found.status == "created" or (found.status == "ended" and each.name in record.rejoin):
        yield Start(each.name)
    elif found.status == "ended" and _again(record, each, found):
        due = _restart_due(record, each, found)
        if now >= due:
            yield Start(each.name, again=True)
        else:
            waits.append(due)


def _restart_due(record: TaskRecord, each: ContainerSpec, found: ContainerState) -> float:
    number = record.restarts.get(each.name, 0) + 1
    return found.ended_at + backoff.delay(number, _FIRST_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS, jitter=0)


def crashes_of(record: TaskRecord, name: str, found: ContainerState | None) -> int:
    """Return how often a container ended soon after its start, in a row, its present end included."""
    before = record.crashes.get(name, 0)
    if name in record.errors:
        return before + 1
    if found is None or found.status != "ended":
        return before
    return before + 1 if found.ended_at - found.started_at < RAN_WELL.total_seconds() else 0


def crashes(record: TaskRecord, seen: Mapping[str, ContainerState]) -> int:
    """Return the crashes in a row of the container of the task that has the most; completed init containers do not."""
    lasting = (*sidecars(record), *record.task.containers)
    return max(crashes_of(record, each.name, seen.get(each.name)) for each in lasting)


def last_exit(record: TaskRecord, seen: Mapping[str, ContainerState]) -> ContainerExit | None:
    """Return the end of a container that waits for its restart; without one, that of the last that was restarted."""
    for each in (*sidecars(record), *record.task.containers):
        found = seen.get(each.name)
        if found is not None and found.status == "ended" and _again(record, each, found):
            return msgspec.structs.replace(
                exit_of(record, each.name, found), retry_at=_restart_due(record, each, found)
            )
    return record.last_exit


def exit_of(record: TaskRecord, name: str, found: ContainerState) -> ContainerExit:
    several = len(record.task.containers) + len(record.task.init_containers) > 1
    return ContainerExit(
        exit_code=found.exit_code,
        signal=_signal(found.exit_code),
        out_of_memory=bool(found.exit_code) and (found.out_of_memory or name in record.starved),
        container=name if several else "",
    )


def _signal(exit_code: int | None) -> int | None:
    return exit_code - 128 if exit_code is not None and exit_code in _SIGNALS else None


def _warnings(record: TaskRecord, seen: Mapping[str, ContainerState], now: float, waits: list[float]) -> Iterator[Send]:
    warning = record.warning
    if warning is None or record.warned_at == warning.at:
        return
    if now < warning.at:
        waits.append(warning.at)
        return
    for name, found in seen.items():
        if found.status == "running":
            yield Send(name, warning.signal)


def _again(record: TaskRecord, each: ContainerSpec, found: ContainerState) -> bool:
    """Return whether a container that ended by itself is restarted."""
    if each.sidecar:
        return True
    policy = record.task.restart
    main = any(each.name == other.name for other in record.task.containers)
    wanted = (policy == "always" and main) or (policy != "never" and found.exit_code != 0)
    return wanted and record.restarts.get(each.name, 0) < record.task.max_restarts


def is_final(record: TaskRecord, each: ContainerSpec, seen: Mapping[str, ContainerState]) -> bool:
    """Return whether a container has ended and is not restarted."""
    if each.name in record.errors:
        return True
    found = seen.get(each.name)
    if found is None:
        return each.name in record.started
    if found.status != "ended" or each.name in record.rejoin:
        return False
    if not _again(record, each, found):
        return True
    # A container that shares the network of another cannot be restarted without it.
    first = record.task.containers[0]
    shares = each in record.task.containers and each is not first and network_holder(record) == first.name
    return shares and is_final(record, first, seen)


def _failed(record: TaskRecord, seen: Mapping[str, ContainerState]) -> str:
    """Return the container that failed for good, if any."""
    for each in (*record.task.init_containers, *record.task.containers):
        found = seen.get(each.name)
        if each.name in record.errors:
            return each.name
        if each in record.task.init_containers and (record.ran or each.name in record.passed):
            continue
        if is_final(record, each, seen) and (found is None or found.exit_code != 0):
            return each.name
    return ""


def _end(record: TaskRecord, seen: Mapping[str, ContainerState], now: float) -> NextSteps:
    """Stop the running containers, sidecars last; kill the rest after the grace period."""
    assert record.stop is not None
    running = [name for name, found in seen.items() if found.status == "running"]
    if not running:
        return NextSteps(outcome=_outcome(record, seen, now))
    if now >= record.stop.kill_at:
        return NextSteps(tuple(Send(name, "KILL") for name in running), due=now + 1.0)
    sidecar_names = {each.name for each in sidecars(record)}
    first = [name for name in running if name not in sidecar_names] or running
    signals = tuple(Send(name, seen[name].stop_signal) for name in first if name not in record.stop.signalled)
    return NextSteps(signals, due=record.stop.kill_at)


def _outcome(record: TaskRecord, seen: Mapping[str, ContainerState], now: float) -> ExitRecord:
    """Return the outcome of the task: that of the container that failed first, or of the last one."""
    assert record.stop is not None
    mains = [each.name for each in record.task.containers]
    ended = [name for name in mains if name in seen and seen[name].exit_code]
    speaker = record.failed or (ended or mains[-1:])[0]
    found = seen.get(speaker)
    exit_code = found.exit_code if found is not None else None
    failure, error = "", record.errors.get(speaker, "")
    if not error and speaker in record.started and found is None:
        failure = "container-removed"
    elif speaker in record.unhealthy:
        failure = "unhealthy"
    return ExitRecord(
        ended_at=now,
        exit_code=exit_code,
        signal=_signal(exit_code),
        error=error,
        out_of_memory=bool(exit_code) and found is not None and (found.out_of_memory or speaker in record.starved),
        container=speaker if len(mains) + len(record.task.init_containers) > 1 else "",
        stop_cause=record.stop.cause,
        restarts=sum(record.restarts.values()),
        crashes=crashes(record, seen),
        ran=record.ran,
        failure=failure,
    )
