"""What-if questions: why a workload waits or is where it is, and where a request would go. Nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import UUID

from mooring.clock import now
from mooring.intake import secrets
from mooring.intake.admission import open_gate
from mooring.intake.batch import name_taken
from mooring.intake.circumstances import Surroundings, of_project
from mooring.intake.dependencies import resolved
from mooring.intake.room import left_of, room_in
from mooring.intake.submitted import as_workload
from mooring.intake.timeline import timeline_view
from mooring.intake.translation import translate
from mooring.mirror.mirror import Mirror
from mooring.mirror.schedulers import Schedulers
from mooring.mirror.validators import installed_validators
from mooring.model.access import not_there
from mooring.model.decisions import SCORE_ONE
from mooring.model.devices import by_slot
from mooring.model.errors import NotFound
from mooring.model.tenants import Principal
from mooring.model.workloads import Workload
from mooring.scheduling.admission import Admission
from mooring.scheduling.explanation import Explanation as Explained
from mooring.scheduling.plugins import NO_FACTORS
from mooring.scheduling.profiles import Registry
from mooring.scheduling.scheduler import Scheduler
from mooring.store import dependencies, nodes, pool_access, pools, workloads
from mooring.store.engine import Database
from mooring.store.pools import Pool
from mooring.store.views import workloads as views
from mooring.store.views.placed import placed
from mooring.store.views.workloads import TaskRow, WorkloadRow, not_before
from mooring.wire.accounting import Room
from mooring.wire.api import WorkloadRequest
from mooring.wire.explanation import Explanation, TaskPlace
from mooring.wire.timeline import TimelineView

Answered = TypeVar("Answered")

_IDLE_SECONDS = 300.0
"""After this long without a question everything is read anew: the feed may have been purged meanwhile."""


class Questions:
    """Answers from a mirror of its own, one question at a time and in a thread, so that nobody waits for it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._surroundings = Surroundings(database)
        self._registry = Registry()
        self._registry.discover()
        self._validators = installed_validators()
        self._one_at_a_time = asyncio.Lock()
        self._mirror: Mirror | None = None
        self._schedulers: Schedulers | None = None
        self._followed_at = 0.0

    async def explain(self, workload_id: UUID) -> Explanation:
        """Of what waits: why. Of what is placed: how its nodes compare with the others by now."""
        async with self._one_at_a_time:
            mirror = await self._current()
            async with self._database.read() as connection:
                row = await views.by_id(connection, workload_id)
                if row is None:
                    raise NotFound("the workload was purged meanwhile")
                tasks = [task for task in await views.tasks_of(connection, workload_id) if task.current]
                there = await placed(connection, workload_id)
                pool = await pools.by_name(connection, row.pool)
            assert pool is not None
            scheduler = self._scheduler(pool)
            waiting, turn = mirror.queue.get(workload_id), Turn()
            if waiting is not None:
                admission = self._admission(mirror)
                explained = await self._ask(partial(scheduler.explain, waiting, now(), admission=admission))
                factors = mirror.factors.get(pool.name, NO_FACTORS)
                queue = list(mirror.queue.values())
                ahead = await self._ask(partial(scheduler.ahead_of, waiting, queue, now(), factors))
                estimate = None
                if explained.reason is None or explained.reason.cure == "release":
                    estimate = await self._ask(partial(scheduler.estimate, waiting, ahead, now()))
                turn = Turn(len(ahead), row.planned_start_at, estimate, not_before(row, now()))
            elif there is not None:
                explained = await self._ask(partial(scheduler.explain_placed, there.workload, devices=there.devices))
            else:
                return _ended(row, tasks)
        return _shown(row, tasks, explained, turn)

    async def dry_run(self, principal: Principal, request: WorkloadRequest) -> Explanation:
        """What would become of a request: it is checked as a submission is, and placed on a trial."""
        async with self._one_at_a_time:
            mirror = await self._current()
            circumstances = of_project(
                await self._surroundings.of(principal, [request], mere_question=True), request.project
            )
            new, pool = translate(request, circumstances)
            new = resolved(new, request.dependencies, circumstances.known)
            async with self._database.read() as connection:
                taken = await workloads.names_in_use(connection, [new])
                if (principal.user_id, new.name) in taken:
                    raise name_taken(new)
                gate = await open_gate(connection, [new], self._validators, now())
                untold = await secrets.refusals(connection, [(new.id, new.principal.project_id, new.template)])
                if (refused := untold.get(new.id) or await gate.refuses(new)) is not None:
                    raise refused
                workload = as_workload(new, pool, await dependencies.as_they_stand(connection, new.terms.dependencies))
                await mirror.tenancy.meet(connection, [workload], now())
            scheduler = self._scheduler(pool)
            explained = await self._ask(partial(scheduler.explain, workload, now(), admission=self._admission(mirror)))
        return _tried(workload, pool, explained)

    async def free(self, principal: Principal, pool: str | None) -> Room:
        """What would start now, in each pool or in one."""
        async with self._database.read() as connection:
            known, grants = await pools.all_pools(connection), await pool_access.grants(connection)
            asked = [p for p in known if pool in (None, p.name) and pool_access.may_use(p, principal, grants)]
            if not asked and pool is not None:
                raise not_there(f"pool {pool!r} that you may use")
            there = await nodes.load(connection)
            left = await left_of(connection, principal, now())
        rooms = [room_in(found.name, found.policy, there, principal, left) for found in asked]
        return Room(pools=rooms, quotas=left.shown())

    async def timeline(self, pool: str | None, *, hours: int, steps: int, by_node: bool) -> TimelineView:
        """What runs, is booked, planned and free in the hours ahead, of each pool or one, or of its nodes."""
        async with self._one_at_a_time:
            mirror = await self._current()
            if pool is not None and pool not in mirror.pools:
                raise not_there(f"pool {pool!r}")
            names = sorted(mirror.pools) if pool is None else [pool]
            return await self._ask(partial(timeline_view, mirror, names, now(), hours, steps, by_node=by_node))

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

    def _admission(self, mirror: Mirror) -> Admission:
        policies = {name: pool.policy for name, pool in mirror.pools.items()}
        return mirror.tenancy.admission(mirror.queue.values(), policies, self._validators, now())

    def _scheduler(self, pool: Pool) -> Scheduler:
        assert self._schedulers is not None
        return self._schedulers.of(pool)

    async def _ask(self, question: Callable[[], Answered]) -> Answered:
        try:
            return await asyncio.to_thread(question)
        except asyncio.CancelledError:
            # The thread goes on with these columns, so they are left to it.
            self._mirror = None
            raise


class Turn(NamedTuple):
    """When it is the turn of what waits, by the names in an explanation."""

    ahead: int | None = None
    planned_start: datetime | None = None
    estimated_start: datetime | None = None
    not_before: datetime | None = None


def _shown(row: WorkloadRow, tasks: Sequence[TaskRow], explained: Explained, turn: Turn) -> Explanation:
    known = {"id": row.id, "name": row.name, "status": row.status, "simulated": row.simulated, **turn._asdict()}
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
