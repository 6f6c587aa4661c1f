"""Read-only queries: explanations, dry runs, free capacity, the timeline. They change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import NamedTuple, TypeVar
from uuid import UUID

from mooring.clock import now
from mooring.concurrency.workers import off_loop
from mooring.mirror.mirror import Mirror
from mooring.mirror.schedulers import Schedulers
from mooring.mirror.validators import installed_validators
from mooring.model.decisions import SCORE_ONE
from mooring.model.errors import NotFound
from mooring.model.resources.devices import by_slot
from mooring.model.tenancy.access import not_there
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.needed_change import needed_change
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import Admission
from mooring.scheduling.explain.explanation import Explanation as Explained
from mooring.scheduling.plugins.profiles import Registry
from mooring.scheduling.plugins.protocols import NO_FACTORS
from mooring.scheduling.scheduler import MOST_AHEAD, Scheduler
from mooring.services.queries.defragmentation import DefragmentationPlanner, PlanInput, copied
from mooring.services.queries.drain_preview import drain_preview
from mooring.services.queries.free_capacity import free_in_pool, quota_headroom
from mooring.services.queries.timeline import check_size, timeline_view
from mooring.services.submission import secrets
from mooring.services.submission.admission import open_gate
from mooring.services.submission.batch import name_taken
from mooring.services.submission.context_loader import ContextLoader
from mooring.services.submission.dependencies import resolved
from mooring.services.submission.pending_tasks import PendingTasks
from mooring.services.submission.submission_context import of_project
from mooring.services.submission.submitted import as_workload
from mooring.services.submission.translation import translate
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import nodes, placed_tasks, pool_access, pools, running_tasks, tasks_on_node
from mooring.store.nodes.pools import Pool
from mooring.store.views import workloads as views
from mooring.store.views.placed_workloads import placed
from mooring.store.views.workloads import TaskRow, WorkloadRow, not_before
from mooring.store.workloads import dependencies, new_workloads
from mooring.wire.cluster.defragmentation import DefragmentationPlan, DefragmentationRequest
from mooring.wire.cluster.nodes import DrainPreview
from mooring.wire.cluster.timeline import TimelineView
from mooring.wire.tenancy.accounting import FreeCapacity
from mooring.wire.workloads.explanation import Explanation, TaskPlacement
from mooring.wire.workloads.workloads import WorkloadRequest

Answered = TypeVar("Answered")
Read = TypeVar("Read")

_MAX_TASKS = 1000
"""Tasks listed in the result of a dry run, as for a workload that exists."""
_IDLE_SECONDS = 300.0
"""After this long without a query the mirror is loaded again: the event feed may have been purged."""


class Queries:
    """Answers queries from a mirror of its own, one at a time and in a thread, so that the event loop never waits."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._context_loader = ContextLoader(database)
        self._registry = Registry()
        self._registry.discover()
        self._validators = installed_validators()
        self._one_at_a_time = asyncio.Lock()
        self._defragmentation = DefragmentationPlanner()
        self._mirror: Mirror | None = None
        self._schedulers: Schedulers | None = None
        self._followed_at = 0.0

    async def explain(self, workload_id: UUID) -> Explanation:
        """Explain why a workload is pending, or how the nodes of a placed one compare with the others now."""
        async with self._one_at_a_time:
            mirror = await self._current()
            async with self._database.read() as connection:
                row = await views.by_id(connection, workload_id)
                if row is None:
                    raise NotFound("the workload has been purged")
                tasks = [task for task in await views.tasks_of(connection, row) if task.current]
                there = await placed(connection, workload_id)
                pool = await pools.by_name(connection, row.pool)
            assert pool is not None
            scheduler = self._scheduler(pool)
            waiting, position = mirror.queue.get(workload_id), QueuePosition()
            if waiting is not None:
                admission = self._admission(mirror)
                explained = await self._run(partial(scheduler.explain, waiting, now(), admission=admission))
                in_order, ahead = await self._ahead(mirror, scheduler, pool.name, waiting, admission)
                unless = needed_change(None if explained.reason is None else explained.reason.as_dict())
                position = QueuePosition(
                    len(ahead),
                    row.planned_start_at if unless is None else None,
                    not_before=not_before(row, now()),
                    unless=unless,
                    first_start=None if row.placed_at is not None else row.first_start_at,
                    start_moves=0 if row.placed_at is not None else row.start_moves,
                )
                if explained.reason is None or explained.reason.cure == "release":
                    if len(ahead) <= MOST_AHEAD:
                        estimate = await self._run(partial(scheduler.estimate, waiting, in_order, now()))
                        position = position._replace(estimated_start=estimate)
                    elif row.estimated_start_at is not None and row.estimated_start_at > now():
                        position = position._replace(estimated_start=row.estimated_start_at, estimate_is_stored=True)
            elif there is not None:
                explained = await self._run(partial(scheduler.explain_placed, there.workload, devices=there.devices))
            else:
                return _ended(row, tasks)
        return _shown(row, tasks, explained, position)

    async def dry_run(self, principal: Principal, request: WorkloadRequest) -> Explanation:
        """Check a request as a submission is checked, and place it on a trial."""
        async with self._one_at_a_time:
            mirror = await self._current()
            context = of_project(await self._context_loader.load(principal, [request], read_only=True), request.project)
            new, pool = await off_loop(translate, request, context)
            new = resolved(new, request.dependencies, context.known)
            async with self._database.read() as connection:
                _, taken = await new_workloads.read_known(connection, (), [new])
                if (principal.user_id, new.name) in taken:
                    raise name_taken(new)
                gate = await open_gate(connection, [new], self._validators, now())
                await PendingTasks().check(connection, new.principal, new.replicas)
                secret_problems = await secrets.refusals(connection, [(new.id, new.principal.project_id, new.template)])
                if (refused := secret_problems.get(new.id) or await gate.refuses(new)) is not None:
                    raise refused
                workload = as_workload(
                    new, pool, await dependencies.with_current_status(connection, new.schedule.dependencies)
                )
                await mirror.tenancy.read_new_tenants(connection, [workload], now())
            scheduler, admission, position = self._scheduler(pool), self._admission(mirror), QueuePosition()
            explained = await self._run(partial(scheduler.explain, workload, now(), admission=admission))
            if explained.reason is not None and explained.reason.cure == "release":
                in_order, ahead = await self._ahead(mirror, scheduler, pool.name, workload, admission)
                position = QueuePosition(len(ahead))
                if len(ahead) <= MOST_AHEAD:
                    estimate = await self._run(partial(scheduler.estimate, workload, in_order, now()))
                    position = position._replace(estimated_start=estimate)
        return await off_loop(_tried, workload, pool, explained, position)

    async def _ahead(
        self, mirror: Mirror, scheduler: Scheduler, pool: str, workload: Workload, admission: Admission
    ) -> tuple[Sequence[Workload], list[Workload]]:
        """Return the pool's queue in order, with this workload, and the part ahead of it."""
        queue = list({**mirror.queue, workload.id: workload}.values())
        factors = mirror.factors.get(pool, NO_FACTORS)
        order = partial(scheduler.queue_order, pool, queue, now(), admission=admission, factors=factors)
        in_order = await self._run(order)
        return in_order, list(takewhile(lambda each: each.id != workload.id, in_order))

    async def free(self, principal: Principal, pool: str | None) -> FreeCapacity:
        """Return the capacity for requests that would start now, in each pool or in one."""
        async with self._database.read() as connection:
            known, grants = await pools.all_pools(connection), await pool_access.grants(connection)
            asked = [p for p in known if pool in (None, p.name) and pool_access.may_use(p, principal, grants)]
            if not asked and pool is not None:
                raise not_there(f"pool {pool!r} that you may use")
            there = await nodes.load(connection)
            left = await quota_headroom(connection, principal, now())
        free = [free_in_pool(found.name, found.policy, there, principal, left) for found in asked]
        return FreeCapacity(pools=free, quotas=left.shown())

    async def defragmentation(self, pool: str, request: DefragmentationRequest) -> DefragmentationPlan:
        """Plan moves in a pool that make capacity usable. Nothing moves."""
        async with self._one_at_a_time:
            mirror = await self._current()
            if pool not in mirror.pools:
                raise not_there(f"pool {pool!r}")
            async with self._database.read() as connection:
                placed = await placed_tasks.of_pool(
                    connection,
                    pool,
                    now(),
                    max_lost_seconds=request.max_lost_seconds,
                    interactive=request.interactive,
                )
                budgets = (await running_tasks.budgets(connection)).allowed
            scheduler, factors = self._scheduler(mirror.pools[pool]), mirror.factors.get(pool, NO_FACTORS)
            admission = self._admission(mirror)
            pending = await self._run(
                partial(
                    scheduler.queue_order,
                    pool,
                    list(mirror.queue.values()),
                    now(),
                    admission=admission,
                    factors=factors,
                )
            )
            # Moves help no work that waits for something else than capacity.
            pending = await self._run(partial(admission.within_limits, pending))
            cluster = await self._run(partial(copied, mirror.cluster))
        state = PlanInput(cluster, scheduler.profile, placed, pending, budgets)
        return await self._defragmentation.plan(pool, request, state)

    async def drain_preview(self, node: str, *, timeout: bool) -> DrainPreview:
        """Show where the tasks of a node would go if it were drained now. `timeout`: the remaining ones are ended."""
        async with self._one_at_a_time:
            mirror = await self._current()
            async with self._database.read() as connection:
                found = await tasks_on_node.pool_of(connection, node)
                if found is None or found.pool not in mirror.pools:
                    raise not_there(f"node {node!r}")
                tasks = await tasks_on_node.tasks_on(connection, found.id)
                placed = await placed_tasks.of_pool(
                    connection, found.pool, now(), max_lost_seconds=0, interactive=False
                )
            cluster = await self._run(partial(copied, mirror.cluster))
            profile = self._scheduler(mirror.pools[found.pool]).profile
        return await off_loop(partial(drain_preview, node, found.id, tasks, placed, cluster, profile, timeout=timeout))

    async def timeline(self, pool: str | None, *, hours: int, steps: int, by_node: bool) -> TimelineView:
        """Return the running, booked, planned and free amounts of the hours ahead, by pool or by node."""
        async with self._one_at_a_time:
            mirror = await self._current()
            if pool is not None and pool not in mirror.pools:
                raise not_there(f"pool {pool!r}")
            names = sorted(mirror.pools) if pool is None else [pool]
            if by_node:
                check_size(sum(len(mirror.cluster.rows_of_pool(name)) for name in names), steps)
            return await self._run(partial(timeline_view, mirror, names, now(), hours, steps, by_node=by_node))

    async def with_mirror(
        self, read: Callable[[Connection, Mirror], Awaitable[Read]], then: Callable[[Read], Answered]
    ) -> Answered:
        """Read the store in addition to the mirror, and derive an answer in a thread before the mirror moves."""
        async with self._one_at_a_time:
            mirror = await self._current()
            async with self._database.read() as connection:
                found = await read(connection, mirror)
            return await self._run(partial(then, found))

    async def _current(self) -> Mirror:
        time = asyncio.get_running_loop().time()
        if self._mirror is None or time - self._followed_at > _IDLE_SECONDS:
            # Assigned only when complete, so that a failed read leaves no half-loaded mirror.
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

    async def _run(self, query: Callable[[], Answered]) -> Answered:
        try:
            return await asyncio.to_thread(query)
        except asyncio.CancelledError:
            # The thread continues to use these columns, so it keeps them; the next query loads a new mirror.
            self._mirror = None
            raise


