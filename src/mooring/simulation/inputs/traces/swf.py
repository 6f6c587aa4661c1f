"""The Standard Workload Format (SWF): 18 columns per job, -1 for an unknown value, `;` before a comment."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.simulation.inputs.text_files import invalid
from mooring.simulation.inputs.traces.processors import processor_job
from mooring.simulation.jobs import Job

_COLUMNS = 18
_NUMBER, _SUBMITTED, _RUN, _USED, _REQUESTED, _LIMIT, _USER = 0, 1, 3, 4, 7, 8, 11


def read_swf(lines: Iterable[str], name: str, *, gangs: bool) -> list[Job]:
    """Return the jobs that have a run time, a time limit and processors.

    With `gangs` a job is a gang of tasks with a core each; otherwise it is one task.
    """
    jobs: list[Job] = []
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields or fields[0].startswith(";"):
            continue
        if len(fields) != _COLUMNS:
            raise invalid(f"{name}, line {number}: {len(fields)} columns; SWF has {_COLUMNS}")
        submitted, run, used, requested, limit = (
            _whole(fields[at], at, f"{name}, line {number}") for at in (_SUBMITTED, _RUN, _USED, _REQUESTED, _LIMIT)
        )
        processors = requested if requested > 0 else used
        if run <= 0 or limit <= 0 or processors <= 0:
            continue
        jobs.append(
            processor_job(
                len(jobs),
                f"job-{fields[_NUMBER]}",
                submitted=submitted,
                run_seconds=run,
                limit_seconds=limit,
                processors=processors,
                user=fields[_USER] if fields[_USER] != "-1" else "",
                gangs=gangs,
                where=f"{name}, line {number}",
            )
        )
    return jobs


def _whole(text: str, at: int, where: str) -> int:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        raise invalid(f"{where}: column {at + 1} is {text[:20]!r}, not a number") from None
