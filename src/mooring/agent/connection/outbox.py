"""Reports that have not reached the server: numbered, sent once per connection, until they are durable."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from mooring.agent.reconcile import Finding
from mooring.wire.agents.agent_protocol import Report, TaskReport


class Outbox:
    """State rather than messages: the current state is offered again on a new connection, so nothing can be lost."""

    def __init__(self) -> None:
        self._number = 0
        self._sent: dict[UUID, TaskReport] = {}
        self._waiting: dict[int, tuple[TaskReport, ...]] = {}

    def connected(self) -> None:
        """Start a new connection: the server may have missed any earlier report."""
        self._sent.clear()
        self._waiting.clear()

    def offer(self, findings: Iterable[Finding]) -> Report | None:
        """Return a report of the findings that were not sent on this connection yet, or None."""
        tasks: list[TaskReport] = []
        mentioned: set[UUID] = set()
        for finding in findings:
            report = finding.report
            mentioned.add(report.task_id)
            before = self._sent.get(report.task_id)
            if before == report:
                continue
            if finding.ran and (before is None or before.status == "PREPARING"):
                # A short command may end before it was seen running; its end is still reported after RUNNING.
                tasks.append(TaskReport(task_id=report.task_id, status="RUNNING", restarts=report.restarts))
            tasks.append(report)
            self._sent[report.task_id] = report
        for task_id in self._sent.keys() - mentioned:
            del self._sent[task_id]
        if not tasks:
            return None
        self._number += 1
        self._waiting[self._number] = tuple(tasks)
        return Report(number=self._number, tasks=tasks)

    def received(self, number: int) -> tuple[UUID, ...]:
        """Mark a report as durable, and return the tasks whose end the server now knows and that are gone."""
        tasks = self._waiting.pop(number, ())
        ends = ("SUCCEEDED", "FAILED", "CANCELLED")
        return tuple(report.task_id for report in tasks if report.gone and report.status in ends)

    @property
    def unanswered(self) -> bool:
        return bool(self._waiting)
