"""Reports: numbered, said once per connection, said again on the next one."""

from __future__ import annotations

from uuid import UUID, uuid4

from mooring.agent.connection.outbox import Outbox
from mooring.agent.reconcile import Finding
from mooring.wire.agents.agent_protocol import TaskReport


def finding(task_id: UUID, status: str, *, ran: bool = False, gone: bool = False) -> Finding:
    return Finding(TaskReport(task_id=task_id, status=status, gone=gone), ran)  # type: ignore[arg-type]


def statuses(outbox: Outbox, *findings: Finding) -> list[str]:
    report = outbox.offer(findings)
    return [task.status for task in report.tasks] if report is not None else []


def test_reports_are_not_repeated_on_the_same_connection():
    outbox, task = Outbox(), uuid4()
    assert statuses(outbox, finding(task, "RUNNING")) == ["RUNNING"]
    assert statuses(outbox, finding(task, "RUNNING")) == []


def test_a_new_connection_hears_everything_again():
    outbox, task = Outbox(), uuid4()
    statuses(outbox, finding(task, "RUNNING"))
    outbox.connected()
    assert statuses(outbox, finding(task, "RUNNING")) == ["RUNNING"]


def test_reports_are_numbered_upwards():
    outbox = Outbox()
    numbers = [report.number for _ in range(3) if (report := outbox.offer([finding(uuid4(), "RUNNING")])) is not None]
    assert numbers == sorted(set(numbers))


def test_an_end_without_an_observed_run_is_reported_through_running():
    outbox, task = Outbox(), uuid4()
    statuses(outbox, finding(task, "PREPARING"))
    assert statuses(outbox, finding(task, "SUCCEEDED", ran=True, gone=True)) == ["RUNNING", "SUCCEEDED"]


def test_an_end_after_running_was_said_comes_alone():
    outbox, task = Outbox(), uuid4()
    statuses(outbox, finding(task, "RUNNING"))
    assert statuses(outbox, finding(task, "FAILED", ran=True, gone=True)) == ["FAILED"]


def test_a_received_end_is_complete_only_when_nothing_remains():
    outbox, task = Outbox(), uuid4()
    first = outbox.offer([finding(task, "FAILED")])
    second = outbox.offer([finding(task, "FAILED", gone=True)])
    assert first is not None
    assert second is not None
    assert outbox.received(first.number) == ()
    assert outbox.received(second.number) == (task,)
    assert outbox.received(second.number) == ()


def test_an_answer_to_a_report_of_an_earlier_connection_is_no_news():
    outbox, task = Outbox(), uuid4()
    report = outbox.offer([finding(task, "SUCCEEDED", gone=True)])
    assert report is not None
    outbox.connected()
    assert outbox.received(report.number) == ()
    assert not outbox.unanswered
