"""Accounting of Slurm, as `sacct --allocations --parsable2` prints it: a header with the names, then a line per job."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from mooring.simulation.inputs.text_files import invalid
from mooring.simulation.inputs.traces.processors import processor_job
from mooring.simulation.jobs import Job

_SEPARATOR = "|"
_REQUIRED = ("JobID", "Submit", "Elapsed", "Timelimit")
_PROCESSORS = ("ReqCPUS", "NCPUS", "AllocCPUS")
"""The first of these columns that is there counts."""
_DURATION = re.compile(r"(?:(?:(\d{1,9})-)?(\d{1,9}):)?(\d{1,9}):(\d\d)(?:\.\d+)?", re.ASCII)
_NO_LIMIT = {"UNLIMITED", "Partition_Limit", ""}


def is_sacct(first_line: str) -> bool:
    """Return whether a file that begins with this line is of this format."""
    return "JobID" in first_line.split(_SEPARATOR)


def read_sacct(lines: Iterable[str], name: str, *, gangs: bool) -> list[Job]:
    """Return the jobs that ran, without their steps; time 0 is the first submission.

    With `gangs` a job is a gang of tasks with a core each; otherwise it is one task.
    """
    numbered = ((number, line.rstrip("\n").split(_SEPARATOR)) for number, line in enumerate(lines, 1))
    _, header = next(numbered, (1, [""]))
    missing = [column for column in _REQUIRED if column not in header]
    processors = next((column for column in _PROCESSORS if column in header), None)
    if missing or processors is None:
        raise invalid(f"{name}: no column {missing[0] if missing else _PROCESSORS[0]}; sacct --format selects columns")
    rows: list[tuple[str, dict[str, str], int]] = []
    for number, fields in numbered:
        where = f"{name}, line {number}"
        if fields == [""]:
            continue
        if len(fields) != len(header):
            raise invalid(f"{where}: {len(fields)} columns; the header has {len(header)}")
        row = dict(zip(header, fields, strict=True))
        # A step has the id of its job, a dot and its own.
        if "." not in row["JobID"]:
            rows.append((where, row, _seconds_of_time(row["Submit"], where)))
    first = min((submitted for _, _, submitted in rows), default=0)
    jobs: list[Job] = []
    for where, row, submitted in rows:
        run, cores = _seconds(row["Elapsed"], where), _whole(row[processors], processors, where)
        if run > 0 and cores > 0:
            jobs.append(
                processor_job(
                    len(jobs),
                    f"job-{row['JobID']}",
                    submitted=submitted - first,
                    run_seconds=run,
                    limit_seconds=_limit(row["Timelimit"], where),
                    processors=cores,
                    user=row.get("User", ""),
                    gangs=gangs,
                    where=where,
                )
            )
    return jobs


def _limit(text: str, where: str) -> int | None:
    """Return the time limit; None without one, and for one of less than a second."""
    return None if text in _NO_LIMIT else _seconds(text, where) or None


def _seconds(text: str, where: str) -> int:
    """Return the seconds of `[days-][hours:]minutes:seconds`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise invalid(f"{where}: {text[:20]!r} is not a duration such as 1-02:03:04")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _seconds_of_time(text: str, where: str) -> int:
    try:
        # Only differences count, so any zone will do.
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise invalid(f"{where}: {text[:30]!r} is not a time such as 2026-01-31T08:30:00") from None


def _whole(text: str, column: str, where: str) -> int:
    if not re.fullmatch(r"\d{1,12}", text, re.ASCII):
        raise invalid(f"{where}: {column} is {text[:20]!r}, not a number")
    return int(text)
