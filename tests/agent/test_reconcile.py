"""Desired and observed tasks in, actions and reports out."""

from __future__ import annotations

import msgspec
import pytest

from mooring.agent.connection.outbox import Outbox
from mooring.agent.reconcile import Finding, Stop, reconcile
from mooring.agent.runtimes.contract import Progress
from mooring.wire.agents.agent_protocol import LivingTask, TaskReport
from mooring.wire.agents.desired_tasks import DesiredTask
from tests.agent.builders import one, order, seen


def stopping(task: DesiredTask, grace_seconds: int = 5) -> DesiredTask:
    return msgspec.structs.replace(task, action="stop", grace_seconds=grace_seconds)


def test_a_desired_task_that_is_not_here_is_started_and_reported_as_preparing():
    task = order("true")
    plan = reconcile([task], {})
    assert plan.start == (task,)
    assert [finding.report.status for finding in plan.findings] == ["PREPARING"]


def test_a_task_to_prepare_is_made_ready_once_and_said_to_be_so():
    task = msgspec.structs.replace(order("true"), action="prepare")
    plan = reconcile([task], {})
    assert (plan.prepare, plan.start, plan.findings) == ((task,), (), ())
    received = reconcile([task], {}, progress={task.task_id: Progress("pulling web: 1 of 9 MB", 7)})
    report = TaskReport(task_id=task.task_id, status="PREPARING", reason="pulling web: 1 of 9 MB", heard=7)
    assert (received.prepare, received.findings) == ((task,), (Finding(report),))
    ready = reconcile([task], {}, prepared={task.task_id})
    assert (ready.prepare, ready.start) == ((), ())
    assert [finding.report.status for finding in ready.findings] == ["PREPARED"]
    started = msgspec.structs.replace(task, action="run")
    assert reconcile([started], {}, prepared={task.task_id}).start == (started,)


def test_a_task_that_cannot_be_prepared_is_reported_and_not_tried_again():
    task = msgspec.structs.replace(order("true"), action="prepare")
    plan = reconcile([task], one(task, seen("FAILED", gone=True, code="prepare-failed")))
    assert (plan.prepare, plan.start) == ((), ())
    assert [(f.report.status, f.report.code) for f in plan.findings] == [("FAILED", "prepare-failed")]


def test_an_agent_that_leaves_prepares_nothing():
    task = msgspec.structs.replace(order("true"), action="prepare")
    assert reconcile([task], {}, leaving=True).prepare == ()


def test_a_task_that_ran_here_and_is_not_known_any_more_is_reported_and_not_started_again():
    task = msgspec.structs.replace(order("true"), started=True)
    plan = reconcile([task], {})
    assert plan.start == ()
    (finding,) = plan.findings
    assert (finding.report.status, finding.report.gone, finding.report.code) == ("FAILED", True, "record-lost")


@pytest.mark.parametrize("status", ["PREPARING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"])
def test_a_task_that_was_ever_here_is_not_started_again(status):
    task = order("true")
    for acknowledged in (False, True):
        plan = reconcile([task], one(task, seen(status, gone=True, acknowledged=acknowledged)))
        assert plan.start == ()


def test_a_running_task_is_reported_and_not_changed():
    task = order("true")
    plan = reconcile([task], one(task, seen("RUNNING", restarts=2)))
    assert plan.stop == ()
    (finding,) = plan.findings
    assert (finding.report.status, finding.report.restarts) == ("RUNNING", 2)


def test_a_task_to_stop_is_stopped_with_the_grace_of_the_order():
    task = order("true")
    plan = reconcile([stopping(task, 3)], one(task, seen("RUNNING")))
    assert plan.stop == (Stop(task.task_id, 3),)


def test_a_task_being_stopped_gets_no_second_order_unless_it_is_more_urgent():
    task = order("true")
    observed = one(task, seen("RUNNING", stop_grace_seconds=30))
    assert reconcile([stopping(task, 30)], observed).stop == ()
    assert reconcile([stopping(task, 60)], observed).stop == ()
    assert reconcile([stopping(task, 0)], observed).stop == (Stop(task.task_id, 0),)


def test_a_stopping_task_reports_only_its_end():
    task = order("true")
    assert reconcile([stopping(task)], one(task, seen("RUNNING", ran=True))).findings == ()
    (finding,) = reconcile([stopping(task)], one(task, seen("CANCELLED", gone=True, ran=True))).findings
    assert finding.report.status == "CANCELLED"
    assert not finding.ran


def test_a_task_to_stop_that_was_never_here_is_reported_as_cancelled_and_gone():
    task = stopping(order("true"))
    plan = reconcile([task], {})
    assert not plan.start
    assert not plan.stop
    (finding,) = plan.findings
    assert (finding.report.status, finding.report.gone) == ("CANCELLED", True)


