"""Reconciliation of a node: desired and observed tasks in, actions and reports out. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from uuid import UUID

from mooring.agent.runtimes.contract import Observed, Progress, StopCause
from mooring.wire.agents.agent_protocol import LivingTask, TaskReport
from mooring.wire.agents.desired_tasks import DesiredTask, EndWarning


@dataclass(frozen=True, slots=True)
class Stop:
    task_id: UUID
    grace_seconds: int | None = None
    """None: the grace period of the task."""
    cause: StopCause = "requested"


@dataclass(frozen=True, slots=True)
class Finding:
    """A report that is due. `ran`: the server expects a report of RUNNING before this end."""

    report: TaskReport
    ran: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    prepare: tuple[DesiredTask, ...] = ()
    start: tuple[DesiredTask, ...] = ()
    stop: tuple[Stop, ...] = ()
    warn: tuple[tuple[UUID, EndWarning], ...] = ()
    findings: tuple[Finding, ...] = ()
    strays: tuple[LivingTask, ...] = ()
    """Living tasks that the server does not list."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The actions and the report that one task needs."""

    prepare: DesiredTask | None = None
    start: DesiredTask | None = None
    stop: Stop | None = None
    warning: EndWarning | None = None
    finding: Finding | None = None


def reconcile(
    desired: Iterable[DesiredTask],
    observed: Mapping[UUID, Observed],
    *,
    prepared: Set[UUID] = frozenset(),
    progress: Mapping[UUID, Progress] | None = None,
    end: Set[UUID] = frozenset(),
    leaving: bool = False,
) -> Plan:
    """Return the actions that bring the node from the observed to the desired tasks, and the reports that are due.

    `prepared` are the tasks that are ready to be started; `progress` is that of the tasks being prepared. `end` are the
    strays that may be stopped: others run on, since a restored database may have lost them. `leaving`: the agent stops
    together with its tasks, so that all are stopped and none is started.
    """
    orders = {task.task_id: task for task in desired}
    steps: dict[UUID, _Step] = {}
    for task_id, order in orders.items():
        if task_id not in observed:
            steps[task_id] = _absent(order, task_id in prepared, (progress or {}).get(task_id), leaving=leaving)
    for task_id, seen in observed.items():
        order_or_none = orders.get(task_id)
        if seen.ended:
            steps[task_id] = _ended(task_id, seen, order_or_none)
        else:
            steps[task_id] = _living(task_id, seen, order_or_none, leaving=leaving, may_end=task_id in end)
    return Plan(
        prepare=tuple(step.prepare for step in steps.values() if step.prepare is not None),
        start=tuple(step.start for step in steps.values() if step.start is not None),
        stop=tuple(step.stop for step in steps.values() if step.stop is not None),
        warn=tuple((task_id, step.warning) for task_id, step in steps.items() if step.warning is not None),
        findings=tuple(step.finding for step in steps.values() if step.finding is not None),
        strays=living({task_id: seen for task_id, seen in observed.items() if task_id not in orders}),
    )


def living(observed: Mapping[UUID, Observed]) -> tuple[LivingTask, ...]:
    """Return the tasks of which processes or containers are left on the node, ordered by id."""
    return tuple(
        LivingTask(task_id=task_id, workload_name=seen.workload_name)
        for task_id, seen in sorted(observed.items())
        if not seen.gone
    )


def _absent(order: DesiredTask, is_prepared: bool, progress: Progress | None, *, leaving: bool) -> _Step:
    """Return the step for a desired task of which this node has nothing."""
    if order.action == "stop":
        return _Step(finding=Finding(_never_started(order.task_id)))
    if order.action == "prepare":
        return _preparation(order, is_prepared, progress, leaving=leaving)
    if order.started:
        return _Step(finding=Finding(_record_lost(order.task_id)))
    if leaving:
        return _Step()
    return _Step(start=order, finding=Finding(TaskReport(task_id=order.task_id, status="PREPARING")))


def _preparation(order: DesiredTask, is_prepared: bool, progress: Progress | None, *, leaving: bool) -> _Step:
    if is_prepared:
        return _Step(finding=Finding(TaskReport(task_id=order.task_id, status="PREPARED")))
    if leaving:
        return _Step()
    return _Step(prepare=order, finding=None if progress is None else Finding(_in_progress(order.task_id, progress)))


def _living(task_id: UUID, seen: Observed, order: DesiredTask | None, *, leaving: bool, may_end: bool) -> _Step:
    """Return the step for a task that runs or is about to."""
    stop = _stop(task_id, seen, order, leaving=leaving, may_end=may_end)
    if order is None or order.action == "stop":
        # The server already has it as TERMINATING, or does not list it: only its end is reported.
        return _Step(stop=stop)
    return _Step(
        stop=stop,
        warning=order.warning if order.warning != seen.warning else None,
        finding=Finding(_report(task_id, seen)),
    )


def _ended(task_id: UUID, seen: Observed, order: DesiredTask | None) -> _Step:
    """Return the step for a task that has ended: a report, until the server has acknowledged it."""
    if order is None and seen.acknowledged:
        return _Step()
    if order is None or order.action == "stop":
        return _Step(finding=Finding(_report(task_id, seen)))
    report = _stop_forgotten(task_id, seen) if seen.status == "CANCELLED" else _report(task_id, seen)
    return _Step(finding=Finding(report, ran=seen.ran))


def _stop(task_id: UUID, seen: Observed, order: DesiredTask | None, *, leaving: bool, may_end: bool) -> Stop | None:
    """Return the order to stop a living task, unless it already has one that is at least as urgent."""
    asked = seen.stop_grace_seconds
    if order is not None and order.action == "stop":
        return Stop(task_id, order.grace_seconds) if asked is None or order.grace_seconds < asked else None
    if asked is not None:
        return None
    if leaving:
        return Stop(task_id, cause="agent-stopped")
    return Stop(task_id) if order is None and may_end else None


def _report(task_id: UUID, seen: Observed) -> TaskReport:
    return TaskReport(
        task_id=task_id,
        status=seen.status,
        gone=seen.gone,
        exit_code=seen.exit_code,
        restarts=seen.restarts,
        crashes=seen.crashes,
        last_exit=seen.last_exit,
        reason=seen.reason,
        code=seen.code,
        ready=seen.ready,
        digests=dict(seen.digests),
        address=seen.address,
    )


def _in_progress(task_id: UUID, progress: Progress) -> TaskReport:
    return TaskReport(task_id=task_id, status="PREPARING", reason=progress.words, heard=progress.heard)


def _stop_forgotten(task_id: UUID, seen: Observed) -> TaskReport:
    """Return a failure for a server that wants the task to run: it rejects a cancellation that it did not order."""
    return TaskReport(
        task_id=task_id,
        status="FAILED",
        gone=seen.gone,
        exit_code=seen.exit_code,
        restarts=seen.restarts,
        crashes=seen.crashes,
        code="stop-forgotten",
        reason="it was stopped by an order that the server no longer knows, for example after a restore",
    )


def _record_lost(task_id: UUID) -> TaskReport:
    return TaskReport(
        task_id=task_id,
        status="FAILED",
        gone=True,
        code="record-lost",
        reason="it ran on this node before, but the agent has lost its record",
    )


def _never_started(task_id: UUID) -> TaskReport:
    return TaskReport(
        task_id=task_id, status="CANCELLED", gone=True, code="never-started", reason="stopped before it was started"
    )
