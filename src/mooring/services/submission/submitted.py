"""Submissions as placement sees workloads, before they are written."""

from __future__ import annotations

from mooring.clock import now
from mooring.model.resources.task_resources import requests_of
from mooring.model.workloads.dependencies import Dependency
from mooring.model.workloads.workload import Task, Workload, placement_options
from mooring.store.nodes.pools import Pool
from mooring.store.workloads.arrays import deferred_tasks
from mooring.store.workloads.mounts import followed
from mooring.store.workloads.new_workloads import NewWorkload


def as_workload(new: NewWorkload, pool: Pool, needs: tuple[Dependency, ...] = ()) -> Workload:
    """Return a submission as placement would see it once it is written."""
    tasks = tuple(Task(task_id, index) for index, task_id in enumerate(new.task_ids))
    seen = Workload(
        id=new.id,
        name=new.name,
        kind=new.kind,
        pool=pool.name,
        user_id=new.principal.user_id,
        project_id=new.principal.project_id,
        domain_id=new.principal.domain_id,
        runtime=new.template.runtime,
        request=requests_of(new.template),
        tasks=tasks if new.schedule.array is None else deferred_tasks(new.id, 0, new.replicas),
        created_at=now(),
        architecture=new.template.architecture,
        constraints=new.constraints,
        type=new.type,
        access_key=new.principal.access_key,
        private=new.schedule.private,
        starts_at=new.schedule.starts_at,
        is_array=new.schedule.array is not None,
        parallel=None if new.schedule.array is None else new.schedule.array.parallel,
        time_limit_seconds=new.schedule.time_limit_seconds,
        dependencies=needs,
        booking=new.schedule.booking,
        **placement_options(new),
    )
    return followed(seen, new.mounts)
