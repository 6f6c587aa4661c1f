"""The state of a lab: what its timeslot and its workload mean together, and that it never goes back."""

from datetime import UTC, datetime, timedelta
from itertools import product
from uuid import UUID

import pytest

from mooring.model.calendar.timeslots import (
    OVER,
    TIMESLOT_EDGES,
    Timeslot,
    TimeslotKind,
    TimeslotStatus,
)
from mooring.model.lifecycle import WORKLOAD_EDGES, WorkloadStatus, is_workload_end
from mooring.model.workloads.lifetime.labs import LabState, lab_state

L, S, W = LabState, TimeslotStatus, WorkloadStatus
START = datetime(2026, 5, 1, 10, tzinfo=UTC)
BEFORE, DURING = START - timedelta(minutes=10), START


def state(slot: TimeslotStatus, workload: WorkloadStatus, now: datetime = BEFORE, *, removed: bool = False) -> LabState:
    booked = Timeslot(UUID(int=1), "lab", TimeslotKind.LAB, "default", slot, START, START + timedelta(hours=1))
    return lab_state(booked, workload, now, removed=removed)


@pytest.mark.parametrize(
    ("slot", "workload", "now", "expected"),
    [
        (S.REQUESTED, W.PENDING, BEFORE, L.PENDING),
        (S.REFUSED, W.CANCELLED, BEFORE, L.TERMINATED),
        (S.CONFIRMED, W.PENDING, BEFORE, L.SCHEDULED),
        (S.AT_RISK, W.PENDING, BEFORE, L.SCHEDULED),
        (S.ACTIVE, W.PENDING, BEFORE, L.INSTANTIATING),
        (S.ACTIVE, W.SCHEDULED, BEFORE, L.INSTANTIATING),
        (S.ACTIVE, W.PREPARING, DURING, L.INSTANTIATING),
        (S.ACTIVE, W.RUNNING, BEFORE, L.READY),
        (S.ACTIVE, W.RUNNING, DURING, L.RUNNING),
        (S.AT_RISK, W.RUNNING, DURING, L.RUNNING),
        (S.ACTIVE, W.TERMINATING, DURING, L.STOPPING),
        (S.ENDED, W.RUNNING, DURING, L.STOPPING),
        (S.ENDED, W.TERMINATING, DURING, L.STOPPING),
        (S.ENDED, W.CANCELLED, DURING, L.STOPPED),
        (S.ENDED, W.SUCCEEDED, DURING, L.STOPPED),
        (S.ACTIVE, W.SUCCEEDED, DURING, L.STOPPED),
        (S.ACTIVE, W.FAILED, DURING, L.STOPPED),
        (S.ACTIVE, W.CANCELLED, DURING, L.TERMINATED),
        (S.CANCELLED, W.CANCELLED, DURING, L.TERMINATED),
        (S.CANCELLED, W.TERMINATING, DURING, L.STOPPING),
        (S.EXPIRED, W.PENDING, DURING, L.EXPIRED),
        (S.EXPIRED, W.EXPIRED, DURING, L.EXPIRED),
    ],
)
def test_a_state_follows_from_both(slot: TimeslotStatus, workload: WorkloadStatus, now: datetime, expected: LabState):
    assert state(slot, workload, now) is expected


def test_one_that_was_stopped_and_taken_off_the_lists_is_archived():
    assert state(S.ENDED, W.SUCCEEDED, removed=True) is L.ARCHIVED
    assert state(S.ENDED, W.CANCELLED, removed=True) is L.ARCHIVED
    assert state(S.CANCELLED, W.CANCELLED, removed=True) is L.TERMINATED


def test_every_pair_of_statuses_has_a_state():
    for slot, workload, now, removed in product(S, W, (BEFORE, DURING), (False, True)):
        assert isinstance(state(slot, workload, now, removed=removed), L)


def test_an_ended_task_stays_ended():
    ended = {L.TERMINATED, L.EXPIRED, L.ARCHIVED, L.STOPPED}
    for slot, workload in product(S, W):
        if state(slot, workload) in ended and is_workload_end(workload):
            for next_slot in TIMESLOT_EDGES[slot]:
                assert state(next_slot, workload) in ended


def test_before_its_lead_a_lab_is_never_said_to_run():
    for slot in (S.REQUESTED, S.CONFIRMED):
        assert state(slot, W.PENDING, DURING) in (L.PENDING, L.SCHEDULED)


def test_work_of_an_ended_timeslot_only_stops():
    for slot, workload in product(OVER, W):
        assert state(slot, workload, DURING) in {L.STOPPING, L.STOPPED, L.TERMINATED, L.EXPIRED}
        assert not any(is_workload_end(workload) and WORKLOAD_EDGES[workload] for workload in W)
