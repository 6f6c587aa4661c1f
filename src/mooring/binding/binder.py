"""The binder: commits decisions in the binding mode of each pool; decisions with conflicts are placed again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from uuid import UUID

import structlog

from mooring.clock import now
from mooring.model.calendar.timeslots import Timeslot
from mooring.model.decisions import Decision, Outcome
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.policy.pools import Binding, PoolPolicy
from mooring.model.reasons import Reason
from mooring.store.commit import bind, transitions
from mooring.store.commit.bind import BindResult, Draft
from mooring.store.commit.locked_workloads import lock_workloads
from mooring.store.commit.status_changes import Change
from mooring.store.control.fencing import fenced_write
from mooring.store.core.batch_sql import NotAsExpected
from mooring.store.core.engine import (
    Connection,
    Database,
    is_rejected_row,
    retry,
)
from mooring.store.nodes import pools
from mooring.store.nodes.pools import Pool
from mooring.store.reservations import timeslots
from mooring.store.reservations.timeslots import TimeslotUpdate
from mooring.store.workloads import attempts, pending
from mooring.store.workloads.pending import PlannedStart

_log = structlog.get_logger(__name__)
_BATCH = 1000
"""Workloads per transaction: large enough for throughput, small enough not to block other writers."""
_FIRST_BATCH = 250
"""Size of the first of several batches: the database is idle until that batch is drafted."""
_DRAFTS = 1
"""Drafted batches in the queue, in addition to the one being drafted."""
_DEFAULT = PoolPolicy("locality")


class Binder:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def bind(
        self,
        decisions: Sequence[Decision],
        term: int,
        *,
        pools: Mapping[str, Pool] | None = None,
        expected: Mapping[str, int] | None = None,
        positions: Mapping[str, int] | None = None,
    ) -> BindResult:
        """Commit placements and final failures, and store the reasons of workloads that stay pending.

        `pools`: by name, with their policies. `expected`: by pool, the placement revision that the pass was based on.
        `positions`: by pool, the selector positions to store with the placements that moved them.
        """
        by_pool: dict[str, list[Decision]] = defaultdict(list)
        for decision in decisions:
            by_pool[decision.workload.pool].append(decision)
        by_policy: dict[PoolPolicy, list[Decision]] = defaultdict(list)
        for name, own in by_pool.items():
            pool = (pools or {}).get(name)
            by_policy[_DEFAULT if pool is None else pool.policy] += own
        total = BindResult()
        known = dict(expected or {})
        batches: list[tuple[_Terms, Sequence[Decision]]] = []
        for policy, own in by_policy.items():
            # As in the pass: preempting workloads come last, because they rely on the capacity left by the others.
            own.sort(key=lambda decision: decision.outcome is Outcome.RESERVED)
            terms = _Terms(term, policy, known, positions or {})
            batches += [(terms, batch) for batch in _batches(own)]
        # While the database writes one batch, the next is drafted.
        drafts: asyncio.Queue[Draft | None] = asyncio.Queue(_DRAFTS)
        drafting = asyncio.create_task(self._draft_all(batches, drafts))
        try:
            for terms, batch in batches:
                result = await self._commit(batch, terms, await drafts.get())
                _follow(known, result.revisions)
                _add(total, result)
        finally:
            drafting.cancel()
            await asyncio.gather(drafting, return_exceptions=True)
        return total

    async def update_timeslots(self, updates: Sequence[TimeslotUpdate], term: int) -> list[Timeslot]:
        """Commit decisions on timeslots. Return the new state of those that did not change concurrently."""

        async def work(connection: Connection) -> list[Timeslot]:
            return await timeslots.apply_updates(connection, updates, now(), actor="scheduler", term=term)

        return await fenced_write(self._database, term, work)

    async def _draft_all(
        self, batches: Sequence[tuple[_Terms, Sequence[Decision]]], drafts: asyncio.Queue[Draft | None]
    ) -> None:
        for terms, batch in batches:
            drafted: Draft | None = None
            # The commit works without a draft, and reports any error itself.
            with suppress(Exception):
                drafted = await self._draft(terms, batch)
            await drafts.put(drafted)

    async def _draft(self, terms: _Terms, decisions: Sequence[Decision]) -> Draft | None:
        placed = [decision for decision in decisions if decision.placements]
        if not placed or terms.policy.binding is not Binding.OPTIMISTIC:
            return None

        async def attempt() -> Draft | None:
            async with self._database.read() as connection:
                return await bind.draft(connection, placed, now=now(), term=terms.term)

        return await retry(attempt)

    async def _commit(self, decisions: Sequence[Decision], terms: _Terms, drafted: Draft | None = None) -> BindResult:
        """Commit in one transaction, or in smaller ones if the database rejects a row: the others still succeed."""
        try:
            return await self._write(decisions, terms, drafted)
        except NotAsExpected:
            # A concurrent change invalidated the draft. Without a draft, each decision is checked by itself.
            return await self._commit(decisions, terms)
        except Exception as error:
            if not is_rejected_row(error):
                raise
            if len(decisions) == 1:
                return await self._fail(decisions[0], error, terms)
        middle = len(decisions) // 2
        result = await self._commit(decisions[:middle], terms)
        _follow(terms.expected, result.revisions)
        _add(result, await self._commit(decisions[middle:], terms))
        return result

    async def _fail(self, decision: Decision, error: Exception, terms: _Terms) -> BindResult:
        """Fail a workload whose row the database rejects, instead of retrying it indefinitely."""
        _log.error(f"Workload {decision.workload.id} cannot be bound: {error}")
        reason = Reason("bind-failed", "its placement cannot be stored; the server's log says why", "binding", "never")
        failed = Decision(decision.workload, Outcome.ERROR, reason=reason)
        return await self._write([failed], terms)

    async def _write(self, decisions: Sequence[Decision], terms: _Terms, drafted: Draft | None = None) -> BindResult:
        return await fenced_write(self._database, terms.term, partial(_in_one_transaction, decisions, terms, drafted))


@dataclass(frozen=True, slots=True)
class _Terms:
    """The parameters under which the decisions of one policy are committed."""

    term: int
    policy: PoolPolicy
    expected: dict[str, int]
    positions: Mapping[str, int]


async def _in_one_transaction(
    decisions: Sequence[Decision], terms: _Terms, drafted: Draft | None, connection: Connection
) -> BindResult:
    placed = [decision for decision in decisions if decision.placements]
    if len(placed) < len(decisions):
        # Lock order: all workloads before any node. The reasons are written after the counters of nodes.
        victims = [victim.workload_id for decision in decisions for victim in decision.victims]
        await lock_workloads(connection, [*(decision.workload.id for decision in decisions), *victims])
    at = now()
    result = await bind.bind(
        connection,
        placed,
        now=at,
        term=terms.term,
        mode=terms.policy.binding,
        hold_seconds=terms.policy.hold_seconds,
        preemption=terms.policy.preemption,
        expected=terms.expected,
        drafted=drafted,
    )
    failed = [d for d in decisions if d.outcome in (Outcome.IMPOSSIBLE, Outcome.ERROR) and not d.placements]
    if failed:
        applied = await transitions.apply(
            connection,
            [
                Change(task.id, TaskStatus.FAILED, decision.reason)
                for decision in failed
                for task in decision.workload.tasks
            ],
            actor="scheduler",
            now=at,
            term=terms.term,
            ended={d.workload.id: (WorkloadStatus.FAILED, d.reason) for d in failed if d.reason is not None},
        )
        result.applied.tasks += applied.tasks
        result.applied.workloads += applied.workloads
    await attempts.record(connection, attempts.of_decisions(result.conflicts, failed), at)
    dropped = {decision.workload.id for decision in result.dropped}
    stored = [decision for decision in decisions if decision.workload.id not in dropped]
    await pending.note_waiting(connection, _new_reasons(stored), at, announced=_changed_codes(stored), term=terms.term)
    await pending.note_planned(connection, _new_starts(stored), at)
    bound = {decision.workload.id for decision in result.bound}
    others = [decision for decision in stored if decision.workload.id not in bound]
    await pending.note_admission(connection, {d.workload.id: d.checked for d in others if d.checked is not None}, at)
    await pools.set_round_robin_positions(connection, terms.positions)
    return result


def _batches(decisions: Sequence[Decision]) -> list[Sequence[Decision]]:
    number = len(decisions)
    first = _FIRST_BATCH if number > _BATCH else number
    return [decisions[start:end] for start, end in pairwise([0, *range(first, number, _BATCH), number])]


def _new_reasons(decisions: Sequence[Decision]) -> dict[UUID, Reason]:
    """Return the reasons of pending workloads that differ from the stored ones."""
    return {
        decision.workload.id: decision.reason
        for decision in decisions
        if decision.reason is not None
        and decision.outcome in (Outcome.WAITING, Outcome.PLACED)
        and decision.has_new_reason
    }


def _changed_codes(decisions: Sequence[Decision]) -> set[UUID]:
    """Return the workloads whose reason code changed; new amounts alone do not cause an event."""
    return {
        decision.workload.id
        for decision in decisions
        if decision.outcome in (Outcome.WAITING, Outcome.PLACED) and decision.has_new_code
    }


def _new_starts(decisions: Sequence[Decision]) -> dict[UUID, PlannedStart | None]:
    """Return the planned starts that differ from the stored ones."""
    return {
        d.workload.id: None if d.start_to_store is None else PlannedStart(d.start_to_store, d.planned_nodes)
        for d in decisions
        if d.outcome is Outcome.WAITING and d.is_replanned
    }


def _follow(known: dict[str, int], revisions: Mapping[str, int]) -> None:
    """Advance the known revisions past own placements, unless placements of others came between."""
    for pool, revision in revisions.items():
        if known.get(pool) == revision - 1:
            known[pool] = revision


def _add(total: BindResult, part: BindResult) -> None:
    total.bound += part.bound
    total.conflicts += part.conflicts
    total.dropped += part.dropped
    total.applied.tasks += part.applied.tasks
    total.applied.workloads += part.applied.workloads
    total.revisions |= part.revisions
