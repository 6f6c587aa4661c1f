"""Optimistic binding: commit a pass's decisions in one fenced transaction; what conflicts goes back to placing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from mooring.clock import now
from mooring.model.decisions import Decision, Outcome
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.store import bind, leadership, transitions, workloads
from mooring.store.bind import Bound
from mooring.store.changes import Change
from mooring.store.engine import Connection, Database
from mooring.store.loading import lock_workloads

_BATCH = 1000
"""Workloads in one transaction: large enough to be quick, small enough not to keep other writers waiting."""


class OptimisticBinder:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def bind(self, decisions: Sequence[Decision], term: int) -> Bound:
        """Commit placements and final failures, and store why the others wait."""
        total = Bound()
        for start in range(0, len(decisions), _BATCH):
            result = await self._database.write(partial(_commit, decisions[start : start + _BATCH], term))
            total.bound += result.bound
            total.conflicts += result.conflicts
            total.dropped += result.dropped
            total.applied.tasks += result.applied.tasks
            total.applied.workloads += result.applied.workloads
            total.revisions |= result.revisions
        return total


async def _commit(decisions: Sequence[Decision], term: int, connection: Connection) -> Bound:
    await leadership.check_term(connection, term)
    # All workloads before any node, as everywhere: the reasons are written after the counters.
    await lock_workloads(connection, [decision.workload.id for decision in decisions])
    at = now()
    result = await bind.bind(connection, [d for d in decisions if d.placements], now=at, term=term)
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
            term=term,
            failed={d.workload.id: d.reason for d in failed if d.reason is not None},
        )
        result.applied.tasks += applied.tasks
        result.applied.workloads += applied.workloads
    await workloads.note_waiting(connection, _new_reasons(decisions), at)
    return result


def _new_reasons(decisions: Sequence[Decision]) -> dict[UUID, Reason]:
    """Why workloads wait, where it is not what was stored before."""
    return {
        decision.workload.id: decision.reason
        for decision in decisions
        if decision.reason is not None
        and decision.outcome in (Outcome.WAITING, Outcome.PLACED)
        and decision.reason.message != decision.workload.waiting_reason
    }
