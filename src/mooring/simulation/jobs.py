"""Jobs of a trace, as the simulation submits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from uuid import NAMESPACE_OID, UUID, uuid5

from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.quotas import Scope
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import NO_CONSTRAINTS, NOBODY, OnInsufficient, Task, Workload
from mooring.scheduling.calendar.seconds import time_of

DEFAULT_POOL = "default"
DEFAULT_PRIORITY = 10


@dataclass(frozen=True, slots=True)
class Job:
    """A job with the run time that only the simulation knows, and the time limit that the scheduler plans with."""

    number: int
    """Its position in the trace; unique."""
    name: str
    submitted: int
    """Seconds since the start of the trace."""
    run_seconds: int | None
    """None: it does not end by itself within the trace."""
    limit_seconds: int | None
    request: Amounts
    """Of one task."""
    tasks: int = 1
    """More than one task is a gang: all of them start at the same time."""
    user: str = ""
    project: str = ""
    domain: str = ""
    pool: str = DEFAULT_POOL
    priority: int = DEFAULT_PRIORITY
    preemptible: bool = True
    constraints: Constraints = NO_CONSTRAINTS
    deadline: int | None = None
    """The time by which it should have ended, in seconds since the start of the trace."""
    booking: str = ""
    """The name of the booking in which it runs."""
    workload: Workload | None = None
    """The workload of a server that it stands for, with the tasks that are pending there."""

    def tenant(self, scope: Scope) -> str:
        """Return the name of its tenant at a level."""
        return {Scope.USER: self.user, Scope.PROJECT: self.project, Scope.DOMAIN: self.domain}.get(scope, "")


def workload_of(
    job: Job,
    *,
    attempt: int = 1,
    expected_seconds: int | None,
    on_insufficient: OnInsufficient = OnInsufficient.WAIT,
    bookings: Mapping[str, UUID] | None = None,
) -> Workload:
    """Return the job as the scheduler sees it. `expected_seconds`: the time limit that it plans with."""
    identity = job.number + 1
    first_task = (identity << 64) + (attempt << 32)
    return Workload(
        id=UUID(int=identity),
        name=job.name,
        pool=job.pool,
        priority=job.priority,
        request=job.request,
        tasks=tuple(Task(UUID(int=first_task + index), index, attempt) for index in range(job.tasks)),
        gang=job.tasks > 1,
        user_id=tenant_id(Scope.USER, job.user),
        project_id=tenant_id(Scope.PROJECT, job.project),
        domain_id=tenant_id(Scope.DOMAIN, job.domain),
        created_at=time_of(job.submitted),
        constraints=job.constraints,
        on_insufficient=on_insufficient,
        placed_before=attempt > 1,
        time_limit_seconds=expected_seconds,
        booking=(bookings or {}).get(job.booking),
    )


@lru_cache(maxsize=1 << 16)
def tenant_id(scope: Scope, name: str) -> UUID:
    return uuid5(NAMESPACE_OID, f"{scope.value}:{name}") if name else NOBODY
