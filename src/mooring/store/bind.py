"""The guarded commit of placements: the one fit rule, checked under the locks of the nodes that it is about.

*Optimistic* lets the write itself say whether everything fits, and looks closer only if it does not; *pessimistic* and
*two_phase* read the counters and verify each decision. All of them accept and refuse the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.decisions import Decision, Outcome
from mooring.model.holds import Purpose
from mooring.model.lifecycle import ON_THE_WAY_OUT, TaskStatus
from mooring.model.pools import Binding
from mooring.model.preemption import Preemption, PreemptionMode, Victim
from mooring.model.reasons import Reason
from mooring.model.workloads import Workload
from mooring.store import revisions, transitions
from mooring.store.changes import Applied, Change, NewHold
from mooring.store.guard import Guard, ports_of
from mooring.store.loading import Loaded, load
from mooring.store.moves import TooLittleLeft
from mooring.store.quota_guard import QuotaGuard
from mooring.store.types import as_uuid


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
) -> Bound:
    """Commit what fits in one transaction; a workload that does not fit any more hurts nobody else.

    `expected`: the placement revision that the pass saw of each pool; constraints between tasks demand that it is the
    present one. `preemption`: what the pool allows now; without it, a decision that counts on victims conflicts.
    """
    if not decisions:
        return Bound()
    terms = _Terms(now, term, mode, hold_seconds, preemption, expected or {})
    if mode is Binding.OPTIMISTIC and not any(decision.outcome is Outcome.RESERVED for decision in decisions):
        try:
            async with connection.begin_nested():
                return await _commit(connection, decisions, terms, verify=False)
        except TooLittleLeft:
            # Somebody was quicker on some node: each decision is looked at by itself.
            pass
    return await _commit(connection, decisions, terms, verify=True)


async def _commit(connection: AsyncConnection, decisions: Sequence[Decision], terms: _Terms, *, verify: bool) -> Bound:
    """`verify`: look whether each decision fits; otherwise the write of all of them says whether they do."""
    result = Bound()
    victims = {victim.workload_id for decision in decisions for victim in decision.victims}
    named = [placement.task_id for decision in decisions for placement in decision.placements]
    named += [victim.task_id for decision in decisions for victim in decision.victims]
    loaded = await load(
        connection, workload_ids={*(decision.workload.id for decision in decisions), *victims}, naming=named
    )
    known = {task.id: task.version for decision in decisions for task in decision.workload.tasks}
    grown = {
        task.workload_id
        for task in loaded.tasks.values()
        if task.status is TaskStatus.PENDING and task.current and task.id not in known
    }
    unchanged: list[Decision] = []
    for decision in decisions:
        (unchanged if _is_unchanged(decision, loaded, known, grown) else result.dropped).append(decision)
    pools = await revisions.lock(connection, {decision.workload.pool for decision in unchanged})
    guard = await Guard.read(connection, unchanged, loaded, verify=verify)
    quotas = await QuotaGuard.read(connection, unchanged, loaded, terms.now)
    changes: list[Change] = []
    for decision in unchanged:
        conflict = _outdated(decision, terms, pools) or quotas.conflict(decision) or guard.take(decision)
        if conflict is not None:
            result.conflicts.append((decision, conflict))
            continue
        quotas.take(decision)
        result.bound.append(decision)
        changes.extend(_placed(decision, terms))
        changes.extend(_displaced(decision, victim, loaded, terms) for victim in decision.victims)
    loaded.locked_nodes.update(guard.nodes)
    result.applied = await transitions.apply(
        connection, changes, actor="scheduler", now=terms.now, term=terms.term, loaded=loaded, guarded=not verify
    )
    placed_in = {decision.workload.pool for decision in result.bound}
    result.revisions = await revisions.increase(
        connection, [pool for name, pool in pools.items() if name in placed_in], terms.now, terms.term
    )
    return result


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
    if decision.outcome is Outcome.RESERVED and terms.preemption is None:
        return f"pool {pool} allows no preemption"
    constraints = decision.workload.constraints
    spread = constraints.spread and any(rule.hard for rule in constraints.spread)
    # By its labels it may be somebody whom others must be apart from.
    if spread or constraints.affinity or constraints.anti_affinity or constraints.labels:
        seen = terms.expected.get(pool)
        if seen is not None and seen != pools[pool].number:
            return f"pool {pool} has other tasks than the pass saw"
    return None


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
        yield Change(
            placement.task_id,
            status,
            node_id=placement.node_id,
            node_name=placement.node_name,
            score=placement.score,
            ports=ports_of(decision, placement),
            devices=placement.devices,
            hold=hold,
            details={"score": placement.score, "feasible_nodes": decision.feasible_nodes, **victims},
        )


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
