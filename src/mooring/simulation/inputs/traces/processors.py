"""Jobs of logs that request processors: a processor is a core."""

from __future__ import annotations

from mooring.simulation.inputs.text_files import invalid
from mooring.simulation.jobs import Job

_CORE = 1000
_MOST_SECONDS, _MOST_PROCESSORS = 1 << 40, 1 << 30


def processor_job(
    number: int,
    name: str,
    *,
    submitted: int,
    run_seconds: int,
    limit_seconds: int | None,
    processors: int,
    user: str,
    gangs: bool,
    where: str,
) -> Job:
    """Return the job: with `gangs` a gang of tasks with a core each, otherwise one task.

    It runs no longer than its limit, as if it were stopped there. `where` names the line in errors.
    """
    limit = run_seconds if limit_seconds is None else limit_seconds
    if submitted < 0 or max(submitted, run_seconds, limit) > _MOST_SECONDS or processors > _MOST_PROCESSORS:
        raise invalid(f"{where}: a time is negative, or a value is too large")
    return Job(
        number=number,
        name=name,
        submitted=submitted,
        run_seconds=min(run_seconds, limit),
        limit_seconds=limit_seconds,
        request={"cpu": _CORE if gangs else processors * _CORE},
        tasks=processors if gangs else 1,
        user=user,
    )
