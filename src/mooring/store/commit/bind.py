"""The guarded commit of placements: the fit rule, checked in the transaction that writes them.

There are two commit paths, and they accept and refuse the same decisions.

*With locks* (`_commit`): lock the workloads, pools, nodes and counters that the decisions depend on, read them, check
each decision, and write those that pass. A decision that no longer fits conflicts alone. This path handles every case.

*With a draft* (`draft` and `_commit_draft`): read without locks and build all statements before the transaction, while
the transaction of the previous batch is still running. The transaction itself then only writes. Each statement states
the rows that it expects: unchanged versions of workloads and tasks, unchanged generations of nodes, counters with
enough free capacity. If one of them finds fewer rows than expected, the transaction is rolled back as a whole and the
caller takes the path with locks, which finds out which decision conflicts.

The draft exists for throughput: nearly all optimistic batches commit without a conflict, and then nothing is read, and
little is computed, while the locks are held. It cannot replace the other path. It does not know which decision failed,
and ports, devices, volumes, quotas, task limits of nodes and preemption depend on rows that no version and no counter
guards; `draft` declines batches with any of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.decisions import Decision, Outcome
from mooring.model.lifecycle import TERMINATING_OR_ENDED, TaskStatus
from mooring.model.policy.holds import Purpose
from mooring.model.policy.pools import Binding
from mooring.model.policy.preemption import Preemption, PreemptionMode, Victim
from mooring.model.reasons import Reason
from mooring.model.tenancy.admission import Checked
from mooring.model.tenancy.quotas import Tenant
from mooring.model.workloads.workload import Workload
from mooring.store.commit import placement_revisions, transitions
from mooring.store.commit.fit_guard import FitGuard, ports_of
from mooring.store.commit.history import ChangeLog
from mooring.store.commit.locked_workloads import Loaded, load, load_unlocked
from mooring.store.commit.new_tasks import NewTask, insert_tasks
from mooring.store.commit.quota_guard import QuotaGuard, any_limits, tenants_charged
from mooring.store.commit.status_changes import Applied, Change, NewHold
from mooring.store.core.batch_sql import NotAsExpected, Statement, Writes
from mooring.store.core.ids import array_task_id
from mooring.store.core.types import as_uuid
from mooring.store.tenancy import quotas
from mooring.store.workloads.mounts import VolumeGuard, brings_volumes

_SAME_WORKLOADS = Statement(
    """
    SELECT count(*) FROM (
        SELECT 1 FROM {rows} i JOIN workloads w ON w.id = i.id
        WHERE w.version = i.version AND w.stopping = i.stopping ORDER BY w.id {lock}
    ) AS same
    """,
    {"id": "uuid", "version": "bigint", "stopping": "boolean"},
    lock="FOR UPDATE OF w",
)
_CREATED = Statement(
    "UPDATE workloads AS w SET next_index = i.stop FROM {rows} i WHERE w.id = i.id AND w.next_index = i.start",
    {"id": "uuid", "start": "bigint", "stop": "bigint"},
)
_SAME_NODES = Statement(
    """
    SELECT count(*) FROM (
        SELECT 1 FROM {rows} i JOIN nodes n ON n.id = i.id WHERE n.generation = i.generation ORDER BY n.id {lock}
    ) AS same
    """,
    {"id": "uuid", "generation": "bigint"},
    lock="FOR NO KEY UPDATE OF n",
)


@dataclass(slots=True)
class BindResult:
    """The outcome of a batch of decisions."""

    bound: list[Decision] = field(default_factory=list)
    """Placed, or capacity is held for them."""
    conflicts: list[tuple[Decision, str]] = field(default_factory=list)
    """Refused because something has changed; they go back to placement. With the reason."""
    dropped: list[Decision] = field(default_factory=list)
    """Their workloads were cancelled or changed after the pass read them."""
    applied: Applied = field(default_factory=Applied)
    revisions: dict[str, int] = field(default_factory=dict)
    """The new placement revision of each pool with placements."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The statements of a batch, built before its transaction from rows that were read without locks.

    It is valid as long as its workloads, tasks and nodes are unchanged.
    """

    bound: tuple[Decision, ...]
    conflicts: tuple[tuple[Decision, str], ...]
    dropped: tuple[Decision, ...]
    applied: Applied
    locks: Writes
    writes: Writes
    tenants: frozenset[Tenant]
    """The tenants that are charged; none of them had a limit."""
    watched: tuple[Decision, ...]
    """One decision for each pool, and all that depend on other tasks of their pool."""


@dataclass(frozen=True, slots=True)
class _Options:
    now: datetime
    term: int
    mode: Binding
    hold_seconds: int
    preemption: Preemption | None
    expected: Mapping[str, int]


async def bind(
    connection: AsyncConnection,
    decisions: Sequence[Decision],
    *,
    now: datetime,
    term: int,
    mode: Binding = Binding.OPTIMISTIC,
    hold_seconds: int = 60,
    preemption: Preemption | None = None,
    expected: Mapping[str, int] | None = None,
    drafted: Draft | None = None,
) -> BindResult:
    """Commit the decisions that still fit; one that does not affects no other workload.

    `expected`: the placement revision of each pool that the pass saw; decisions with constraints between tasks conflict
    if it has changed. `preemption`: the policy of the pool now; without one, decisions with victims conflict.
    `drafted`: the result of `draft` for the same decisions. An outdated draft raises NotAsExpected: roll back the
    transaction and call `bind` without the draft in another.
    """
    if not decisions:
        return BindResult()
    options = _Options(now, term, mode, hold_seconds, preemption, expected or {})
    if drafted is not None:
        return await _commit_draft(connection, drafted, options)
    return await _commit(connection, decisions, options)


async def draft(
    connection: AsyncConnection, decisions: Sequence[Decision], *, now: datetime, term: int
) -> Draft | None:
    """Return the statements of an optimistic `bind` of these decisions; None if it needs locks to decide."""
    named = [placement.task_id for decision in decisions for placement in decision.placements]
    fresh = [decision.workload for decision in decisions if _is_placed_whole(decision)]
    loaded = await load_unlocked(connection, [decision.workload for decision in decisions], fresh=fresh, naming=named)
    guard = None if any(map(brings_volumes, decisions)) else await FitGuard.read_unlocked(connection, decisions, loaded)
    tenants = tenants_charged([*loaded.workloads.values(), *loaded.unread])
    if guard is None or any_limits(await quotas.limits_of(connection, tenants, now)):
        return None
    # In a thread: meanwhile the event loop sends the statements of the previous batch to the database.
    return await asyncio.to_thread(
        _build_draft, decisions, loaded, guard, tenants, (Writes.on(connection), Writes.on(connection)), now, term
    )


def _is_placed_whole(decision: Decision) -> bool:
    """Return whether the decision places all tasks of a workload that has never been placed.

    An array never is: its tasks may have no rows.
    """
    workload = decision.workload
    was_placed = workload.placed_before or workload.occupied or workload.is_array
    return not was_placed and len(decision.placements) == len(workload.tasks)


def _build_draft(
    decisions: Sequence[Decision],
    loaded: Loaded,
    guard: FitGuard,
    tenants: frozenset[Tenant],
    empty: tuple[Writes, Writes],
    now: datetime,
    term: int,
) -> Draft:
    locks, writes = empty
    loaded.assume_pending()
    _create_deferred(loaded, decisions)
    if loaded.workloads:
        locks.expect(_SAME_WORKLOADS, [(w.id, w.version, w.stopping) for w in loaded.workloads.values()])
    if guard.nodes:
        writes.expect(_SAME_NODES, [(id, node.generation) for id, node in guard.nodes.items()])
    loaded.locked_nodes.update(guard.nodes)
    options = _Options(now, term, Binding.OPTIMISTIC, 0, None, {})
    unchanged, dropped = _unchanged(decisions, loaded)
    taken = [(decision, guard.take(decision)) for decision in unchanged]
    bound = tuple(decision for decision, conflict in taken if conflict is None)
    conflicts = tuple((decision, conflict) for decision, conflict in taken if conflict is not None)
    changes = [change for decision in bound for change in _placement_changes(decision, options)]
    _write_created(writes, loaded, bound, now)
    log = ChangeLog("scheduler", now, term)
    applied = transitions.plan(writes, changes, loaded, log, admitted=_admission_results(bound), guarded=True)
    watched = {decision.workload.pool: decision for decision in bound if not _depends_on_others(decision)}.values()
    dependent = filter(_depends_on_others, bound)
    return Draft(bound, conflicts, tuple(dropped), applied, locks, writes, tenants, (*watched, *dependent))


async def _commit_draft(connection: AsyncConnection, drafted: Draft, options: _Options) -> BindResult:
    """Write a draft; raise NotAsExpected if any part of it is outdated."""
    pools = await placement_revisions.read(connection, {decision.workload.pool for decision in drafted.watched})
    if any(_outdated(decision, options, pools) for decision in drafted.watched):
        raise NotAsExpected
    # Workloads are locked first, then pools, then nodes.
    writes = Writes.on(connection)
    writes.extend(drafted.locks)
    increased = placement_revisions.increase(writes, list(pools.values()), options.now, options.term)
    writes.extend(drafted.writes)
    # Read while the counters are locked: a transaction that relies on a new limit sees this usage, or waits for it.
    tenants = list(drafted.tenants)
    quotas.ask_limits(writes, tenants, options.now)
    if any_limits(await quotas.resolve_limits(connection, tenants, await writes.execute(connection))):
        raise NotAsExpected
    # Copies: a transaction that is retried must not see what the failed attempt added.
    applied = Applied([*drafted.applied.tasks], [*drafted.applied.workloads])
    return BindResult([*drafted.bound], [*drafted.conflicts], [*drafted.dropped], applied, increased)


async def _commit(connection: AsyncConnection, decisions: Sequence[Decision], options: _Options) -> BindResult:
    result = BindResult()
    victims = {victim.workload_id for decision in decisions for victim in decision.victims}
    named = [placement.task_id for decision in decisions for placement in decision.placements]
    named += [victim.task_id for decision in decisions for victim in decision.victims]
    loaded = await load(
        connection, workload_ids={*(decision.workload.id for decision in decisions), *victims}, naming=named
    )
    _create_deferred(loaded, decisions)
    unchanged, result.dropped = _unchanged(decisions, loaded)
    pools = await placement_revisions.lock(connection, {decision.workload.pool for decision in unchanged})
    guard = await FitGuard.read(connection, unchanged, loaded)
    volumes = await VolumeGuard.read(connection, unchanged)
    quotas = await QuotaGuard.read(connection, unchanged, loaded, options.now)
    changes: list[Change] = []
    for decision in unchanged:
        conflict = (
            _outdated(decision, options, pools)
            or quotas.conflict(decision)
            or volumes.conflict(decision)
            or guard.take(decision, volumes.brought(decision))
        )
        if conflict is not None:
            result.conflicts.append((decision, conflict))
            continue
        quotas.take(decision)
        volumes.take(decision)
        result.bound.append(decision)
        changes.extend(_placement_changes(decision, options))
        changes.extend(_preempted(decision, victim, loaded, options) for victim in decision.victims)
    loaded.locked_nodes.update(guard.nodes)
    writes = Writes.on(connection)
    _write_created(writes, loaded, result.bound, options.now)
    log = ChangeLog("scheduler", options.now, options.term)
    await volumes.write(connection, writes, log)
    result.applied = transitions.plan(writes, changes, loaded, log, admitted=_admission_results(result.bound))
    placed_in = {decision.workload.pool for decision in result.bound}
    increased = [pool for name, pool in pools.items() if name in placed_in]
    result.revisions = placement_revisions.increase(writes, increased, options.now, options.term)
    await writes.execute(connection)
    return result


def _create_deferred(loaded: Loaded, decisions: Sequence[Decision]) -> None:
    for decision in decisions:
        if decision.workload.is_array:
            loaded.create_deferred(decision.workload, {placement.task_id for placement in decision.placements})


def _write_created(writes: Writes, loaded: Loaded, bound: Sequence[Decision], now: datetime) -> None:
    """Insert the rows of the deferred tasks that these decisions place."""
    if not loaded.created:
        return
    found = {decision.workload.id: decision.workload.request for decision in bound}
    created = {id: each for id, each in loaded.created.items() if id in found}
    if not created:
        return
    new = [
        NewTask(array_task_id(id, index), id, index, found[id])
        for id, each in created.items()
        for index in each.indexes
    ]
    insert_tasks(writes, new, now)
    rows = [(id, each.start, each.stop) for id, each in sorted(created.items())]
    writes.add(_CREATED, rows, expected=len(rows))


def _unchanged(decisions: Sequence[Decision], loaded: Loaded) -> tuple[list[Decision], list[Decision]]:
    """Split decisions into those whose workloads are as the pass saw them, and those that are dropped."""
    known = {task.id: task.version for decision in decisions for task in decision.workload.tasks}
    grown = {
        task.workload_id
        for task in loaded.tasks.values()
        if task.status is TaskStatus.PENDING and task.current and task.id not in known
    }
    unchanged: list[Decision] = []
    dropped: list[Decision] = []
    for decision in decisions:
        (unchanged if _is_unchanged(decision, loaded, known, grown) else dropped).append(decision)
    return unchanged, dropped


def _is_unchanged(decision: Decision, loaded: Loaded, known: Mapping[UUID, int], grown: Set[UUID]) -> bool:
    """Return whether the workload is as the pass saw it, as far as placement is concerned.

    A new version of a task is a change (`known`: versions that the pass saw), and for a gang a new task (`grown`: its
    workloads). Another reason for waiting, or another task of the workload that has started, is not.
    """
    workload = loaded.workloads.get(decision.workload.id)
    if workload is None or workload.stopping or workload.status in TERMINATING_OR_ENDED:
        return False
    for placement in decision.placements:
        task = loaded.tasks.get(placement.task_id)
        if task is None or task.status is not TaskStatus.PENDING or task.version != known.get(placement.task_id):
            return False
    return not (workload.gang and workload.id in grown)


def _outdated(decision: Decision, options: _Options, pools: Mapping[str, placement_revisions.Revision]) -> str | None:
    """Return which assumption of the decision no longer holds, if any."""
    pool = decision.workload.pool
    if pool not in pools:
        return f"there is no pool {pool}"
    if pools[pool].paused:
        return f"pool {pool} is paused"
    if decision.outcome is Outcome.RESERVED and options.preemption is None:
        return f"pool {pool} allows no preemption"
    seen = options.expected.get(pool)
    if seen is not None and seen != pools[pool].number and _depends_on_others(decision):
        return f"pool {pool} has changed since the pass began"
    return None


def _depends_on_others(decision: Decision) -> bool:
    """Return whether it has constraints between tasks, or labels that the constraints of others may match."""
    constraints = decision.workload.constraints
    spread = any(rule.hard for rule in constraints.spread) if constraints.spread else False
    return bool(spread or constraints.affinity or constraints.anti_affinity or constraints.labels)


def _placement_changes(decision: Decision, options: _Options) -> Iterator[Change]:
    status, hold = TaskStatus.SCHEDULED, None
    if decision.outcome is Outcome.RESERVED and options.preemption is not None:
        until = options.now + timedelta(seconds=options.preemption.hold_seconds)
        status, hold = TaskStatus.RESERVED, NewHold(Purpose.PREEMPT, until)
    elif options.mode is Binding.TWO_PHASE:
        until = options.now + timedelta(seconds=options.hold_seconds)
        status, hold = TaskStatus.RESERVED, NewHold(Purpose.PREPARE, until)
    victims = {"victims": [str(victim.task_id) for victim in decision.victims]} if decision.victims else {}
    for placement in decision.placements:
        # Positional arguments: keyword arguments would take longer than everything else here.
        yield Change(
            placement.task_id,
            status,
            None,
            placement.node_id,
            placement.node_name,
            placement.score,
            ports_of(decision, placement),
            placement.devices,
            hold=hold,
            details={"score": placement.score, "feasible_nodes": decision.feasible_nodes, **victims},
        )


def _admission_results(bound: Iterable[Decision]) -> dict[UUID, Checked]:
    """Return the admission results of the decisions that have one."""
    return {decision.workload.id: decision.checked for decision in bound if decision.checked is not None}


def _preempted(decision: Decision, victim: Victim, loaded: Loaded, options: _Options) -> Change:
    """Return the change of a victim: it terminates, or gives up its hold if nothing of it is on the node yet."""
    owner = as_uuid(loaded.workloads[victim.workload_id].user_id)
    reason = Reason("preempted", _preemption_message(decision.workload, owner), "scheduler", "release")
    if loaded.tasks[victim.task_id].status is TaskStatus.RESERVED:
        return Change(victim.task_id, TaskStatus.PENDING, reason)
    requeue = options.preemption is not None and options.preemption.mode is PreemptionMode.REQUEUE
    return Change(victim.task_id, TaskStatus.TERMINATING, reason, preempted_by=decision.workload.id, requeue=requeue)


def _preemption_message(preemptor: Workload, owner: UUID) -> str:
    """Name the preemptor only to a victim of the same user."""
    who = f"workload {preemptor.name!r}" if preemptor.user_id == owner else "a workload"
    return f"Preempted by {who} with priority {preemptor.priority}"
