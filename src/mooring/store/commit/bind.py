"""The guarded commit of placements: the one fit rule, checked under the locks of the nodes that it is about.

*Optimistic* drafts what it writes without locks, and lets the write itself say whether all of it still holds and fits;
where it does not, and for the other modes, `bind` reads the counters and verifies each decision. All of them accept and
refuse the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.admission import Checked
from mooring.model.decisions import Decision, Outcome
from mooring.model.holds import Purpose
from mooring.model.lifecycle import ON_THE_WAY_OUT, TaskStatus
from mooring.model.pools import Binding
from mooring.model.preemption import Preemption, PreemptionMode, Victim
from mooring.model.quotas import Tenant
from mooring.model.reasons import Reason
from mooring.model.workloads import Workload
from mooring.store import quotas, revisions, transitions
from mooring.store.changes import Applied, Change, NewHold
from mooring.store.guard import Guard, ports_of
from mooring.store.history import Journal
from mooring.store.loading import Loaded, glance, load
from mooring.store.mounts import VolumeGuard, brings_volumes
from mooring.store.quota_guard import QuotaGuard, any_limits, tenants_charged
from mooring.store.sets import NotAsExpected, Statement, Writes
from mooring.store.types import as_uuid

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
class Bound:
    """What became of the decisions of a batch, by workload."""

    bound: list[Decision] = field(default_factory=list)
    """Placed, or with a place that is kept for them."""
    conflicts: list[tuple[Decision, str]] = field(default_factory=list)
    """Someone else was there first: back to placing."""
    dropped: list[Decision] = field(default_factory=list)
    """Cancelled or changed since the pass read them."""
    applied: Applied = field(default_factory=Applied)
    revisions: dict[str, int] = field(default_factory=dict)
    """The new placement revision of each pool that something was placed in."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a batch will write, put together before its transaction from what could be read without locks.

    It is good for as long as nobody has changed its workloads, its tasks and its nodes.
    """

    bound: tuple[Decision, ...]
    conflicts: tuple[tuple[Decision, str], ...]
    dropped: tuple[Decision, ...]
    applied: Applied
    locks: Writes
    writes: Writes
    tenants: frozenset[Tenant]
    """Who is charged with it: none of them had a limit."""
    watched: tuple[Decision, ...]
    """One for each pool, and all that depend on the other tasks of their pool."""


@dataclass(frozen=True, slots=True)
class _Terms:
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
) -> Bound:
    """Commit what fits in one transaction; a workload that does not fit any more hurts nobody else.

    `expected`: the placement revision that the pass saw of each pool; constraints between tasks demand that it is the
    present one. `preemption`: what the pool allows now; without it, a decision that counts on victims conflicts.
    `drafted`: what `draft` made of the same decisions. If it is outdated, that is NotAsExpected: the transaction has to
    be undone, and another to do without the draft.
    """
    if not decisions:
        return Bound()
    terms = _Terms(now, term, mode, hold_seconds, preemption, expected or {})
    if drafted is not None:
        return await _commit_draft(connection, drafted, terms)
    return await _commit(connection, decisions, terms)


async def draft(
    connection: AsyncConnection, decisions: Sequence[Decision], *, now: datetime, term: int
) -> Draft | None:
    """What an optimistic `bind` of these decisions will write; None where only locks can tell."""
    named = [placement.task_id for decision in decisions for placement in decision.placements]
    fresh = [decision.workload for decision in decisions if _is_placed_whole(decision)]
    loaded = await glance(connection, [decision.workload for decision in decisions], fresh=fresh, naming=named)
    guard = None if any(map(brings_volumes, decisions)) else await Guard.glance(connection, decisions, loaded)
    tenants = tenants_charged([*loaded.workloads.values(), *loaded.unread])
    if guard is None or any_limits(await quotas.limits_of(connection, tenants, now)):
        return None
    # In a thread of its own: the loop goes on telling the database what comes next of the batch before.
    return await asyncio.to_thread(
        _put_together, decisions, loaded, guard, tenants, (Writes.on(connection), Writes.on(connection)), now, term
    )


def _is_placed_whole(decision: Decision) -> bool:
    """All its tasks waited until now, and none is left waiting: it is as these tasks tell."""
    workload = decision.workload
    had_a_place = workload.placed_before or workload.occupied
    return not had_a_place and len(decision.placements) == len(workload.tasks)


def _put_together(
    decisions: Sequence[Decision],
    loaded: Loaded,
    guard: Guard,
    tenants: frozenset[Tenant],
    empty: tuple[Writes, Writes],
    now: datetime,
    term: int,
) -> Draft:
    locks, writes = empty
    loaded.take_as_seen()
    if loaded.workloads:
        locks.expect(_SAME_WORKLOADS, [(w.id, w.version, w.stopping) for w in loaded.workloads.values()])
    if guard.nodes:
        writes.expect(_SAME_NODES, [(id, node.generation) for id, node in guard.nodes.items()])
    loaded.locked_nodes.update(guard.nodes)
    terms = _Terms(now, term, Binding.OPTIMISTIC, 0, None, {})
    unchanged, dropped = _unchanged(decisions, loaded)
    taken = [(decision, guard.take(decision)) for decision in unchanged]
    bound = tuple(decision for decision, conflict in taken if conflict is None)
    conflicts = tuple((decision, conflict) for decision, conflict in taken if conflict is not None)
    changes = [change for decision in bound for change in _placed(decision, terms)]
    journal = Journal("scheduler", now, term)
    applied = transitions.plan(writes, changes, loaded, journal, looks=_looks(bound), guarded=True)
    watched = {decision.workload.pool: decision for decision in bound if not _depends_on_others(decision)}.values()
    dependent = filter(_depends_on_others, bound)
    return Draft(bound, conflicts, tuple(dropped), applied, locks, writes, tenants, (*watched, *dependent))


async def _commit_draft(connection: AsyncConnection, drafted: Draft, terms: _Terms) -> Bound:
    """NotAsExpected if anything of it is outdated."""
    pools = await revisions.read(connection, {decision.workload.pool for decision in drafted.watched})
    if any(_outdated(decision, terms, pools) for decision in drafted.watched):
        raise NotAsExpected
    # Workloads are locked first, then pools, then nodes.
    writes = Writes.on(connection)
    writes.extend(drafted.locks)
    increased = revisions.increase(writes, list(pools.values()), terms.now, terms.term)
    writes.extend(drafted.writes)
    # Asked when the counters are locked: whoever counts on a new limit sees this use of it, or waits for it.
    tenants = list(drafted.tenants)
    quotas.ask_limits(writes, tenants, terms.now)
    if any_limits(await quotas.limits_told(connection, tenants, await writes.make(connection))):
        raise NotAsExpected
    # Copies: what a transaction adds to them is gone if it has to be tried again.
    applied = Applied([*drafted.applied.tasks], [*drafted.applied.workloads])
    return Bound([*drafted.bound], [*drafted.conflicts], [*drafted.dropped], applied, increased)


async def _commit(connection: AsyncConnection, decisions: Sequence[Decision], terms: _Terms) -> Bound:
    result = Bound()
    victims = {victim.workload_id for decision in decisions for victim in decision.victims}
    named = [placement.task_id for decision in decisions for placement in decision.placements]
    named += [victim.task_id for decision in decisions for victim in decision.victims]
    loaded = await load(
        connection, workload_ids={*(decision.workload.id for decision in decisions), *victims}, naming=named
    )
    unchanged, result.dropped = _unchanged(decisions, loaded)
    pools = await revisions.lock(connection, {decision.workload.pool for decision in unchanged})
    guard = await Guard.read(connection, unchanged, loaded)
    volumes = await VolumeGuard.read(connection, unchanged)
    quotas = await QuotaGuard.read(connection, unchanged, loaded, terms.now)
    changes: list[Change] = []
    for decision in unchanged:
        conflict = (
            _outdated(decision, terms, pools)
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
        changes.extend(_placed(decision, terms))
        changes.extend(_displaced(decision, victim, loaded, terms) for victim in decision.victims)
    loaded.locked_nodes.update(guard.nodes)
    writes = Writes.on(connection)
    journal = Journal("scheduler", terms.now, terms.term)
    await volumes.write(connection, writes, journal)
    result.applied = transitions.plan(writes, changes, loaded, journal, looks=_looks(result.bound))
    placed_in = {decision.workload.pool for decision in result.bound}
    increased = [pool for name, pool in pools.items() if name in placed_in]
    result.revisions = revisions.increase(writes, increased, terms.now, terms.term)
    await writes.make(connection)
    return result


def _unchanged(decisions: Sequence[Decision], loaded: Loaded) -> tuple[list[Decision], list[Decision]]:
    """The decisions whose workloads are as the pass saw them, and those that are dropped."""
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
    """Still as the pass saw it, as far as placing goes: another reason for waiting or a sibling that runs is no change.

    A task's version is (`known`: as the pass saw it), and for a gang a task that the pass did not know of (`grown`).
    """
    workload = loaded.workloads.get(decision.workload.id)
    if workload is None or workload.stopping or workload.status in ON_THE_WAY_OUT:
        return False
    for placement in decision.placements:
        task = loaded.tasks.get(placement.task_id)
        if task is None or task.status is not TaskStatus.PENDING or task.version != known.get(placement.task_id):
            return False
    return not (workload.gang and workload.id in grown)


def _outdated(decision: Decision, terms: _Terms, pools: Mapping[str, revisions.Revision]) -> str | None:
    """What the decision took for granted and is so no longer."""
    pool = decision.workload.pool
    if pool not in pools:
        return f"there is no pool {pool}"
    if pools[pool].paused:
        return f"pool {pool} is paused"
    if decision.outcome is Outcome.RESERVED and terms.preemption is None:
        return f"pool {pool} allows no preemption"
    seen = terms.expected.get(pool)
    if seen is not None and seen != pools[pool].number and _depends_on_others(decision):
        return f"pool {pool} has other tasks than the pass saw"
    return None


def _depends_on_others(decision: Decision) -> bool:
    """By its labels it may be somebody whom others must be apart from."""
    constraints = decision.workload.constraints
    spread = any(rule.hard for rule in constraints.spread) if constraints.spread else False
    return bool(spread or constraints.affinity or constraints.anti_affinity or constraints.labels)


def _placed(decision: Decision, terms: _Terms) -> Iterator[Change]:
    status, hold = TaskStatus.SCHEDULED, None
    if decision.outcome is Outcome.RESERVED and terms.preemption is not None:
        until = terms.now + timedelta(seconds=terms.preemption.hold_seconds)
        status, hold = TaskStatus.RESERVED, NewHold(Purpose.PREEMPT, until)
    elif terms.mode is Binding.TWO_PHASE:
        until = terms.now + timedelta(seconds=terms.hold_seconds)
        status, hold = TaskStatus.RESERVED, NewHold(Purpose.PREPARE, until)
    victims = {"victims": [str(victim.task_id) for victim in decision.victims]} if decision.victims else {}
    for placement in decision.placements:
        # Most of them by their place: names would take longer than all the rest.
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


def _looks(bound: Iterable[Decision]) -> dict[UUID, Checked]:
    """How admission looked at them."""
    return {decision.workload.id: decision.checked for decision in bound if decision.checked is not None}


def _displaced(decision: Decision, victim: Victim, loaded: Loaded, terms: _Terms) -> Change:
    """The victim leaves; one that has nothing on its node yet only gives up its hold."""
    owner = as_uuid(loaded.workloads[victim.workload_id].user_id)
    reason = Reason("preempted", _why_displaced(decision.workload, owner), "scheduler", "release")
    if loaded.tasks[victim.task_id].status is TaskStatus.RESERVED:
        return Change(victim.task_id, TaskStatus.PENDING, reason)
    requeue = terms.preemption is not None and terms.preemption.mode is PreemptionMode.REQUEUE
    return Change(victim.task_id, TaskStatus.TERMINATING, reason, preempted_by=decision.workload.id, requeue=requeue)


def _why_displaced(preemptor: Workload, owner: UUID) -> str:
    """Other people's workloads are not named."""
    who = f"workload {preemptor.name!r}" if preemptor.user_id == owner else "a workload"
    return f"Makes room for {who} of priority {preemptor.priority}"
