"""The health of a workload never reads better than its tasks are."""

from datetime import timedelta

import pytest

from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.lifetime.health import RAN_WELL, Health, Members, Trouble, crashes_after, health_of
from tests.store.harness import LONG_AGO

ALL_UP = Members(wanted=3, running=3, ready=3)
TWO_UP = Members(wanted=3, running=2, ready=2)
NONE_WANTED = Members(wanted=0, running=1, ready=1)
UNREADY = Members(wanted=3, running=3, ready=2)


def trouble(looping: int, code: str = "exited") -> Trouble:
    return Trouble(looping, 4, 1, code, "exited with code 1", None)


@pytest.mark.parametrize(
    ("kind", "status", "members", "found", "health"),
    [
        pytest.param("deployment", "RUNNING", ALL_UP, None, Health.HEALTHY, id="all ready"),
        pytest.param("deployment", "RUNNING", TWO_UP, None, Health.DEGRADED, id="one missing"),
        pytest.param("deployment", "RUNNING", UNREADY, None, Health.DEGRADED, id="one not ready"),
        pytest.param("deployment", "RUNNING", ALL_UP, trouble(1), Health.CRASH_LOOPING, id="up between two crashes"),
        pytest.param("deployment", "PENDING", TWO_UP, trouble(1), Health.CRASH_LOOPING, id="backs off"),
        pytest.param("deployment", "PENDING", TWO_UP, trouble(0), Health.STARTING, id="crashed once"),
        pytest.param(
            "deployment", "PENDING", TWO_UP, trouble(1, "image-not-found"), Health.IMAGE_PULL_FAILING, id="no image"
        ),
        pytest.param("deployment", "RUNNING", NONE_WANTED, None, Health.SCALED_TO_ZERO, id="scaled to 0"),
        pytest.param("deployment", "TERMINATING", NONE_WANTED, None, None, id="stopped at 0"),
        pytest.param("session", "RUNNING", TWO_UP, None, Health.DEGRADED, id="a gang that lost a task"),
        pytest.param("session", "RUNNING", Members(3, 1, 1, succeeded=2), None, Health.HEALTHY, id="others are done"),
        pytest.param("session", "FAILED", TWO_UP, trouble(1), None, id="ended"),
        pytest.param("deployment", "TERMINATING", TWO_UP, trouble(1), None, id="being stopped"),
    ],
)
def test_health_follows_from_the_tasks(kind: str, status: str, members: Members, found: Trouble, health: Health):
    assert health_of(kind, status, members, found) is health


def test_an_array_is_degraded_by_a_failed_task_and_not_by_pending_ones():
    def health(**counts: int) -> Health | None:
        return health_of("session", "RUNNING", Members(wanted=100, running=1, ready=1, **counts), None, array=True)

    assert health() is Health.HEALTHY
    assert health(failed=1) is Health.DEGRADED


@pytest.mark.parametrize(
    ("status", "ran", "own", "crashes"),
    [
        (TaskStatus.FAILED, timedelta(seconds=1), 0, 4),
        (TaskStatus.SUCCEEDED, timedelta(seconds=1), 0, 4),
        (TaskStatus.FAILED, None, 0, 4),
        (TaskStatus.FAILED, RAN_WELL, 0, 0),
        # Its agent counted crashes between restarts, however long it was there in all.
        (TaskStatus.FAILED, RAN_WELL * 2, 6, 9),
        (TaskStatus.LOST, timedelta(seconds=1), 0, 3),
    ],
)
def test_ends_soon_after_a_start_are_counted_until_one_ran_well(
    status: TaskStatus, ran: timedelta | None, own: int, crashes: int
):
    started = None if ran is None else LONG_AGO - ran
    assert crashes_after(status, started, LONG_AGO, earlier=3, own=own) == crashes