class QueuePosition(NamedTuple):
    """The queue position of a pending workload and its expected start, by the field names of an explanation."""

    ahead: int | None = None
    planned_start: datetime | None = None
    estimated_start: datetime | None = None
    not_before: datetime | None = None
    estimate_is_stored: bool = False
    first_start: datetime | None = None
    start_moves: int = 0
    unless: str | None = None


def _shown(row: WorkloadRow, tasks: Sequence[TaskRow], explained: Explained, position: QueuePosition) -> Explanation:
    known = {"id": row.id, "name": row.name, "status": row.status, "simulated": row.simulated, **position._asdict()}
    return Explanation.model_validate(
        {**explained.as_dict(), **known, "tasks": [_task_placement(task) for task in tasks]}
    )


def _tried(workload: Workload, pool: Pool, explained: Explained, position: QueuePosition) -> Explanation:
    placements = {placement.task_id: placement for placement in explained.placements}
    tasks = [
        TaskPlacement(
            index=task.index,
            node=placement.node_name if (placement := placements.get(task.id)) else None,
            status="PLACED" if placement else "PENDING",
            score=placement.score / SCORE_ONE if placement else None,
            ports=list(placement.ports) if placement else [],
            devices=by_slot(placement.devices) if placement else {},
        )
        for task in workload.tasks[:_MAX_TASKS]
    ]
    known = {**position._asdict(), "id": None, "name": workload.name, "status": None, "simulated": pool.simulated}
    known["unless"] = needed_change(None if explained.reason is None else explained.reason.as_dict())
    return Explanation.model_validate({**explained.as_dict(), **known, "tasks": tasks})


def _ended(row: WorkloadRow, tasks: Sequence[TaskRow]) -> Explanation:
    """Explain a workload that has no task left that is pending or on a node."""
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
        tasks=[_task_placement(task) for task in tasks],
    )


def _task_placement(task: TaskRow) -> TaskPlacement:
    score = None if task.score is None else task.score / SCORE_ONE
    devices = {slot: list(shares) for slot, shares in (task.devices or {}).items()}
    return TaskPlacement(index=task.task_index, node=task.node_name, status=task.status, score=score, devices=devices)
