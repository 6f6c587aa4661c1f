"""Jobs of a trace, as the simulation submits them."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import NAMESPACE_OID, UUID, uuid5

from mooring.model.resources.slots import Amounts
from mooring.model.workloads.workload import NOBODY, Task, Workload
from mooring.scheduling.calendar.seconds import time_of


@dataclass(frozen=True, slots=True)
class Job:
    """A job with the run time that only the simulation knows, and the time limit that the scheduler plans with."""

    number: int
    """Its position in the trace; unique."""
    name: str
    submitted: int
    """Seconds since the start of the trace."""
    run_seconds: int
    limit_seconds: int | None
    request: Amounts
    """Of one task."""
    tasks: int = 1
    """More than one task is a gang: all of them start at the same time."""
    user: str = ""


def workload_of(job: Job) -> Workload:
    identity = job.number + 1
    return Workload(
        id=UUID(int=identity),
        name=job.name,
        request=job.request,
        tasks=tuple(Task(UUID(int=(identity << 32) + index), index) for index in range(job.tasks)),
        gang=job.tasks > 1,
        user_id=uuid5(NAMESPACE_OID, f"user:{job.user}") if job.user else NOBODY,
        created_at=time_of(job.submitted),
        time_limit_seconds=job.limit_seconds,
    )
