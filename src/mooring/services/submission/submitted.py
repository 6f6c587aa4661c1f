"""A submission before it is written, as the core sees workloads."""

from __future__ import annotations

from mooring.clock import now
from mooring.model.dependencies import Dependency
from mooring.model.resources import requests_of
from mooring.model.workloads import Task, Workload
from mooring.store.mounts import followed
from mooring.store.pools import Pool
from mooring.store.workloads import NewWorkload


def as_workload(new: NewWorkload, pool: Pool, needs: tuple[Dependency, ...] = ()) -> Workload:
    """A submission as placement would see it once it is written."""
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
        tasks=tuple(Task(task_id, index) for index, task_id in enumerate(new.task_ids)),
        created_at=now(),
        priority=new.priority,
        architecture=new.template.architecture,
        region=new.region,
        gang=new.gang,
        min_tasks=new.min_tasks,
        single_node=new.single_node,
        pack=new.pack,
        max_per_node=new.max_per_node,
        spread=new.spread,
        on_insufficient=new.on_insufficient,
        constraints=new.constraints,
        preempts=new.preempts,
        type=new.type,
        access_key=new.principal.access_key,
        private=new.terms.private,
        starts_at=new.terms.starts_at,
        parallel=None if new.terms.array is None else new.terms.array.parallel,
        time_limit_seconds=new.terms.time_limit_seconds,
        dependencies=needs,
        booking=new.terms.booking,
    )
    return followed(seen, new.mounts)
