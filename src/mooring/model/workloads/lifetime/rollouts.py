"""The rollout of a deployment: how many tasks to create and which to retire, step by step. Pure.

A retiring task leaves the endpoints at once and is stopped some seconds later; until it is gone it counts towards
the maximum number of tasks, but not as available.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from typing import Literal
from uuid import UUID

from mooring.model.calendar.durations import format_duration
from mooring.model.errors import InvalidInput
from mooring.model.lifecycle import TaskStatus, is_end

_SHARE = re.compile(r"(?P<number>[0-9]{1,4})(?P<percent>%?)", re.ASCII)


class Phase(StrEnum):
    DONE = "done"
    ROLLING = "rolling"
    PAUSED = "paused"
    STALLED = "stalled"
    """It made no progress within its deadline."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The rollout policy of a deployment, and its progress."""

    surge: str = "1"
    """Maximum extra tasks during a rollout: a number, or a percentage of the replicas, rounded up."""
    unavailable: str = "0"
    """Maximum unavailable tasks during a rollout: a number, or a percentage of the replicas, rounded down."""
    steady_seconds: int = 0
    """Time that a task has to be ready without interruption before it counts as available."""
    drain_seconds: int = 5
    """Time between leaving the endpoints and the stop."""
    deadline_seconds: int = 600
    """It stalls after this time without progress."""
    phase: Phase = Phase.DONE
    ready: int = 0
    """The highest number of ready tasks of the newest revision so far."""
    progressed_at: datetime | None = None
    reason: str | None = None
    """The reason why it stalled, with the commands to resume or undo."""

    @property
    def unfinished(self) -> bool:
        return self.phase is not Phase.DONE

    @property
    def due_at(self) -> datetime | None:
        """The time at which it stalls without progress."""
        if self.phase is not Phase.ROLLING or self.progressed_at is None:
            return None
        return self.progressed_at + timedelta(seconds=self.deadline_seconds)


@dataclass(frozen=True, slots=True)
class Member:
    """A living task of a deployment, wanted or retiring."""

    id: UUID
    revision: int
    status: TaskStatus
    ready_at: datetime | None
    """The time since which it is ready; None: not ready."""
    created_at: datetime
    index: int = 0
    retiring: bool = False
    """It has left the endpoints and will be stopped."""

    @property
    def ready(self) -> bool:
        return self.ready_at is not None

    def steady(self, since: datetime | None) -> bool:
        """Return whether it is ready, and has been so since a time, if one is given."""
        return self.ready_at is not None and (since is None or self.ready_at <= since)


@dataclass(frozen=True, slots=True)
class Step:
    create: int = 0
    retire: tuple[Member, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.create or self.retire)


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """The next state of a rollout; `said` goes to the history of its deployment."""

    kind: Literal["rolling", "rolled-out", "stalled"]
    rollout: Rollout
    step: Step = Step()
    said: str | None = None


def check(rollout: Rollout) -> None:
    """Raise InvalidInput for a value that is neither a number nor a percentage, or that allows no progress."""
    surge, unavailable = rollout.surge, rollout.unavailable
    for name, share in (("surge", surge), ("unavailable", unavailable)):
        if _SHARE.fullmatch(share) is None:
            raise InvalidInput(
                f"{name}: {share!r} is neither a number such as 1 nor a percentage such as 25%", code="invalid-rollout"
            )
    if not (_number(surge) or _number(unavailable)):
        raise InvalidInput(
            "surge and unavailable are both 0, so no task could be replaced: allow at least 1 of either",
            code="invalid-rollout",
        )
    if rollout.steady_seconds >= rollout.deadline_seconds:
        raise InvalidInput(
            f"a task has to be ready for {format_duration(rollout.steady_seconds)}, and the rollout stalls after"
            f" {format_duration(rollout.deadline_seconds)}: the deadline must be longer",
            code="invalid-rollout",
        )


def bounds(desired: int, surge: str, unavailable: str) -> tuple[int, int]:
    """Return the maximum extra and the maximum unavailable tasks; at least one is not 0."""
    more, fewer = math.ceil(_of(desired, surge)), min(desired, math.floor(_of(desired, unavailable)))
    return (more, fewer) if more or fewer else (0, 1)


def _of(desired: int, share: str) -> Fraction:
    return Fraction(_number(share) * desired, 100) if share.endswith("%") else Fraction(_number(share))


def _number(share: str) -> int:
    return int(share.removesuffix("%"))


