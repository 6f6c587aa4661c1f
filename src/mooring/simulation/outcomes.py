"""Outcomes of a simulation: the attempts of each job, its final status, and samples of the GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from mooring.simulation.jobs import Job


class Status(StrEnum):
    ENDED = "ended"
    RUNNING = "running"
    """It runs when the simulation ends."""
    WAITING = "waiting"
    """It waits when the simulation ends."""
    EXPIRED = "expired"
    """It waited longer than its pool allows, or missed its booking."""
    IMPOSSIBLE = "impossible"
    """It found no capacity at once, and its pool fails such work."""
    REFUSED = "refused"
    """Its time limit exceeds the maximum of its pool."""
    PREEMPTED = "preempted"
    """It was terminated for other work, or at the end of its booking."""


class Cause(StrEnum):
    """The cause of the end of an attempt."""

    ENDED = "ended"
    PREEMPTED = "preempted"
    NODE_LOST = "node-lost"
    BOOKING_OVER = "booking-over"
    MOVED = "moved"
    """Defragmentation moved it to another node, where it started again."""
    NOT_ENDED = "not-ended"


class Attempt(NamedTuple):
    start: int
    end: int
    """For an attempt that has not ended: the end of the simulation."""
    nodes: tuple[str, ...]
    """One name per task."""
    cause: Cause


@dataclass(slots=True)
class JobOutcome:
    job: Job
    status: Status = Status.WAITING
    attempts: list[Attempt] = field(default_factory=list)
    planned_start: int | None = None
    """The first planned start, if it got one while it waited."""
    limit_seconds: int | None = None
    """Its time limit by the rules of its pool."""

    @property
    def first_start(self) -> int | None:
        return self.attempts[0].start if self.attempts else None

    @property
    def start(self) -> int | None:
        """The start of its last attempt; None if it never started."""
        return self.attempts[-1].start if self.attempts else None

    @property
    def end(self) -> int | None:
        return self.attempts[-1].end if self.status is Status.ENDED else None

    @property
    def wait_seconds(self) -> int | None:
        """The time from its submission to its first start."""
        start = self.first_start
        return None if start is None else start - self.job.submitted

    @property
    def preemptions(self) -> int:
        return sum(attempt.cause is Cause.PREEMPTED for attempt in self.attempts)

    @property
    def node_losses(self) -> int:
        return sum(attempt.cause is Cause.NODE_LOST for attempt in self.attempts)

    @property
    def moves(self) -> int:
        return sum(attempt.cause is Cause.MOVED for attempt in self.attempts)


class Placed(NamedTuple):
    """A decision that started tasks of a job."""

    time: int
    number: int
    """Of the job."""
    nodes: tuple[str, ...]
    """One name per task."""
    step: int = 0
    """The number of the step in a replayed history."""


class GpuSample(NamedTuple):
    """GPU capacity of all nodes at a time, in thousandths of a GPU."""

    time: int
    capacity: int
    unallocated: int
    fragmented: int
    """The unallocated capacity that a request like those submitted recently cannot use, in expectation."""


class BookingOutcome(NamedTuple):
    name: str
    confirmed: bool
    start: int
    end: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a simulation: the outcomes in the order of the jobs."""

    outcomes: Sequence[JobOutcome]
    start: int
    """The first submission."""
    end: int
    """The time of the last event, or the end given in the scenario."""
    gpus: Sequence[GpuSample] = ()
    bookings: Sequence[BookingOutcome] = ()
    placed: Sequence[Placed] = ()
    """Every placement in the order of the decisions, where the simulation starts from the state of a server."""
