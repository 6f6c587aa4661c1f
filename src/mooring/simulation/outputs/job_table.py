"""A row per job: its submission, start, end and wait, and the nodes of its last attempt."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from mooring.model.errors import InvalidInput
from mooring.model.names import without_formula
from mooring.simulation.metrics import slowdown_of
from mooring.simulation.outcomes import JobOutcome

COLUMNS = (
    "job",
    "user",
    "submitted",
    "start",
    "end",
    "wait_seconds",
    "tasks",
    "status",
    "project",
    "pool",
    "priority",
    "first_start",
    "planned_start",
    "bounded_slowdown",
    "attempts",
    "preemptions",
    "nodes",
)
"""Times are seconds since the start of the trace; `start` and `end` are those of the last attempt."""


def write_jobs(path: Path, outcomes: Sequence[JobOutcome]) -> None:
    """Write a CSV file."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(map(_row, outcomes))
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}") from problem


def _row(outcome: JobOutcome) -> tuple[object, ...]:
    job, slowdown = outcome.job, slowdown_of(outcome)
    return (
        without_formula(job.name),
        without_formula(job.user),
        job.submitted,
        outcome.start,
        outcome.end,
        outcome.wait_seconds,
        job.tasks,
        outcome.status.value,
        without_formula(job.project),
        job.pool,
        job.priority,
        outcome.first_start,
        outcome.planned_start,
        None if slowdown is None else round(slowdown, 3),
        len(outcome.attempts),
        outcome.preemptions,
        without_formula(" ".join(sorted(set(outcome.attempts[-1].nodes)))) if outcome.attempts else "",
    )
