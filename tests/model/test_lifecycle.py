"""The one table of legal edges, and a workload's status as its tasks make it."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.lifecycle import (
    ACTIVE,
    AGENT_REPORTS,
    OCCUPYING,
    TASK_EDGES,
    USING,
    WORKLOAD_EDGES,
    TaskStatus,
    WorkloadStatus,
    derive,
    is_end,
    is_legal,
    is_workload_end,
)

T, W = TaskStatus, WorkloadStatus


def test_every_status_stands_in_the_tables():
    assert set(TASK_EDGES) == set(T)
    assert set(WORKLOAD_EDGES) == set(W)


@pytest.mark.parametrize("status", T)
def test_an_end_is_final_and_everything_else_can_end(status: TaskStatus):
    if is_end(status):
        assert TASK_EDGES[status] == frozenset()
        return
    reached, frontier = {status}, [status]
    while frontier:
        for following in TASK_EDGES[frontier.pop()] - reached:
            reached.add(following)
            frontier.append(following)
    assert any(is_end(found) for found in reached)


def test_the_legal_edges_are_these_and_no_others():
    legal = {
        "PENDING": "RESERVED SCHEDULED CANCELLED FAILED",
        "RESERVED": "PENDING SCHEDULED CANCELLED FAILED",
        "SCHEDULED": "PREPARING RUNNING TERMINATING FAILED LOST",
        "PREPARING": "RUNNING TERMINATING SUCCEEDED FAILED LOST",
        "RUNNING": "TERMINATING SUCCEEDED FAILED LOST",
        "TERMINATING": "SUCCEEDED FAILED CANCELLED LOST",
    }
    expected = {(T(old), T(new)) for old, ends in legal.items() for new in ends.split()}
    assert {(old, new) for old, new in product(T, T) if is_legal(old, new)} == expected


def test_an_ended_workload_never_restarts():
    for status in W:
        assert (WORKLOAD_EDGES[status] == frozenset()) is is_workload_end(status)


def test_the_groups_of_statuses_agree_with_the_edges():
    assert OCCUPYING | {T.PENDING} | {status for status in T if is_end(status)} == set(T)
    assert OCCUPYING > USING
    assert set(T) - ACTIVE == {T.TERMINATING, *(status for status in T if is_end(status))}
    assert T.SCHEDULED not in AGENT_REPORTS
    assert T.LOST not in AGENT_REPORTS


JOB = {"service": False, "stopping": False}
ARRAY = {"service": False, "stopping": False, "array": True}
SERVICE = {"service": True, "stopping": False}


@pytest.mark.parametrize(
    ("current", "tasks", "options", "expected"),
    [
        pytest.param(W.PENDING, [T.PENDING, T.PENDING], SERVICE, W.PENDING, id="nothing placed yet"),
        pytest.param(W.PENDING, [T.SCHEDULED, T.PENDING], SERVICE, W.PENDING, id="half placed, the rest speaks"),
        pytest.param(W.PENDING, [T.SCHEDULED, T.SCHEDULED], SERVICE, W.SCHEDULED, id="all placed"),
        pytest.param(W.SCHEDULED, [T.PREPARING, T.SCHEDULED], JOB, W.SCHEDULED, id="one is being prepared"),
        pytest.param(W.SCHEDULED, [T.PREPARING, T.RUNNING], JOB, W.PREPARING, id="one runs, one is being prepared"),
        pytest.param(W.PREPARING, [T.RUNNING, T.RUNNING], JOB, W.RUNNING, id="all run"),
        pytest.param(W.RESERVED, [T.RESERVED, T.RESERVED], JOB, W.RESERVED, id="held for later"),
        pytest.param(W.RUNNING, [T.RUNNING, T.PENDING], SERVICE, W.RUNNING, id="degraded service goes on"),
        pytest.param(W.RUNNING, [T.RUNNING, T.FAILED], SERVICE, W.RUNNING, id="service with a failed replica"),
        pytest.param(W.RUNNING, [T.FAILED, T.LOST], SERVICE, W.PENDING, id="service with nothing left starts anew"),
        pytest.param(W.RUNNING, [T.SUCCEEDED, T.SUCCEEDED], SERVICE, W.PENDING, id="a service does not succeed"),
        pytest.param(W.RUNNING, [T.SUCCEEDED, T.RUNNING], JOB, W.RUNNING, id="job with one task done"),
        pytest.param(W.PREPARING, [T.SUCCEEDED, T.RUNNING], JOB, W.RUNNING, id="done before the last one ran"),
        pytest.param(W.RUNNING, [T.SUCCEEDED, T.SUCCEEDED], JOB, W.SUCCEEDED, id="job done"),
        pytest.param(W.RUNNING, [T.FAILED, T.RUNNING], JOB, W.TERMINATING, id="job with a failed task stops"),
        pytest.param(W.PENDING, [T.FAILED, T.PENDING], JOB, W.TERMINATING, id="failed before the rest was placed"),
        pytest.param(W.TERMINATING, [T.FAILED, T.CANCELLED], JOB, W.FAILED, id="job with a failed task ended"),
        pytest.param(W.RUNNING, [T.FAILED, T.SUCCEEDED], JOB, W.FAILED, id="one failed, one succeeded"),
        pytest.param(W.RUNNING, [T.LOST, T.RUNNING], JOB, W.TERMINATING, id="job with a lost task stops"),
        pytest.param(W.TERMINATING, [T.LOST, T.CANCELLED], JOB, W.FAILED, id="job with a lost task fails"),
        pytest.param(
            W.RUNNING, [T.TERMINATING, T.RUNNING], {**JOB, "stopping": True}, W.TERMINATING, id="stopping, alive"
        ),
        pytest.param(
            W.TERMINATING, [T.CANCELLED, T.SUCCEEDED], {**JOB, "stopping": True}, W.CANCELLED, id="stopped job"
        ),
        pytest.param(
            W.TERMINATING, [T.TERMINATING, T.FAILED], {**SERVICE, "stopping": True}, W.TERMINATING,
            id="stopping service, one left",
        ),
        pytest.param(
            W.TERMINATING, [T.CANCELLED, T.FAILED], {**SERVICE, "stopping": True}, W.CANCELLED, id="stopped service"
        ),
        pytest.param(W.RUNNING, [T.FAILED, T.PENDING], ARRAY, W.PENDING, id="array with a failed index goes on"),
        pytest.param(W.PENDING, [T.RUNNING, T.PENDING], ARRAY, W.RUNNING, id="array of which something runs"),
        pytest.param(W.RUNNING, [T.LOST, T.TERMINATING], ARRAY, W.TERMINATING, id="array whose last index leaves"),
        pytest.param(W.RUNNING, [T.SUCCEEDED, T.SUCCEEDED], ARRAY, W.SUCCEEDED, id="array done"),
        pytest.param(W.RUNNING, [T.SUCCEEDED, T.FAILED], ARRAY, W.FAILED, id="array with a failed index ended"),
        pytest.param(
            W.RUNNING, [T.RUNNING, T.CANCELLED], {**ARRAY, "stopping": True}, W.TERMINATING, id="stopping array"
        ),
    ],
)  # fmt: skip
def test_a_workload_is_what_its_tasks_make_it(current: WorkloadStatus, tasks, options, expected: WorkloadStatus):
    assert derive(current, tasks, desired=len(tasks), **options) is expected


def test_a_scaled_service_keeps_running_while_new_replicas_start():
    up = [T.RUNNING, T.PENDING, T.SCHEDULED]
    assert derive(W.RUNNING, up, desired=3, service=True, stopping=False) is W.RUNNING
    assert derive(W.RUNNING, [T.RUNNING], desired=1, service=True, stopping=False) is W.RUNNING


@given(
    st.sampled_from([status for status in W if not is_workload_end(status)]),
    st.lists(st.sampled_from(T), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_deriving_again_changes_nothing(
    current: WorkloadStatus, tasks: list[TaskStatus], service: bool, stopping: bool
):
    once = derive(current, tasks, desired=len(tasks), service=service, stopping=stopping)
    assert derive(once, tasks, desired=len(tasks), service=service, stopping=stopping) is once


@given(
    st.sampled_from([status for status in W if not is_workload_end(status)]),
    st.lists(st.sampled_from(T), min_size=1, max_size=6),
    st.booleans(),
)
def test_the_status_of_an_array_depends_on_the_set_of_task_statuses(
    current: WorkloadStatus, tasks: list[TaskStatus], stopping: bool
):
    counted = derive(current, tasks, desired=len(tasks), service=False, stopping=stopping, array=True)
    assert derive(current, set(tasks), desired=1, service=False, stopping=stopping, array=True) is counted


@given(st.lists(st.sampled_from(T), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_a_workload_ends_only_when_no_task_lives(tasks: list[TaskStatus], service: bool, stopping: bool):
    found = derive(W.RUNNING, tasks, desired=len(tasks), service=service, stopping=stopping)
    if is_workload_end(found):
        assert all(is_end(task) for task in tasks)
    if stopping and all(is_end(task) for task in tasks):
        assert is_workload_end(found)
