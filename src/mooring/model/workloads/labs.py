"""The life of a lab, as a view: what its timeslot and its workload together mean to whoever booked it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from mooring.model.lifecycle import WorkloadStatus, is_workload_end
from mooring.model.timeslots import Timeslot, TimeslotStatus


class LabState(StrEnum):
    PENDING = "pending"
    """Whether it gets its room is not decided yet."""
    SCHEDULED = "scheduled"
    INSTANTIATING = "instantiating"
    """Its lead has begun, and not all of it runs yet."""
    READY = "ready"
    """It runs before its time begins."""
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ARCHIVED = "archived"
    """Ended and taken off the lists."""
    TERMINATED = "terminated"
    """Refused, or given up by whoever may."""
    EXPIRED = "expired"
    """It could not start within its grace."""


L = LabState


def lab_state(slot: Timeslot, workload: WorkloadStatus, now: datetime, *, removed: bool = False) -> LabState:
    """`removed`: its workload was taken off the lists."""
    if slot.status is TimeslotStatus.EXPIRED or workload is WorkloadStatus.EXPIRED:
        return L.EXPIRED
    if workload is WorkloadStatus.TERMINATING:
        return L.STOPPING
    if slot.status in (TimeslotStatus.REFUSED, TimeslotStatus.CANCELLED):
        return L.TERMINATED
    if is_workload_end(workload):
        return _ended(slot, workload, removed=removed)
    if slot.status in (TimeslotStatus.ENDED, TimeslotStatus.RELEASED):
        # What is left of it is on its way out.
        return L.STOPPING
    if slot.status is TimeslotStatus.REQUESTED:
        return L.PENDING
    if workload is WorkloadStatus.RUNNING:
        return L.READY if now < slot.starts_at else L.RUNNING
    return L.INSTANTIATING if slot.status is TimeslotStatus.ACTIVE else L.SCHEDULED


def _ended(slot: Timeslot, workload: WorkloadStatus, *, removed: bool) -> LabState:
    """A lab that was stopped since its time was over has done its work; one that was stopped before has not."""
    over = slot.status in (TimeslotStatus.ENDED, TimeslotStatus.RELEASED)
    if workload is WorkloadStatus.CANCELLED and not over:
        return L.TERMINATED
    return L.ARCHIVED if removed else L.STOPPED
