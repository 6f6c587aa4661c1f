"""What to do next on a node: the desired tasks and the observed ones in, actions and reports out. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from uuid import UUID

from mooring.agent.runtime import Observed, Progress, StopCause
from mooring.wire.agent import DesiredTask, EndWarning, LivingTask, TaskReport


@dataclass(frozen=True, slots=True)
class Stop:
    task_id: UUID
    grace_seconds: int | None = None
    """None: the grace that the task came with."""
    cause: StopCause = "requested"


@dataclass(frozen=True, slots=True)
class Finding:
    """A report that is due. `ran`: the server expects to have heard of RUNNING before this end."""

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
    """What lives here and is not listed."""


def reconcile(
    desired: Iterable[DesiredTask],
    observed: Mapping[UUID, Observed],
    *,
    prepared: Set[UUID] = frozenset(),
    progress: Mapping[UUID, Progress] | None = None,
    end: Set[UUID] = frozenset(),
    leaving: bool = False,
) -> Plan:
    """Bring the node to what is desired. `leaving`: the agent ends with its tasks, so all stop and none starts.

    `prepared`: the tasks that are ready to be started, and were not so far; `progress`: of those that are made ready.
    `end`: the strays that may be ended; the
    others go on, since a database that was restored may have forgotten them.
    """
    orders = {task.task_id: task for task in desired}
    prepare: list[DesiredTask] = []
    start: list[DesiredTask] = []
    stop: list[Stop] = []
    warn: list[tuple[UUID, EndWarning]] = []
    findings: list[Finding] = []
    for task_id, order in orders.items():
        if task_id in observed:
            continue
        if order.action == "stop":
            findings.append(Finding(_never_here(task_id)))
        elif order.action == "prepare":
            if task_id in prepared:
                findings.append(Finding(TaskReport(task_id=task_id, status="PREPARED")))
            elif not leaving:
                prepare.append(order)
                if (found := (progress or {}).get(task_id)) is not None:
                    findings.append(Finding(_on_its_way(task_id, found)))
        elif order.started:
            findings.append(Finding(_not_here_any_more(task_id)))
        elif not leaving:
            start.append(order)
            findings.append(Finding(TaskReport(task_id=task_id, status="PREPARING")))
    for task_id, seen in observed.items():
        listed = orders.get(task_id)
        stopping = listed is None or listed.action == "stop"
        if not seen.ended:
            order_to_stop = _stop(task_id, seen, listed, leaving=leaving, may_end=task_id in end)
            if order_to_stop is not None:
                stop.append(order_to_stop)
            warning = listed.warning if listed is not None and not stopping else None
            if warning is not None and warning != seen.warning:
                warn.append((task_id, warning))
        # To the server a task that it ends is TERMINATING, and one that it does not list is over: only the end is news.
        if seen.ended and (listed is not None or not seen.acknowledged):
            unasked = seen.status == "CANCELLED" and not stopping
            report = _not_to_be_stopped(task_id, seen) if unasked else _report(task_id, seen)
            findings.append(Finding(report, ran=seen.ran and not stopping))
        elif not seen.ended and not stopping:
            findings.append(Finding(_report(task_id, seen)))
    return Plan(
        tuple(prepare),
        tuple(start),
        tuple(stop),
        tuple(warn),
        tuple(findings),
        living({task_id: seen for task_id, seen in observed.items() if task_id not in orders}),
    )


def living(observed: Mapping[UUID, Observed]) -> tuple[LivingTask, ...]:
    """Those of which something is left here, in the order of their ids."""
    return tuple(
        LivingTask(task_id=task_id, workload_name=seen.workload_name)
        for task_id, seen in sorted(observed.items())
        if not seen.gone
    )


def _stop(task_id: UUID, seen: Observed, order: DesiredTask | None, *, leaving: bool, may_end: bool) -> Stop | None:
    """The order to end a living task, unless it already has one that is at least as urgent."""
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
        reason=seen.reason,
        code=seen.code,
        ready=seen.ready,
        digests=dict(seen.digests),
        address=seen.address,
    )


def _on_its_way(task_id: UUID, progress: Progress) -> TaskReport:
    return TaskReport(task_id=task_id, status="PREPARING", reason=progress.words, heard=progress.heard)


def _not_to_be_stopped(task_id: UUID, seen: Observed) -> TaskReport:
    """To a server that wants it to run, and would not take a cancellation that it has not asked for."""
    return TaskReport(
        task_id=task_id,
        status="FAILED",
        gone=seen.gone,
        exit_code=seen.exit_code,
        restarts=seen.restarts,
        code="stop-forgotten",
        reason="it was stopped by an order that the server does not know any more, as after a restore",
    )


def _not_here_any_more(task_id: UUID) -> TaskReport:
    return TaskReport(
        task_id=task_id,
        status="FAILED",
        gone=True,
        code="record-lost",
        reason="it ran on this node before, and the agent has no record of it any more",
    )


def _never_here(task_id: UUID) -> TaskReport:
    return TaskReport(
        task_id=task_id, status="CANCELLED", gone=True, code="never-started", reason="stopped before it was started"
    )