def test_an_unlisted_task_is_a_stray_and_continues():
    task = order("true")
    plan = reconcile([], one(task, seen("RUNNING", workload_name="web")))
    assert (plan.stop, plan.findings) == ((), ())
    assert plan.strays == (LivingTask(task_id=task.task_id, workload_name="web"),)
    assert reconcile([task], one(task, seen("RUNNING"))).strays == ()


def test_a_stray_that_may_be_ended_is_stopped_with_its_own_grace_and_its_end_reported():
    task = order("true")
    plan = reconcile([], one(task, seen("RUNNING")), end={task.task_id})
    assert plan.stop == (Stop(task.task_id, None),)
    assert len(plan.strays) == 1
    ended = reconcile([], one(task, seen("CANCELLED", gone=True)), end={task.task_id})
    assert [finding.report.gone for finding in ended.findings] == [True]
    assert ended.strays == ()


def test_a_listed_task_is_not_ended_as_a_stray():
    task = order("true")
    assert reconcile([task], one(task, seen("RUNNING")), end={task.task_id}).stop == ()


def test_an_agent_that_leaves_with_its_tasks_ends_strays_too():
    task = order("true")
    plan = reconcile([], one(task, seen("RUNNING")), leaving=True)
    assert plan.stop == (Stop(task.task_id, cause="agent-stopped"),)


def test_an_end_is_reported_until_it_is_acknowledged():
    task = order("true")
    ended = seen("SUCCEEDED", gone=True, ran=True, exit_code=0)
    assert len(reconcile([], one(task, ended)).findings) == 1
    acknowledged = seen("SUCCEEDED", gone=True, ran=True, exit_code=0, acknowledged=True)
    assert reconcile([], one(task, acknowledged)).findings == ()


def test_an_acknowledged_end_is_reported_again_to_a_server_that_still_lists_the_task():
    task = order("true")
    acknowledged = seen("FAILED", gone=True, exit_code=3, acknowledged=True)
    (finding,) = reconcile([task], one(task, acknowledged)).findings
    assert (finding.report.status, finding.report.exit_code) == ("FAILED", 3)


def test_a_task_that_was_stopped_has_failed_for_a_server_that_wants_it_to_run():
    """As after a restore: it would not accept an unrequested cancellation, and the task would run indefinitely."""
    task = order("true", started=True)
    stopped = seen("CANCELLED", gone=True, ran=True, exit_code=143, code="stopped", acknowledged=True)
    (finding,) = reconcile([task], one(task, stopped)).findings
    report = finding.report
    assert (report.status, report.gone, report.exit_code, report.code) == ("FAILED", True, 143, "stop-forgotten")
    (finding,) = reconcile([stopping(task)], one(task, stopped)).findings
    assert (finding.report.status, finding.report.code) == ("CANCELLED", "stopped")


def test_an_end_with_remaining_processes_is_not_reported_as_gone():
    task = order("true")
    (finding,) = reconcile([task], one(task, seen("FAILED", gone=False))).findings
    assert not finding.report.gone


def test_an_agent_that_leaves_with_its_tasks_starts_none_and_stops_all_as_its_own_doing():
    waiting, running = order("true"), order("true")
    plan = reconcile([waiting, running], one(running, seen("RUNNING")), leaving=True)
    assert plan.start == ()
    assert plan.stop == (Stop(running.task_id, None, "agent-stopped"),)


def test_a_task_already_being_stopped_is_not_stopped_again_when_the_agent_leaves():
    task = order("true")
    assert reconcile([task], one(task, seen("RUNNING", stop_grace_seconds=5)), leaving=True).stop == ()


def test_many_tasks_are_each_treated_by_their_own_order():
    new, running, ending, foreign = (order("true") for _ in range(4))
    observed = {task.task_id: seen("RUNNING") for task in (running, ending, foreign)}
    plan = reconcile([new, running, stopping(ending)], observed)
    assert plan.start == (new,)
    assert {stop.task_id for stop in plan.stop} == {ending.task_id}
    assert {stray.task_id for stray in plan.strays} == {foreign.task_id}
    assert {finding.report.task_id for finding in plan.findings} == {new.task_id, running.task_id}


def test_the_state_of_a_running_task_is_reported_and_again_when_it_changes():
    task, outbox = order("true"), Outbox()
    known = {"digests": {"main": "sha256:1"}, "address": "10.0.0.2"}
    plan = reconcile([task], one(task, seen("RUNNING", ready=False, **known)))
    (report,) = (finding.report for finding in plan.findings)
    assert (report.ready, report.digests, report.address) == (False, {"main": "sha256:1"}, "10.0.0.2")
    assert outbox.offer(plan.findings) is not None
    assert outbox.offer(plan.findings) is None
    ready = outbox.offer(reconcile([task], one(task, seen("RUNNING", **known))).findings)
    assert ready is not None
    assert [received.ready for received in ready.tasks] == [True]
