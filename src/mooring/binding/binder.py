"""Decisions become committed state, each pool's in its own mode; what conflicts goes back to placing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise
from uuid import UUID

import structlog

from mooring.clock import now
from mooring.model.decisions import Decision, Outcome
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.pools import Binding, PoolPolicy
from mooring.model.reasons import Reason
from mooring.model.timeslots import Timeslot
from mooring.store import attempts, bind, leadership, pools, timeslots, transitions, workloads
from mooring.store.bind import Bound, Draft
from mooring.store.changes import Change
from mooring.store.engine import Connection, Database, is_refused, retry
from mooring.store.loading import lock_workloads
from mooring.store.pools import Pool
from mooring.store.sets import NotAsExpected
from mooring.store.timeslots import Move

_log = structlog.get_logger(__name__)
_BATCH = 1000
"""Workloads in one transaction: large enough to be quick, small enough not to keep other writers waiting."""
_FIRST_BATCH = 250
"""Where several follow: until the first is put together the database has nothing to do."""
_DRAFTS = 1
"""Batches that wait for the database, beside the one that is being put together."""
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
        turns: Mapping[str, int] | None = None,
    ) -> Bound:
        """Commit placements and final failures, and store why the others wait.

        `pools` by name, with their policies; `expected`: the placements up to which the pass knew each of them;
        `turns`: where selectors that take turns go on, stored with the placements that moved them.
        """
        by_pool: dict[str, list[Decision]] = defaultdict(list)
        for decision in decisions:
            by_pool[decision.workload.pool].append(decision)
        by_policy: dict[PoolPolicy, list[Decision]] = defaultdict(list)
        for name, own in by_pool.items():
            pool = (pools or {}).get(name)
            by_policy[_DEFAULT if pool is None else pool.policy] += own
        total = Bound()
        known = dict(expected or {})
        batches: list[tuple[_Terms, Sequence[Decision]]] = []
        for policy, own in by_policy.items():
            # As the pass went: who makes room counts on what the others left, not the other way round.
            own.sort(key=lambda decision: decision.outcome is Outcome.RESERVED)
            terms = _Terms(term, policy, known, turns or {})
            batches += [(terms, batch) for batch in _batches(own)]
        # While the database writes one batch, the next ones are put together.
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

    async def move(self, moves: Sequence[Move], term: int) -> list[Timeslot]:
        """Commit what was decided on timeslots; those that nobody else changed come back as they are now."""

        async def work(connection: Connection) -> list[Timeslot]:
            await leadership.check_term(connection, term)
            return await timeslots.move(connection, moves, now(), actor="scheduler", term=term)

        return await self._database.write(work)

    async def _draft_all(
        self, batches: Sequence[tuple[_Terms, Sequence[Decision]]], drafts: asyncio.Queue[Draft | None]
    ) -> None:
        for terms, batch in batches:
            drafted: Draft | None = None
            # What is wrong shows at the commit, which does without a draft.
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

    async def _commit(self, decisions: Sequence[Decision], terms: _Terms, drafted: Draft | None = None) -> Bound:
        """One transaction, or several smaller ones where the database refuses a row: the others are not held up."""
        try:
            return await self._database.write(partial(_in_one_transaction, decisions, terms, drafted))
        except NotAsExpected:
            # Somebody was quicker: each decision is looked at by itself.
            return await self._commit(decisions, terms)
        except Exception as error:
            if not is_refused(error):
                raise
            if len(decisions) == 1:
                return await self._fail(decisions[0], error, terms)
        middle = len(decisions) // 2
        result = await self._commit(decisions[:middle], terms)
        _follow(terms.expected, result.revisions)
        _add(result, await self._commit(decisions[middle:], terms))
        return result

    async def _fail(self, decision: Decision, error: Exception, terms: _Terms) -> Bound:
        """The database will not have this one: it ends visibly instead of being tried for ever."""
        _log.error(f"Workload {decision.workload.id} cannot be bound: {error}")
        reason = Reason("bind-failed", "its placement cannot be stored; the server's log says why", "binding", "never")
        failed = Decision(decision.workload, Outcome.ERROR, reason=reason)
        return await self._database.write(partial(_in_one_transaction, [failed], terms, None))


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the decisions of one policy are committed under."""

    term: int
    policy: PoolPolicy
    expected: dict[str, int]
    turns: Mapping[str, int]


async def _in_one_transaction(
    decisions: Sequence[Decision], terms: _Terms, drafted: Draft | None, connection: Connection
) -> Bound:
    await leadership.check_term(connection, terms.term)
    placed = [decision for decision in decisions if decision.placements]
    if len(placed) < len(decisions):
        # All workloads before any node, as everywhere: the reasons are written after the counters.
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
    told = [decision for decision in decisions if decision.workload.id not in dropped]
    await workloads.note_waiting(connection, _new_reasons(told), at)
    await workloads.note_planned(connection, _new_starts(told), at)
    bound = {decision.workload.id for decision in result.bound}
    others = [decision for decision in told if decision.workload.id not in bound]
    await workloads.note_admission(connection, {d.workload.id: d.checked for d in others if d.checked is not None}, at)
    await pools.set_turns(connection, terms.turns)
    return result


def _batches(decisions: Sequence[Decision]) -> list[Sequence[Decision]]:
    number = len(decisions)
    first = _FIRST_BATCH if number > _BATCH else number
    return [decisions[start:end] for start, end in pairwise([0, *range(first, number, _BATCH), number])]


def _new_reasons(decisions: Sequence[Decision]) -> dict[UUID, Reason]:
    """Why workloads wait, where it is not what was stored before."""
    return {
        decision.workload.id: decision.reason
        for decision in decisions
        if decision.reason is not None
        and decision.outcome in (Outcome.WAITING, Outcome.PLACED)
        and decision.reason.message != decision.workload.waiting_reason
    }


def _new_starts(decisions: Sequence[Decision]) -> dict[UUID, datetime | None]:
    """When workloads start by the plan, where it is not what was stored before."""
    return {d.workload.id: d.planned_start for d in decisions if d.outcome is Outcome.WAITING and d.is_replanned}


def _follow(known: dict[str, int], revisions: Mapping[str, int]) -> None:
    """Own placements are known: where nobody else's came between, the next batch may rest on them."""
    for pool, revision in revisions.items():
        if known.get(pool) == revision - 1:
            known[pool] = revision


def _add(total: Bound, part: Bound) -> None:
    total.bound += part.bound
    total.conflicts += part.conflicts
    total.dropped += part.dropped
    total.applied.tasks += part.applied.tasks
    total.applied.workloads += part.applied.workloads
    total.revisions |= part.revisions
