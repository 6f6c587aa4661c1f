"""What comes next for a task: its record and its containers as the engine has them in, steps out. Pure, no I/O.

Init containers run one after the other, sidecars among them keep running; then all others start. The first that fails
for good ends the rest; sidecars end last. The agent starts again what its restart policy wants, with growing pauses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mooring.agent.containers.record import Stopping, TaskRecord
from mooring.agent.records import ExitRecord
from mooring.wire.agent import ContainerSpec

_LONGEST_BACKOFF_SECONDS = 30.0
_SIGNALS = range(129, 193)
"""Exit codes of what a signal has ended."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A container as the engine has it."""

    id: str
    status: Literal["created", "running", "ended"]
    exit_code: int | None = None
    out_of_memory: bool = False
    started_at: float = 0.0
    ended_at: float = 0.0
    pid: int = 0
    address: str | None = None
    stop_signal: str = "TERM"
    """What its image wants to be told of its end by."""
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
class Next:
    """Steps to take now, when to look again at the latest, and how the task ended if it has."""

    steps: tuple[Start | Send, ...] = ()
    due: float | None = None
    stopping: Stopping | None = None
    """The task has to end since one of its containers failed."""
    failed: str = ""
    outcome: ExitRecord | None = None


def sidecars(record: TaskRecord) -> list[ContainerSpec]:
    return [each for each in record.task.init_containers if each.sidecar]


def network_holder(record: TaskRecord) -> str:
    """The container whose network the others share: the first that runs as long as the task."""
    return (sidecars(record) or record.task.containers)[0].name


def passed(record: TaskRecord, seen: Mapping[str, Seen]) -> list[str]:
    """The init containers that have ended well, also if somebody removes them afterwards."""
    return [
        each.name
        for each in record.task.init_containers
        if not each.sidecar and (each.name in record.passed or (each.name in seen and seen[each.name].exit_code == 0))
    ]


def decided(record: TaskRecord, seen: Mapping[str, Seen]) -> bool:
    """Whether what becomes of the task is certain, so that an order to stop changes nothing about it."""
    return bool(record.failed) or all(is_final(record, each, seen) for each in record.task.containers)


def next_steps(record: TaskRecord, seen: Mapping[str, Seen], now: float) -> Next:
    if record.stop is not None:
        return _end(record, seen, now)
    failed = _failed(record, seen)
    if failed:
        return Next(stopping=Stopping(kill_at=now + record.task.grace_seconds), failed=failed)
    if all(is_final(record, each, seen) for each in record.task.containers):
        return Next(stopping=Stopping(kill_at=now + record.task.grace_seconds))
    waits: list[float] = []
    steps: list[Start | Send] = list(_warnings(record, seen, now, waits))
    steps += _starts(record, seen, now, waits)
    return Next(tuple(steps), due=min(waits, default=None))


def _starts(record: TaskRecord, seen: Mapping[str, Seen], now: float, waits: list[float]) -> Iterator[Start]:
    """Those whose turn it is: the next init container, or all that follow them; and the restarts that are due."""
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
    record: TaskRecord, each: ContainerSpec, found: Seen | None, now: float, waits: list[float]
) -> Iterator[Start]:
    if found is None:
        if each.sidecar or each.name not in record.started:
            yield Start(each.name)
    elif found.status == "created" or (found.status == "ended" and each.name in record.rejoin):
        yield Start(each.name)
    elif found.status == "ended" and _again(record, each, found):
        due = found.ended_at + min(2.0 ** record.restarts.get(each.name, 0), _LONGEST_BACKOFF_SECONDS)
        if now >= due:
            yield Start(each.name, again=True)
        else:
            waits.append(due)


def _warnings(record: TaskRecord, seen: Mapping[str, Seen], now: float, waits: list[float]) -> Iterator[Send]:
    warning = record.warning
    if warning is None or record.warned_at == warning.at:
        return
    if now < warning.at:
        waits.append(warning.at)
        return
    for name, found in seen.items():
        if found.status == "running":
            yield Send(name, warning.signal)


def _again(record: TaskRecord, each: ContainerSpec, found: Seen) -> bool:
    """Whether one that ended by itself is started once more."""
    if each.sidecar:
        return True
    policy = record.task.restart
    main = any(each.name == other.name for other in record.task.containers)
    wanted = (policy == "always" and main) or (policy != "never" and found.exit_code != 0)
    return wanted and record.restarts.get(each.name, 0) < record.task.max_restarts


def is_final(record: TaskRecord, each: ContainerSpec, seen: Mapping[str, Seen]) -> bool:
    """Whether it has ended and is not started again."""
    if each.name in record.errors:
        return True
    found = seen.get(each.name)
    if found is None:
        return each.name in record.started
    if found.status != "ended" or each.name in record.rejoin:
        return False
    if not _again(record, each, found):
        return True
    # Who shares the network of another cannot come back without it.
    first = record.task.containers[0]
    shares = each in record.task.containers and each is not first and network_holder(record) == first.name
    return shares and is_final(record, first, seen)


def _failed(record: TaskRecord, seen: Mapping[str, Seen]) -> str:
    """The container that failed for good, if one has."""
    for each in (*record.task.init_containers, *record.task.containers):
        found = seen.get(each.name)
        if each.name in record.errors:
            return each.name
        if each in record.task.init_containers and (record.ran or each.name in record.passed):
            continue
        if is_final(record, each, seen) and (found is None or found.exit_code != 0):
            return each.name
    return ""


def _end(record: TaskRecord, seen: Mapping[str, Seen], now: float) -> Next:
    """Tell those that run to end, sidecars after the others; kill what is left when the grace is over."""
    assert record.stop is not None
    running = [name for name, found in seen.items() if found.status == "running"]
    if not running:
        return Next(outcome=_outcome(record, seen, now))
    if now >= record.stop.kill_at:
        return Next(tuple(Send(name, "KILL") for name in running), due=now + 1.0)
    beside = {each.name for each in sidecars(record)}
    first = [name for name in running if name not in beside] or running
    told = tuple(Send(name, seen[name].stop_signal) for name in first if name not in record.stop.told)
    return Next(told, due=record.stop.kill_at)


def _outcome(record: TaskRecord, seen: Mapping[str, Seen], now: float) -> ExitRecord:
    """What became of the task: of the container that failed first, or of the last one."""
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
        signal=exit_code - 128 if exit_code is not None and exit_code in _SIGNALS else None,
        error=error,
        out_of_memory=bool(exit_code) and found is not None and (found.out_of_memory or speaker in record.starved),
        container=speaker if len(mains) + len(record.task.init_containers) > 1 else "",
        stop_cause=record.stop.cause,
        restarts=sum(record.restarts.values()),
        ran=record.ran,
        failure=failure,
    )
