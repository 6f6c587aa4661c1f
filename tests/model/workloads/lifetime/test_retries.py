"""Retries: which failed tasks of a session are replaced, and which failures use up a retry."""

import pytest

from mooring.model.lifecycle import TaskStatus, is_end
from mooring.model.workloads.lifetime.retries import (
    EVICTED,
    PULL_RETRIES,
    is_loss,
    is_replaced_after_loss,
    is_retried,
    uses_retry,
)

T = TaskStatus
LIVING = [status for status in T if not is_end(status)]
ON_A_NODE = {T.SCHEDULED, T.PREPARING, T.RUNNING}


@pytest.mark.parametrize("old", LIVING)
def test_only_tasks_on_a_node_that_are_not_being_stopped_are_requeued(old: TaskStatus):
    assert is_replaced_after_loss(old, T.LOST, "node-lost", type="batch") is (old in ON_A_NODE)
    assert is_retried(old, T.FAILED, 1, failures=0, max_retries=1, retry_on=None) is (old in ON_A_NODE)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        pytest.param(T.LOST, "node-lost", True, id="the node fell silent"),
        pytest.param(T.LOST, None, True, id="lost, nobody says why"),
        pytest.param(T.FAILED, "node-rebooted", True, id="the node was restarted"),
        pytest.param(T.FAILED, "record-lost", True, id="the node forgot it"),
        pytest.param(T.FAILED, "exited", False, id="failed by itself"),
        pytest.param(T.FAILED, "agent-stopped", False, id="stopped with its agent"),
        pytest.param(T.CANCELLED, "node-rebooted", False, id="cancelled"),
        pytest.param(T.SUCCEEDED, None, False, id="succeeded"),
    ],
)
def test_a_loss_is_the_doing_of_a_node(status: TaskStatus, code: str | None, expected: bool):
    assert is_loss(status, code) is expected
    assert is_replaced_after_loss(T.RUNNING, status, code, type="batch") is expected
    assert not is_replaced_after_loss(T.RUNNING, status, code, type="interactive")


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        pytest.param(T.FAILED, "exited", True, id="failed by itself"),
        pytest.param(T.FAILED, None, True, id="failed, nobody says why"),
        pytest.param(T.FAILED, "node-rebooted", False, id="the node was restarted"),
        pytest.param(T.FAILED, EVICTED, False, id="failed while it left"),
        pytest.param(T.LOST, "node-lost", False, id="lost with its node"),
        pytest.param(T.CANCELLED, "stopped", False, id="stopped"),
        pytest.param(T.SUCCEEDED, None, False, id="succeeded"),
    ],
)
def test_only_failures_of_the_task_itself_use_a_retry(status: TaskStatus, code: str | None, expected: bool):
    assert uses_retry(status, code) is expected


@pytest.mark.parametrize(
    ("failures", "exit_code", "retry_on", "expected"),
    [
        pytest.param(0, 1, None, True, id="any code"),
        pytest.param(1, 1, None, True, id="the last retry"),
        pytest.param(2, 1, None, False, id="none left"),
        pytest.param(0, 75, [75], True, id="a code that was named"),
        pytest.param(0, 1, [75], False, id="another code"),
        pytest.param(0, None, [75], False, id="no code at all"),
        pytest.param(0, 1, [], False, id="no code is good for one"),
    ],
)
def test_retries_are_counted_and_depend_on_exit_codes(
    failures: int, exit_code: int | None, retry_on: list[int] | None, expected: bool
):
    found = is_retried(T.RUNNING, T.FAILED, exit_code, failures=failures, max_retries=2, retry_on=retry_on)
    assert found is expected


@pytest.mark.parametrize(
    ("code", "failures", "expected"),
    [
        pytest.param("image-pull-failed", PULL_RETRIES - 1, True, id="the registry did not answer"),
        pytest.param("image-pull-failed", PULL_RETRIES, False, id="it never does"),
        pytest.param("image-not-present", 0, True, id="another node may have it"),
        pytest.param("image-not-found", 0, False, id="there is none"),
        pytest.param("image-denied", 0, False, id="it is not for them"),
        pytest.param("start-failed", 0, False, id="nobody asked for a retry"),
    ],
)
def test_want_of_an_image_is_retried_where_another_try_may_help(code: str, failures: int, expected: bool):
    found = is_retried(T.PREPARING, T.FAILED, None, code, failures=failures, max_retries=0, retry_on=[75])
    assert found is expected
    hopeless = code in ("image-not-found", "image-denied")
    assert is_retried(T.PREPARING, T.FAILED, None, code, failures=0, max_retries=9, retry_on=None) is not hopeless


@pytest.mark.parametrize("new", [T.SUCCEEDED, T.CANCELLED, T.LOST])
def test_only_a_failure_is_retried(new: TaskStatus):
    assert not is_retried(T.RUNNING, new, 1, failures=0, max_retries=1, retry_on=None)
