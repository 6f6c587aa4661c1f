"""A deployment from one template to the next: how many tasks to make and which to retire, step by step. Pure.

A task that retires is out of the endpoints at once and is stopped some seconds later; until it is gone it counts among
those that there may be, but not among those that serve.
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

from mooring.model.durations import format_duration
from mooring.model.errors import InvalidInput
from mooring.model.lifecycle import TaskStatus, is_end

_SHARE = re.compile(r"(?P<number>[0-9]{1,4})(?P<percent>%?)", re.ASCII)


class Phase(StrEnum):
    DONE = "done"
    ROLLING = "rolling"
    PAUSED = "paused"
    STALLED = "stalled"
    """Nothing got better for as long as it may take, so it stopped."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """How a deployment's tasks are replaced, and how far that is."""

    surge: str = "1"
    """So many tasks more than wanted there may be: a number, or a percentage of those, rounded up."""
    unavailable: str = "0"
    """So many fewer than wanted may be ready: a number, or a percentage of those, rounded down."""
    steady_seconds: int = 0
    """So long a task has to be ready without a break before it counts for what is replaced next."""
    drain_seconds: int = 5
    """Between leaving the endpoints and being stopped."""
    deadline_seconds: int = 600
    """It stops when nothing got better for so long."""
    phase: Phase = Phase.DONE
    ready: int = 0
    """The most tasks of the newest revision that were ready so far."""
    progressed_at: datetime | None = None
    reason: str | None = None
    """Why it stalled, and how to go on or back."""

    @property
    def unfinished(self) -> bool:
        return self.phase is not Phase.DONE

    @property
    def due_at(self) -> datetime | None:
        """When it stalls unless something gets better."""
        if self.phase is not Phase.ROLLING or self.progressed_at is None:
            return None
        return self.progressed_at + timedelta(seconds=self.deadline_seconds)


@dataclass(frozen=True, slots=True)
class Member:
    """A task of a deployment that is not over: wanted, or still there though it is not wanted any more."""

    id: UUID
    revision: int
    status: TaskStatus
    ready_at: datetime | None
    """Since when it is ready; None: it is not."""
    created_at: datetime
    index: int = 0
    retiring: bool = False
    """It is on its way out."""

    @property
    def ready(self) -> bool:
        return self.ready_at is not None

    def steady(self, since: datetime | None) -> bool:
        """Whether it is ready, at the latest since then if that matters."""
        return self.ready_at is not None and (since is None or self.ready_at <= since)


@dataclass(frozen=True, slots=True)
class Step:
    create: int = 0
    retire: tuple[Member, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.create or self.retire)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a rollout comes to next. `said`: in the history of its deployment."""

    kind: Literal["rolling", "rolled-out", "stalled"]
    rollout: Rollout
    step: Step = Step()
    said: str | None = None


def check(rollout: Rollout) -> None:
    """InvalidInput for what is no number and no percentage, or would let nothing move."""
    surge, unavailable = rollout.surge, rollout.unavailable
    for name, share in (("surge", surge), ("unavailable", unavailable)):
        if _SHARE.fullmatch(share) is None:
            raise InvalidInput(
                f"{name}: {share!r} is neither a number such as 1 nor a percentage such as 25%", code="invalid-rollout"
            )
    if not (_number(surge) or _number(unavailable)):
        raise InvalidInput(
            "surge and unavailable are both 0, so that no task could ever be replaced: allow at least 1 of either",
            code="invalid-rollout",
        )
    if rollout.steady_seconds >= rollout.deadline_seconds:
        raise InvalidInput(
            f"a task had to be ready for {format_duration(rollout.steady_seconds)} where it all stops after"
            f" {format_duration(rollout.deadline_seconds)}: the deadline has to be longer",
            code="invalid-rollout",
        )


def bounds(desired: int, surge: str, unavailable: str) -> tuple[int, int]:
    """How many tasks more than wanted there may be, and how many fewer may be ready; one of them is not 0."""
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
    """What to do now to come from older revisions to this one.

    There are never more than `desired + surge`, those that retire included, and no task that is ready retires where
    that would leave fewer than `desired - unavailable`. While new tasks start, no more are made. `since`: what got
    ready later does not count as that yet.
    """
    found = list(members)
    kept = [member for member in found if not member.retiring]
    room = max(0, desired + surge - len(found))
    old = [member for member in kept if member.revision != revision]
    if not old:
        step = to_scale(desired, kept)
        return replace(step, create=min(step.create, room))
    new = [member for member in kept if member.revision == revision]
    starting = sum(not member.steady(since) for member in new)
    create = 0 if starting else min(room, max(0, desired - len(new)))
    least = desired - unavailable
    broken = max(0, len(kept) - least - starting)
    spare = max(0, sum(member.steady(since) for member in kept) - least)
    retire = [member for member in worst_first(old) if not member.ready][:broken]
    retire += [member for member in worst_first(old) if member.ready][:spare]
    return Step(create, tuple(retire))


def to_scale(desired: int, kept: Sequence[Member]) -> Step:
    """What to do now to come to so many tasks, whatever they were made from."""
    surplus = max(0, len(kept) - desired)
    return Step(max(0, desired - len(kept)), tuple(worst_first(kept)[:surplus]))


def proven(revision: int, kept: Iterable[Member]) -> Member | None:
    """One of those that are ready, of the revision that most of them are of; None where that is this one."""
    ready = [member for member in kept if member.ready]
    numbers = Counter(member.revision for member in ready)
    best = min(numbers, key=lambda number: (-numbers[number], number), default=revision)
    return None if best == revision else next(member for member in ready if member.revision == best)


def is_done(desired: int, revision: int, members: Iterable[Member], since: datetime | None = None) -> bool:
    kept = [member for member in members if not member.retiring]
    return len(kept) == desired and all(member.steady(since) and member.revision == revision for member in kept)


def steady_at(rollout: Rollout, members: Iterable[Member], now: datetime) -> datetime | None:
    """When the next of those that are ready will have been so for long enough."""
    length = timedelta(seconds=rollout.steady_seconds)
    moments = [member.ready_at + length for member in members if member.ready_at is not None and not member.retiring]
    return min((at for at in moments if at > now), default=None)


def worst_first(members: Iterable[Member]) -> list[Member]:
    """Who goes first: what has no node, then what is not ready, the newest before older ones."""
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
) -> Progress | None:
    """What is to be done and noted of a rollout now; None: it waits or rests. `lacks`: why tasks of it wait."""
    if rollout.phase is not Phase.ROLLING:
        return None
    since = now - timedelta(seconds=rollout.steady_seconds)
    ready = sum(member.steady(since) and member.revision == revision and not member.retiring for member in members)
    step = next_step(desired, *bounds(desired, rollout.surge, rollout.unavailable), revision, members, since)
    if is_done(desired, revision, members, since):
        done = replace(rollout, phase=Phase.DONE, ready=ready, progressed_at=now)
        return Progress("rolled-out", done, said=f"Revision {revision} is rolled out")
    if step or ready > rollout.ready:
        return Progress("rolling", replace(rollout, ready=max(ready, rollout.ready), progressed_at=now), step)
    if rollout.due_at is None or now < rollout.due_at:
        return None
    said = (
        f"{ready} of {desired} replicas of revision {revision} are ready, and for"
        f" {format_duration(rollout.deadline_seconds)} nothing got better{f' ({lacks})' if lacks else ''};"
        f" `mooring rollout undo {name}` goes back, `mooring rollout resume {name}` goes on"
    )
    return Progress("stalled", replace(rollout, phase=Phase.STALLED, reason=said), said=said)
