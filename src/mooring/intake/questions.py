"""What-if questions: why a workload waits or is where it is, and where a request would go. Nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from mooring.clock import now
from mooring.intake.batch import name_taken
from mooring.intake.circumstances import Surroundings, of_project
from mooring.intake.dependencies import resolved
from mooring.intake.room import left_of, room_in
from mooring.intake.translation import translate
from mooring.mirror.mirror import Mirror
from mooring.mirror.schedulers import Schedulers
from mooring.model.decisions import SCORE_ONE
from mooring.model.dependencies import Dependency
from mooring.model.devices import by_slot
from mooring.model.errors import NotFound
from mooring.model.tenants import Principal
from mooring.model.workloads import Task, Workload
from mooring.scheduling.explanation import Explanation as Explained
from mooring.scheduling.profiles import Registry
from mooring.scheduling.scheduler import Scheduler
from mooring.store import dependencies, nodes, pools, workloads
from mooring.store.engine import Database
from mooring.store.pools import Pool
from mooring.store.views import workloads as views
from mooring.store.views.placed import placed
from mooring.store.views.workloads import TaskRow, WorkloadRow
from mooring.store.workloads import NewWorkload
from mooring.wire.accounting import Room
from mooring.wire.api import WorkloadRequest
from mooring.wire.explanation import Explanation, TaskPlace

_IDLE_SECONDS = 300.0
"""After this long without a question everything is read anew: the feed may have been purged meanwhile."""


class Questions:
    """Answers from a mirror of its own, one question at a time and in a thread, so that nobody waits for it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._surroundings = Surroundings(database)
        self._registry = Registry()
        self._registry.discover()
        self._one_at_a_time = asyncio.Lock()
        self._mirror: Mirror | None = None
        self._schedulers: Schedulers | None = None
        self._followed_at = 0.0

    async def explain(self, workload_id: UUID) -> Explanation:
        """Of what waits: why. Of what is placed: how its nodes compare with the others by now."""
        async with self._one_at_a_time:
            mirror = await self._current()
            async with self._database.read() as connection:
                row = await views.by_id(connection, workload_id, user_id=None)
                if row is None:
                    raise NotFound("the workload was purged meanwhile")
                tasks = [task for task in await views.tasks_of(connection, workload_id) if task.current]
                there = await placed(connection, workload_id)
                pool = await pools.by_name(connection, row.pool)
            assert pool is not None
            scheduler = self._scheduler(pool)
            waiting = mirror.queue.get(workload_id)
            if waiting is not None:
                explained = await self._ask(partial(scheduler.explain, waiting, now()))
            elif there is not None:
                explained = await self._ask(partial(scheduler.explain_placed, there.workload, devices=there.devices))
            else:
                return _ended(row, tasks)
        return _shown(row, tasks, explained)

    async def dry_run(self, principal: Principal, request: WorkloadRequest) -> Explanation:
        """What would become of a request: it is checked as a submission is, and placed on a trial."""
        async with self._one_at_a_time:
            await self._current()
            circumstances = of_project(await self._surroundings.of(principal, [request]), request.project)
            new, pool = translate(request, circumstances)
            new = resolved(new, request.dependencies, circumstances.known)
            async with self._database.read() as connection:
                taken = await workloads.names_in_use(connection, [new])
                needs = await dependencies.as_they_stand(connection, new.terms.dependencies)
            if (principal.user_id, new.name) in taken:
                raise name_taken(new)
            workload = _as_workload(new, pool, needs)
            scheduler = self._scheduler(pool)
            explained = await self._ask(partial(scheduler.explain, workload, now()))
        return _tried(workload, pool, explained)

    async def free(self, principal: Principal, pool: str | None) -> Room:
        """What would start now, in each pool or in one."""
        async with self._database.read() as connection:
            known = [found for found in await pools.all_pools(connection) if pool in (None, found.name)]
            if not known and pool is not None:
                raise NotFound(f"there is no pool {pool!r}")
            there = await nodes.load(connection)
            left = await left_of(connection, principal, now())
        rooms = [room_in(found.name, found.policy, there, principal, left) for found in known]
        return Room(pools=rooms, quotas=left.shown())

    async def _current(self) -> Mirror:
        time = asyncio.get_running_loop().time()
        if self._mirror is None or time - self._followed_at > _IDLE_SECONDS:
            # Kept only when it is complete, so that a read that fails leaves no half of a mirror.
            mirror = Mirror(self._database)
            await mirror.load()
            self._mirror = mirror
            self._schedulers = Schedulers(mirror, self._registry, compiled=False)
        await self._mirror.follow()
        self._followed_at = time
        return self._mirror

    def _scheduler(self, pool: Pool) -> Scheduler:
        assert self._schedulers is not None
        return self._schedulers.of(pool)

    async def _ask(self, question: Callable[[], Explained]) -> Explained:
        try:
            return await asyncio.to_thread(question)
        except asyncio.CancelledError:
            # The thread goes on with these columns, so they are left to it.
            self._mirror = None
            raise


def _as_workload(new: NewWorkload, pool: Pool, needs: tuple[Dependency, ...]) -> Workload:
    """A submission as placement would see it once it is written."""
    return Workload(
        id=new.id,
        name=new.name,
        kind=new.kind,
        pool=pool.name,
        user_id=new.principal.user_id,
        project_id=new.principal.project_id,
        domain_id=new.principal.domain_id,
        runtime=new.template.runtime,
        request=new.template.request,
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
    )


def _shown(row: WorkloadRow, tasks: Sequence[TaskRow], explained: Explained) -> Explanation:
    known = {"id": row.id, "name": row.name, "status": row.status, "simulated": row.simulated}
    return Explanation.model_validate({**explained.as_dict(), **known, "tasks": [_place(task) for task in tasks]})


def _tried(workload: Workload, pool: Pool, explained: Explained) -> Explanation:
    places = {placement.task_id: placement for placement in explained.placements}
    tasks = [
        TaskPlace(
            index=task.index,
            node=place.node_name if (place := places.get(task.id)) else None,
            status="PLACED" if place else "PENDING",
            score=place.score / SCORE_ONE if place else None,
            ports=list(place.ports) if place else [],
            devices=by_slot(place.devices) if place else {},
        )
        for task in workload.tasks
    ]
    known = {"id": None, "name": workload.name, "status": None, "simulated": pool.simulated}
    return Explanation.model_validate({**explained.as_dict(), **known, "tasks": tasks})


def _ended(row: WorkloadRow, tasks: Sequence[TaskRow]) -> Explanation:
    """Nothing of it waits or is on a node: what is left to say is why it is over."""
    return Explanation(
        id=row.id,
        name=row.name,
        status=row.status,
        pool=row.pool,
        simulated=row.simulated,
        outcome="ended",
        summary=f"it is {row.status.lower()}",
        reason=None if row.reason is None else dict(row.reason),
        nodes=0,
        candidates=0,
        removed=[],
        weights={},
        winner=None,
        runner_up=None,
        nearest_misses=[],
        placed_on=[],
        tasks=[_place(task) for task in tasks],
    )


def _place(task: TaskRow) -> TaskPlace:
    score = None if task.score is None else task.score / SCORE_ONE
    devices = {slot: list(shares) for slot, shares in (task.devices or {}).items()}
    return TaskPlace(index=task.task_index, node=task.node_name, status=task.status, score=score, devices=devices)
