"""The lifecycle of a lab, derived from the statuses of its timeslot and its workload."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from mooring.model.calendar.timeslots import Timeslot, TimeslotStatus
from mooring.model.lifecycle import WorkloadStatus, is_workload_end


class LabState(StrEnum):
    PENDING = "pending"
    """Its timeslot is not confirmed yet."""
    SCHEDULED = "scheduled"
    INSTANTIATING = "instantiating"
    """Its lead time has begun, and not all of its tasks run yet."""
    READY = "ready"
    """It runs before its start."""
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ARCHIVED = "archived"
    """Ended and taken off the lists."""
    TERMINATED = "terminated"
    """Declined or cancelled."""
    EXPIRED = "expired"
    """It could not start within its grace period."""


L = LabState


def lab_state(slot: Timeslot, workload: WorkloadStatus, now: datetime, *, removed: bool = False) -> LabState:
    """Return the phase of a lab; `removed`: its workload was taken off the lists."""
    if slot.status is TimeslotStatus.EXPIRED or workload is WorkloadStatus.EXPIRED:
        return L.EXPIRED
    if workload is WorkloadStatus.TERMINATING:
        return L.STOPPING
    if slot.status in (TimeslotStatus.REFUSED, TimeslotStatus.CANCELLED):
        return L.TERMINATED
    if is_workload_end(workload):
        return _ended(slot, workload, removed=removed)
    if slot.status in (TimeslotStatus.ENDED, TimeslotStatus.RELEASED):
        # Its remaining tasks are being stopped.
        return L.STOPPING
    if slot.status is TimeslotStatus.REQUESTED:
        return L.PENDING
    if workload is WorkloadStatus.RUNNING:
        return L.READY if now < slot.starts_at else L.RUNNING
    return L.INSTANTIATING if slot.status is TimeslotStatus.ACTIVE else L.SCHEDULED


def _ended(slot: Timeslot, workload: WorkloadStatus, *, removed: bool) -> LabState:
    """A lab that was stopped at the end of its timeslot has completed; one that was stopped earlier has not."""
    over = slot.status in (TimeslotStatus.ENDED, TimeslotStatus.RELEASED)
    if workload is WorkloadStatus.CANCELLED and not over:
        return L.TERMINATED
    return L.ARCHIVED if removed else L.STOPPED
