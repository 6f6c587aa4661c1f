"""Run times that the scheduler plans with: the seam for predictions."""

from __future__ import annotations

from typing import Protocol

from mooring.simulation.jobs import Job


class Estimates(Protocol):
    def expected_seconds(self, job: Job, limit_seconds: int | None) -> int | None:
        """Return the run time to plan a submitted job with; None: indefinitely. The job still ends at its limit."""
        ...

    def ended(self, job: Job, run_seconds: int) -> None:
        """Learn from a job that ended by itself or at its time limit."""
        ...


class TimeLimits:
    """Plans with the time limits, as a pool does by default."""

    def expected_seconds(self, job: Job, limit_seconds: int | None) -> int | None:
        return limit_seconds

    def ended(self, job: Job, run_seconds: int) -> None:
        """Learn nothing."""


class ActualRunTimes:
    """Plans with the run times of the trace, which no scheduler knows: a bound for every prediction."""

    def expected_seconds(self, job: Job, limit_seconds: int | None) -> int | None:
        run = job.run_seconds
        if run is None or limit_seconds is None:
            return limit_seconds if run is None else run
        return min(run, limit_seconds)

    def ended(self, job: Job, run_seconds: int) -> None:
        """Learn nothing."""
