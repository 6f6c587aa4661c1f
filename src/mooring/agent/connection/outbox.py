"""Which reports still have to reach the server: numbered, never twice on one connection, until they are durable."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from mooring.agent.reconcile import Finding
from mooring.wire.agent import Report, TaskReport


class Outbox:
    """State rather than messages: what is true now is offered again on a new connection, so nothing can be lost."""

    def __init__(self) -> None:
        self._number = 0
        self._sent: dict[UUID, TaskReport] = {}
        self._waiting: dict[int, tuple[TaskReport, ...]] = {}

    def connected(self) -> None:
        """A new connection: the server may have missed anything that was sent before."""
        self._sent.clear()
        self._waiting.clear()

    def offer(self, findings: Iterable[Finding]) -> Report | None:
        """The report to send: what this connection has not said yet."""
        tasks: list[TaskReport] = []
        mentioned: set[UUID] = set()
        for finding in findings:
            report = finding.report
            mentioned.add(report.task_id)
            before = self._sent.get(report.task_id)
            if before == report:
                continue
            if finding.ran and (before is None or before.status == "PREPARING"):
                # A short command may end before anyone saw it run; the end is reached through RUNNING all the same.
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
        """The report is durable: the tasks whose end the server now knows, with nothing of them left here."""
        tasks = self._waiting.pop(number, ())
        ends = ("SUCCEEDED", "FAILED", "CANCELLED")
        return tuple(report.task_id for report in tasks if report.gone and report.status in ends)

    @property
    def unanswered(self) -> bool:
        return bool(self._waiting)
