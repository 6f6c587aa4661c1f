"""The pending workloads of the mirror, with the changes since the scheduler last read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from dataclasses import replace
from uuid import UUID

from mooring.model.decisions import Decision
from mooring.model.workloads.workload import Workload
from mooring.store.workloads.pending import StoredReason


class PendingWorkloads:
    def __init__(self) -> None:
        self.by_id: dict[UUID, Workload] = {}
        self._news: set[UUID] | None = None
        """Workloads read or removed since the last call of `news`; None if there was none since the load."""
        self._in_reservations: set[UUID] = set()
        """Workloads that are, or were, pending inside a timeslot."""

    def add(self, found: Iterable[Workload]) -> None:
        for workload in found:
            self.by_id[workload.id] = workload
            if workload.booking is not None:
                self._in_reservations.add(workload.id)

    def update(self, ids: Set[UUID], found: Collection[Workload]) -> None:
        """Replace the workloads `ids` by what was read of them; those not found are no longer pending."""
        self._note(ids)
        self.add(found)
        for workload_id in ids - {workload.id for workload in found}:
            self.by_id.pop(workload_id, None)

    def news(self) -> dict[UUID, Workload | None]:
        """Return the workloads that are new or changed since the last call; None for those no longer pending."""
        changed = self.by_id.keys() if self._news is None else self._news
        self._news = set()
        return {workload_id: self.by_id.get(workload_id) for workload_id in changed}

    def report_all(self) -> None:
        """Make the next call of `news` return every workload."""
        self._news = None

    def in_reservation(self, timeslot_id: UUID) -> list[Workload]:
        """Return the pending workloads inside a timeslot."""
        found = (self.by_id.get(workload_id) for workload_id in sorted(self._in_reservations))
        return [workload for workload in found if workload is not None and workload.booking == timeslot_id]

    def requeue_in_reservations(self, timeslot_ids: Set[UUID]) -> None:
        """Report the workloads of timeslots whose capacity changed as news."""
        if self._in_reservations:
            self._in_reservations &= self.by_id.keys()
            self._note({id for id in self._in_reservations if self.by_id[id].booking in timeslot_ids})

    def assume(self, decision: Decision) -> set[UUID]:
        """Remove the tasks that a committed decision placed, before the feed confirms it. Return their ids."""
        placed = {placement.task_id for placement in decision.placements}
        workload = self.by_id.get(decision.workload.id)
        if workload is not None:
            self._note({workload.id})
            left = tuple(task for task in workload.tasks if task.id not in placed)
            if left:
                self.by_id[workload.id] = replace(workload, tasks=left, placed_before=True)
            else:
                del self.by_id[workload.id]
        return placed

    def note_waiting(self, decisions: Iterable[Decision]) -> None:
        """Record stored reasons and planned starts, which have no events, so that they are not written again."""
        for decision in decisions:
            workload = self.by_id.get(decision.workload.id)
            if workload is None:
                continue
            start, nodes = workload.planned_start, workload.planned_nodes
            if decision.is_replanned:
                start, nodes = decision.start_to_store, decision.planned_nodes
            code, message = workload.waiting_code, workload.waiting_reason
            if decision.reason is not None:
                code, message = decision.reason.code, decision.reason.message
            self.note_reason(StoredReason(workload.id, code, message, start, nodes))

    def note_reason(self, stored: StoredReason) -> None:
        workload = self.by_id[stored.workload_id]
        _, code, message, start, nodes = stored
        known = workload.waiting_code, workload.waiting_reason, workload.planned_start, workload.planned_nodes
        if known != (code, message, start, nodes):
            self.by_id[workload.id] = replace(
                workload, waiting_code=code, waiting_reason=message, planned_start=start, planned_nodes=nodes
            )

    def _note(self, workload_ids: Set[UUID]) -> None:
        if self._news is not None:
            self._news |= workload_ids
