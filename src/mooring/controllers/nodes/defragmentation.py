"""Automatic defragmentation: plans of moves for the pools that allow some per hour, executed move by move.

Plans are stored, so that a new leader continues them. Before each eviction the transaction compares the state with the
plan and counts the moves of the last hour. The next move follows when the replacement of the last one runs on its
target; a plan ends early when anything departs from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import structlog

from mooring.clock import monotonic, now
from mooring.controllers.leadership.loops import Alarm
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.coordination.fenced_database import FencedDatabase
from mooring.mirror.mirror import Mirror
from mooring.mirror.schedulers import Schedulers
from mooring.model.errors import Conflict, NotFound
from mooring.model.lifecycle import TaskStatus, is_end
from mooring.model.policy.defragmentation import Gain, MoveStatus, PlacedTask, Plan, PlanStatus
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import Admission
from mooring.scheduling.autoscaling.scale_up import copy_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.defragmentation.planner import plan
from mooring.scheduling.defragmentation.wanted import devices_of
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.plugins.protocols import NO_FACTORS
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.status_changes import Applied
from mooring.store.core.engine import Connection
from mooring.store.core.ids import new_id
from mooring.store.nodes import defragmentation_plans, placed_tasks, pools, running_tasks, task_moves
from mooring.store.nodes.defragmentation_plans import BUDGET_WINDOW, StoredMove, StoredPlan
from mooring.store.nodes.pools import Pool
from mooring.store.nodes.task_moves import TaskMove
from mooring.telemetry import metrics

_log = structlog.get_logger(__name__)
_ACTOR = "defragmentation"
_ARRIVAL = timedelta(minutes=10)
"""The time within which the replacement of a moved task has to run on its target."""
_WATCH_SECONDS = 1.0
"""Pause between two looks at a plan that is executed."""
_REST_SECONDS = 60.0
"""Minimum time between two plans of a pool."""
_REST = 20
"""After a plan, the next one of any pool is computed this many times as long as it took later at the earliest."""
_REST_AFTER_DEPARTURE = timedelta(minutes=10)
"""Pause of a pool after a plan that stopped early."""
_OUTDATED = timedelta(hours=1)
"""The age at which the rest of a plan is left out."""


@dataclass(frozen=True, slots=True)
class _State:
    """The view of a pool from which its moves are planned."""

    cluster: Cluster
    profile: Profile
    pending: Sequence[Workload]


@dataclass(frozen=True, slots=True)
class _View:
    """The stored state of automatic defragmentation."""

    pools: Sequence[Pool]
    """Those with automatic moves."""
    executing: Sequence[StoredPlan]
    evicted: Mapping[UUID, Sequence[datetime]]
    """By pool: the times of the moves of the last hour."""
    newest: Mapping[UUID, StoredPlan]

    def left(self, pool: Pool) -> int:
        return pool.policy.defragmentation.moves_per_hour - len(self.evicted.get(pool.id, ()))


class DefragmentationLoop:
    def __init__(
        self, database: FencedDatabase, scheduling: SchedulingLoop, *, rest_seconds: float = _REST_SECONDS
    ) -> None:
        self._database = database
        self._scheduling = scheduling
        self._rest_seconds = rest_seconds
        self._rest_until: dict[UUID, float] = {}
        """By pool: the earliest time of its next plan."""
        self._compute_from = float("-inf")
        """The earliest time of the next plan of any pool."""
        self.alarm = Alarm()

    async def once(self) -> bool:
        at = now()
        self.alarm.set()
        view = await self._read(at)
        busy = {each.pool_id for each in view.executing}
        for each in view.executing:
            await self._advance(each, at)
        # The pool that has waited longest comes first.
        for pool in sorted(view.pools, key=lambda each: self._rest_until.get(each.id, float("-inf"))):
            if pool.id not in busy and self._is_due(view, pool, at):
                await self._begin(pool, view.left(pool), at)
        return False

    async def _read(self, at: datetime) -> _View:
        async with self._database.read() as connection:
            found = [
                pool for pool in await pools.all_pools(connection) if pool.policy.defragmentation.moves_per_hour > 0
            ]
            return _View(
                found,
                await defragmentation_plans.executing(connection),
                await defragmentation_plans.evictions_since(connection, at - BUDGET_WINDOW) if found else {},
                await defragmentation_plans.newest_by_pool(connection, [pool.id for pool in found]),
            )

    # --- plans

    def _is_due(self, view: _View, pool: Pool, at: datetime) -> bool:
        if pool.policy.paused:
            return False
        if view.left(pool) <= 0:
            self._note_time(view.evicted[pool.id][0] + BUDGET_WINDOW)
            return False
        last = view.newest.get(pool.id)
        if last is not None and last.status is PlanStatus.STOPPED and last.ended_at is not None:
            rested_at = last.ended_at + _REST_AFTER_DEPARTURE
            if at < rested_at:
                self._note_time(rested_at)
                return False
        return monotonic() >= max(self._compute_from, self._rest_until.get(pool.id, float("-inf")))

    async def _begin(self, pool: Pool, left: int, at: datetime) -> None:
        """Plan moves, and store the plan if there are any."""
        rules = pool.policy.defragmentation
        state = await self._scheduling.between_passes(partial(self._state, pool))
        if state is None:
            return
        async with self._database.read() as connection:
            placed = await placed_tasks.of_pool(
                connection, pool.name, at, max_lost_seconds=rules.max_lost_seconds, interactive=rules.interactive
            )
            moved = await defragmentation_plans.moved_since(connection, pool.id, at - BUDGET_WINDOW)
            budgets = (await running_tasks.budgets(connection)).allowed
        # No task moves twice within the window: it would lose its run time again and again.
        placed = [replace(task, movable=task.movable and task.task_id not in moved) for task in placed]
        began = monotonic()
        found = await asyncio.to_thread(_planned, pool.name, rules.gain, left, state, placed, budgets)
        self._compute_from = monotonic() + _REST * (monotonic() - began)
        self._rest_until[pool.id] = monotonic() + self._rest_seconds
        if not found.moves:
            return

        async def work(connection: Connection, term: int) -> None:
            await defragmentation_plans.insert_plan(connection, pool.id, new_id(), found, now=now(), term=term)

        await self._database.write(work)
        _log.info(f"Pool {pool.name}: {len(found.moves)} moves are planned for the gain {rules.gain}: {found.gained:g}")
        self._watch()

    def _state(self, pool: Pool, mirror: Mirror, schedulers: Schedulers, admission: Admission) -> _State | None:
        """Return the view between two passes, in their thread; None if there is nothing to move for."""
        queue, rules = self._scheduling.pending_queue, pool.policy.defragmentation
        if pool.name not in mirror.pools or not queue.settled:
            return None
        scheduler = schedulers.of(mirror.pools[pool.name])
        factors = mirror.factors.get(pool.name, NO_FACTORS)
        lacking = [workload for workload in queue.waiting_for_nodes() if workload.pool == pool.name]
        in_order = scheduler.queue_order(pool.name, lacking, now(), admission=admission, factors=factors)
        pending = admission.within_limits(in_order)
        # Nobody asked for moves that only serve work which may never come.
        if rules.gain is Gain.GPU and not any(devices_of(workload) for workload in pending):
            return None
        return _State(copy_of(mirror.cluster), scheduler.profile, pending)

    # --- moves

    async def _advance(self, stored: StoredPlan, at: datetime) -> None:
        """Settle the last move of a plan, or make the next one."""
        self._watch()
        moving = stored.moving
        if moving is not None:
            await self._database.write(partial(_settle, stored, moving))
            return
        try:
            applied = await self._database.write(partial(_next_move, stored))
        except (Conflict, NotFound) as difference:
            await self._database.write(partial(_stop, stored, difference.message))
            return
        if applied is not None:
            log_applied(applied)

    def _watch(self) -> None:
        self._note_time(now() + timedelta(seconds=_WATCH_SECONDS))

    def _note_time(self, at: datetime) -> None:
        self.alarm.set(self.alarm.at, at)


def _planned(
    pool: str, gain: Gain, most: int, state: _State, placed: Sequence[PlacedTask], budgets: Mapping[UUID, int]
) -> Plan:
    return plan(state.cluster, state.profile, pool, placed, state.pending, gain=gain, most=most, budgets=budgets)


async def _settle(stored: StoredPlan, move: StoredMove, connection: Connection, term: int) -> None:
    """Note the arrival of a replacement on the target, or its departure from the plan."""
    at = now()
    new = await defragmentation_plans.replacement_of(connection, move.task_id)
    replacement_id = None if new is None else new.task_id
    problem = await _departure(connection, move, new, at)
    if problem is not None:
        await defragmentation_plans.note_ended(
            connection, move, MoveStatus.DEPARTED, replacement_id=replacement_id, reason=problem, now=at
        )
        metrics.defragmentation_moves.labels(stored.pool, "departed").inc()
        await _stop(stored, problem, connection, term)
    elif new is not None and new.status in (TaskStatus.RUNNING, TaskStatus.SUCCEEDED):
        await defragmentation_plans.note_ended(
            connection, move, MoveStatus.ARRIVED, replacement_id=replacement_id, reason=None, now=at
        )
        metrics.defragmentation_moves.labels(stored.pool, "arrived").inc()
        _log.info(f"Pool {stored.pool}: {move.workload} moved from {move.source} to {move.target}")
        if stored.following is None:
            await defragmentation_plans.end_plan(connection, stored.id, PlanStatus.COMPLETED, None, now=at, term=term)


async def _departure(
    connection: Connection, move: StoredMove, new: defragmentation_plans.Replacement | None, at: datetime
) -> str | None:
    """Return the difference between a replacement and the plan; None if it runs or may still run on the target."""
    if new is not None and new.node is not None and new.node != move.target:
        return f"the replacement of {move.workload} is on {new.node} instead of {move.target}"
    if new is not None and new.status == TaskStatus.RUNNING:
        return None
    if new is not None and is_end(TaskStatus(new.status)):
        # A short task may have ended on its target between two looks.
        ended = f"the replacement of {move.workload} is {new.status.lower()}"
        return None if new.status == TaskStatus.SUCCEEDED else ended
    if not await defragmentation_plans.may_be_replaced(connection, move.workload_id):
        return f"{move.workload} has ended"
    if move.evicted_at is not None and at - move.evicted_at > _ARRIVAL:
        state = "has not been created" if new is None else f"is {new.status.lower()}: {new.reason or 'no reason'}"
        return f"the replacement of {move.workload} {state} after {_ARRIVAL.total_seconds():g} seconds"
    return None


async def _next_move(stored: StoredPlan, connection: Connection, term: int) -> Applied | None:
    """Evict the task of the next move. Raise Conflict if the state differs from the plan."""
    at = now()
    pool = await pools.by_name(connection, stored.pool)
    move = stored.following
    if pool is None or move is None:
        await defragmentation_plans.end_plan(connection, stored.id, PlanStatus.COMPLETED, None, now=at, term=term)
        return None
    rules = pool.policy.defragmentation
    if not rules.moves_per_hour or pool.policy.paused:
        raise task_moves.departed(f"pool {pool.name} {'is paused' if pool.policy.paused else 'allows no more moves'}")
    if at - stored.created_at > _OUTDATED:
        raise task_moves.departed(f"the plan is older than {_OUTDATED.total_seconds() / 60:g} minutes")
    spent = await defragmentation_plans.evictions_since(connection, at - BUDGET_WINDOW)
    if len(spent.get(pool.id, ())) >= rules.moves_per_hour:
        raise task_moves.departed(f"pool {pool.name} has made its {rules.moves_per_hour} moves of this hour")
    if move.serves and not await defragmentation_plans.any_pending(connection, move.serves):
        raise task_moves.departed("the pending work that the next moves serve no longer waits")
    wanted = TaskMove(stored.id, pool.name, move.task_id, move.source, move.target)
    _, applied = await task_moves.evict(
        connection, wanted, actor=_ACTOR, interactive=rules.interactive, now=at, term=term
    )
    await defragmentation_plans.note_evicted(connection, move, at)
    return applied


async def _stop(stored: StoredPlan, reason: str, connection: Connection, term: int) -> None:
    if await defragmentation_plans.end_plan(connection, stored.id, PlanStatus.STOPPED, reason, now=now(), term=term):
        _log.warning(f"Pool {stored.pool}: the rest of a defragmentation plan is left out: {reason}")
