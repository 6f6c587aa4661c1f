"""New tasks and the ledger rows of their requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from mooring.model.lifecycle import TaskStatus
from mooring.store.core import batch_sql
from mooring.store.tables import resource_allocations, tasks


class EarlierEnd(NamedTuple):
    """The ends of the attempts before a task."""

    crashes: int = 0
    """Ends soon after a start, in a row."""
    exit_code: int | None = None
    reason: Mapping[str, Any] | None = None


_NONE = EarlierEnd()


class NewTask(NamedTuple):
    """A pending task. `failures`: failures of the attempts before it."""

    id: UUID
    workload_id: UUID
    task_index: int
    request: Mapping[str, int]
    attempt: int = 1
    not_before: datetime | None = None
    failures: int = 0
    revision: int = 1
    earlier: EarlierEnd = _NONE
    nominated_node: str | None = None
    """The node that it prefers."""


def insert_tasks(writes: batch_sql.Writes, wanted: Sequence[NewTask], now: datetime) -> None:
    """Write tasks PENDING, and their ledger rows with what they request."""
    # First attempts, which are many, do without the columns of the others.
    replaces = any(new.earlier is not _NONE for new in wanted)
    batch_sql.insert(
        writes,
        tasks,
        [
            {
                "id": new.id,
                "workload_id": new.workload_id,
                "task_index": new.task_index,
                "attempt": new.attempt,
                "current": True,
                "status": TaskStatus.PENDING,
                "requested_slots": new.request,
                "occupied_slots": {},
                "not_before": new.not_before,
                "failures": new.failures,
                "revision": new.revision,
                "created_at": now,
            }
            | (_columns(new) if replaces else {})
            for new in wanted
        ],
    )
    ledger = [
        {"task_id": new.id, "slot_name": slot, "requested": amount, "created_at": now}
        for new in wanted
        for slot, amount in new.request.items()
    ]
    batch_sql.insert(writes, resource_allocations, ledger)


def _columns(new: NewTask) -> dict[str, Any]:
    return {
        "earlier_crashes": new.earlier.crashes,
        "last_exit_code": new.earlier.exit_code,
        "last_reason": new.earlier.reason,
        "nominated_node": new.nominated_node,
    }