def next_step(
    desired: int,
    surge: int,
    unavailable: int,
    revision: int,
    members: Iterable[Member],
    since: datetime | None = None,
) -> Step:
    """Return the next step from older revisions to this one.

    There are never more than `desired + surge` tasks, retiring ones included, and no ready task retires if
    that would leave fewer than `desired - unavailable`. While new tasks start, no more are created. Tasks that
    became ready after `since` do not count as available yet.
    """
    found = list(members)
    active = [member for member in found if not member.retiring]
    creatable = max(0, desired + surge - len(found))
    old = [member for member in active if member.revision != revision]
    if not old:
        step = to_scale(desired, active)
        return replace(step, create=min(step.create, creatable))
    new = [member for member in active if member.revision == revision]
    starting = sum(not member.steady(since) for member in new)
    create = 0 if starting else min(creatable, max(0, desired - len(new)))
    least = desired - unavailable
    broken = max(0, len(active) - least - starting)
    spare = max(0, sum(member.steady(since) for member in active) - least)
    retire = [member for member in worst_first(old) if not member.ready][:broken]
    retire += [member for member in worst_first(old) if member.ready][:spare]
    return Step(create, tuple(retire))


def to_scale(desired: int, active: Sequence[Member]) -> Step:
    """Return the next step towards this number of tasks, of whatever revision."""
    surplus = max(0, len(active) - desired)
    return Step(max(0, desired - len(active)), tuple(worst_first(active)[:surplus]))


def proven(revision: int, active: Iterable[Member]) -> Member | None:
    """Return a ready task of the revision that most ready tasks have; None if it is this one."""
    ready = [member for member in active if member.ready]
    numbers = Counter(member.revision for member in ready)
    best = min(numbers, key=lambda number: (-numbers[number], number), default=revision)
    return None if best == revision else next(member for member in ready if member.revision == best)


def is_done(desired: int, revision: int, members: Iterable[Member], since: datetime | None = None) -> bool:
    active = [member for member in members if not member.retiring]
    return len(active) == desired and all(member.steady(since) and member.revision == revision for member in active)


def steady_at(rollout: Rollout, members: Iterable[Member], now: datetime) -> datetime | None:
    """Return the time at which the next ready task becomes available."""
    length = timedelta(seconds=rollout.steady_seconds)
    moments = [member.ready_at + length for member in members if member.ready_at is not None and not member.retiring]
    return min((at for at in moments if at > now), default=None)


def worst_first(members: Iterable[Member]) -> list[Member]:
    """The order of retirement: tasks without a node, then unready ones, the newest first."""
    newest_first = sorted(members, key=lambda member: (member.created_at, member.index), reverse=True)
    return sorted(newest_first, key=lambda member: (member.ready, _advance(member.status)))


def _advance(status: TaskStatus) -> int:
    # One that ended and was not replaced yet waits as well.
    return 0 if is_end(status) else _STEPS.index(status)


_STEPS = list(TaskStatus)


def progress(
    name: str,
    desired: int,
    revision: int,
    rollout: Rollout,
    members: Sequence[Member],
    now: datetime,
    lacks: str | None = None,
) -> RolloutProgress | None:
    """Return the next state of a rollout; None: no change. `lacks` is the reason why its tasks are pending."""
    if rollout.phase is not Phase.ROLLING:
        return None
    since = now - timedelta(seconds=rollout.steady_seconds)
    ready = sum(member.steady(since) and member.revision == revision and not member.retiring for member in members)
    step = next_step(desired, *bounds(desired, rollout.surge, rollout.unavailable), revision, members, since)
    if is_done(desired, revision, members, since):
        done = replace(rollout, phase=Phase.DONE, ready=ready, progressed_at=now)
        return RolloutProgress("rolled-out", done, said=f"Revision {revision} is rolled out")
    if step or ready > rollout.ready:
        return RolloutProgress("rolling", replace(rollout, ready=max(ready, rollout.ready), progressed_at=now), step)
    if rollout.due_at is None or now < rollout.due_at:
        return None
    said = (
        f"{ready} of {desired} replicas of revision {revision} are ready, and for"
        f" {format_duration(rollout.deadline_seconds)} there was no progress{f' ({lacks})' if lacks else ''};"
        f" `mooring rollout undo {name}` rolls back, `mooring rollout resume {name}` continues"
    )
    return RolloutProgress("stalled", replace(rollout, phase=Phase.STALLED, reason=said), said=said)
