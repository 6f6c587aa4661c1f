"""Next steps of a task, for every order in which its containers may start and end."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.agent.runtimes.container.record import Stopping, TaskRecord, of
from mooring.agent.runtimes.container.state_machine import (
    ContainerState,
    NextSteps,
    Send,
    Start,
    crashes,
    decided,
    last_exit,
    next_steps,
    passed,
)
from mooring.agent.runtimes.outcome import outcome
from mooring.agent.runtimes.records import ContainerExit
from mooring.wire.agents.desired_tasks import EndWarning
from tests.agent.runtimes.container.conftest import container, order

NOW = 1000.0


def record(task: Any = None, **changes: Any) -> TaskRecord:
    made = of(task if task is not None else order("work"), "boot")
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def running() -> ContainerState:
    return ContainerState("id", "running", started_at=NOW - 10)


def ended(exit_code: int, at: float = NOW, **changes: Any) -> ContainerState:
    return ContainerState("id", "ended", exit_code=exit_code, started_at=NOW - 10, ended_at=at, **changes)


def test_init_containers_come_one_after_the_other_and_sidecars_stay():
    task = order(init_containers=[container(name="first"), container(name="beside", sidecar=True)])
    stored = record(task)
    assert next_steps(stored, {}, NOW).steps == (Start("first"),)
    assert next_steps(stored, {"first": running()}, NOW) == NextSteps()
    seen = {"first": ended(0)}
    stored.passed = passed(stored, seen)
    assert next_steps(stored, seen, NOW).steps == (Start("beside"),)
    assert next_steps(stored, {**seen, "beside": running()}, NOW).steps == (Start("main"),)
    # Somebody removes what has ended: it is not run a second time.
    stored.started, stored.ran = ["first", "beside", "main"], True
    assert next_steps(stored, {"beside": running(), "main": running()}, NOW) == NextSteps()


def test_an_init_container_that_fails_ends_the_task_or_is_tried_again():
    task = order(init_containers=[container(name="first")])
    step = next_steps(record(task), {"first": ended(1)}, NOW)
    assert (step.failed, step.stopping) == ("first", Stopping(kill_at=NOW + 5))
    again = order(init_containers=[container(name="first")], restart="on-failure", max_restarts=2)
    assert next_steps(record(again), {"first": ended(1)}, NOW) == NextSteps(due=NOW + 1)
    assert next_steps(record(again), {"first": ended(1)}, NOW + 1).steps == (Start("first", again=True),)
    # The second restart waits twice as long.
    assert next_steps(record(again, restarts={"first": 1}), {"first": ended(1)}, NOW + 1) == NextSteps(due=NOW + 2)
    assert next_steps(record(again, restarts={"first": 2}), {"first": ended(1)}, NOW).failed == "first"


@pytest.mark.parametrize(
    ("policy", "exit_code", "again"),
    [("never", 1, False), ("on-failure", 1, True), ("on-failure", 0, False), ("always", 0, True), ("always", 1, True)],
)
def test_the_restart_policy_decides_whether_a_container_is_restarted(policy: str, exit_code: int, again: bool):
    stored = record(order(restart=policy, max_restarts=3), started=["main"], ran=True)
    step = next_steps(stored, {"main": ended(exit_code, at=NOW - 60)}, NOW)
    assert step.steps == ((Start("main", again=True),) if again else ())
    assert (step.stopping is None) is again


def test_the_first_that_fails_ends_the_others_and_sidecars_end_last():
    task = order(
        containers=[container(), container(name="other")], init_containers=[container(name="log", sidecar=True)]
    )
    stored = record(task, started=["log", "main", "other"], ran=True)
    seen = {"log": running(), "main": running(), "other": ended(2)}
    step = next_steps(stored, seen, NOW)
    stored.stop, stored.failed = step.stopping, step.failed
    assert next_steps(stored, seen, NOW).steps == (Send("main", "TERM"),)
    assert stored.stop is not None
    stored.stop.signalled.append("main")
    assert next_steps(stored, seen, NOW) == NextSteps(due=NOW + 5)
    seen["main"] = ended(143)
    assert next_steps(stored, seen, NOW).steps == (Send("log", "TERM"),)
    assert next_steps(stored, seen, NOW + 5).steps == (Send("log", "KILL"),)
    seen["log"] = ended(137)
    end = next_steps(stored, seen, NOW).outcome
    assert end is not None
    found = outcome(end)
    assert (found.status, found.exit_code, found.reason) == ("FAILED", 2, "container 'other': exited with code 2")


def test_those_that_share_a_network_are_started_again_with_the_one_that_has_it():
    task = order(containers=[container(), container(name="other")], restart="on-failure", max_restarts=3)
    stored = record(task, started=["main", "other"], ran=True)
    # The holder waits for its restart: until then the other cannot come back.
    both = {"main": ended(1, at=NOW - 0.5), "other": ended(1, at=NOW - 60)}
    assert next_steps(stored, both, NOW) == NextSteps(due=NOW + 0.5)
    stored.rejoin = ["other"]
    assert next_steps(stored, {"main": running(), "other": ended(137)}, NOW).steps == (Start("other"),)
    # It has ended well and for good: who shared its network cannot be started again.
    over = {"main": ended(0), "other": ended(1)}
    assert next_steps(record(task, started=["main", "other"], ran=True), over, NOW).failed == "other"


def test_a_stop_that_was_asked_for_is_no_failure():
    stored = record(started=["main"], ran=True, stop=Stopping(kill_at=NOW + 5, cause="requested"))
    assert next_steps(stored, {"main": running()}, NOW) == NextSteps((Send("main", "TERM"),), due=NOW + 5)
    end = next_steps(stored, {"main": ended(143)}, NOW).outcome
    assert end is not None
    assert outcome(end).status == "CANCELLED"
    never = next_steps(record(stop=Stopping(kill_at=NOW, cause="requested")), {}, NOW).outcome
    assert never is not None
    assert (outcome(never).status, never.ran) == ("CANCELLED", False)


def test_a_stop_does_not_change_the_outcome_of_an_ended_task():
    stored = record(started=["main"], ran=True)
    assert decided(stored, {"main": ended(0)})
    assert not decided(stored, {"main": running()})
    assert decided(record(failed="main"), {"main": running()})


def test_a_container_removed_from_outside_is_not_started_again():
    stored = record(started=["main"], ran=True)
    step = next_steps(stored, {}, NOW)
    assert step.failed == "main"
    stored.stop, stored.failed = step.stopping, step.failed
    end = next_steps(stored, {}, NOW).outcome
    assert end is not None
    assert outcome(end).code == "container-removed"


def test_an_oom_kill_is_reported_by_the_engine_or_by_the_kernel():
    for changes, seen in (({}, ended(137, out_of_memory=True)), ({"starved": ["main"]}, ended(137))):
        stored = record(started=["main"], ran=True, failed="main", stop=Stopping(kill_at=NOW), **changes)
        end = next_steps(stored, {"main": seen}, NOW).outcome
        assert end is not None
        assert outcome(end).code == "out-of-memory"


def test_a_warning_is_given_once_at_its_time():
    stored = record(started=["main"], ran=True, warning=EndWarning(at=NOW, signal="USR1"))
    assert next_steps(stored, {"main": running()}, NOW - 1) == NextSteps(due=NOW)
    assert next_steps(stored, {"main": running()}, NOW).steps == (Send("main", "USR1"),)
    stored.warned_at = NOW
    assert next_steps(stored, {"main": running()}, NOW) == NextSteps()


def test_an_interrupted_restart_continues():
    stored = record(order(restart="always", max_restarts=3), started=["main"], ran=True, restarts={"main": 1})
    set_up = ContainerState("id", "created", started_at=NOW - 10)
    assert next_steps(stored, {"main": set_up}, NOW).steps == (Start("main"),)
    assert not decided(stored, {"main": set_up})


def test_crashes_in_a_row_are_counted_until_a_container_ran_well():
    stored = record(order("work", restart="always", max_restarts=9), crashes={"main": 2}, restarts={"main": 2})
    assert crashes(stored, {"main": running()}) == 2
    assert crashes(stored, {"main": ended(1)}) == 3
    assert crashes(stored, {"main": ended(1, at=NOW + 3600)}) == 0


def test_a_container_that_waits_for_its_restart_reports_its_exit_and_the_time_of_the_restart():
    stored = record(order("work", restart="always", max_restarts=9), restarts={"main": 2})
    # The third restart comes 4 seconds after the end.
    found = last_exit(stored, {"main": ended(137, out_of_memory=True)})
    assert found == ContainerExit(exit_code=137, signal=9, out_of_memory=True, retry_at=NOW + 4)
    stored.last_exit = ContainerExit(exit_code=1)
    assert last_exit(stored, {"main": running()}) == ContainerExit(exit_code=1)
