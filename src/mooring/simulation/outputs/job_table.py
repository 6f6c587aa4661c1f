"""A row per job: its submission, start, end and wait, and the nodes of its last attempt; as CSV or as Parquet."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from mooring.model.errors import InvalidInput
from mooring.model.names import without_formula
from mooring.simulation.metrics import slowdown_of
from mooring.simulation.outcomes import JobOutcome

COLUMNS: Mapping[str, type] = {
    "job": str,
    "user": str,
    "submitted": int,
    "start": int,
    "end": int,
    "wait_seconds": int,
    "tasks": int,
    "status": str,
    "project": str,
    "pool": str,
    "priority": int,
    "first_start": int,
    "planned_start": int,
    "bounded_slowdown": float,
    "attempts": int,
    "preemptions": int,
    "nodes": str,
}
"""Times are seconds since the start of the trace; `start` and `end` are those of the last attempt."""
PARQUET = ".parquet"


def check_path(path: Path) -> None:
    """Raise InvalidInput if the format that the name of the file asks for is not installed."""
    if path.suffix == PARQUET and find_spec("pyarrow") is None:
        raise InvalidInput(
            f"{path}: Parquet needs pyarrow; install mooring[parquet], or write a .csv file", code="missing-dependency"
        )


def write_jobs(path: Path, outcomes: Sequence[JobOutcome]) -> None:
    """Write a Parquet file if the name ends with `.parquet`, a CSV file otherwise."""
    try:
        if path.suffix == PARQUET:
            _write_parquet(path, outcomes)
        else:
            _write_csv(path, outcomes)
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}") from problem


def _write_csv(path: Path, outcomes: Sequence[JobOutcome]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(map(_row, outcomes))


def _write_parquet(path: Path, outcomes: Sequence[JobOutcome]) -> None:
    import pyarrow
    import pyarrow.parquet

    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    rows = [_row(each) for each in outcomes]
    columns = {
        name: pyarrow.array([row[at] for row in rows], types[kind]) for at, (name, kind) in enumerate(COLUMNS.items())
    }
    with path.open("wb") as file:
        pyarrow.parquet.write_table(pyarrow.table(columns), file)


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
