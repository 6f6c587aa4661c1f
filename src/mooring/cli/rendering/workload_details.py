"""Details of a workload: its request, status and tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from mooring.cli.interaction.waiting import has_ended
from mooring.cli.rendering.formatting import (
    WAITS_FOR,
    age,
    amounts,
    command_text,
    counts_text,
    devices,
    digests,
    health_text,
    instant,
    last_exit_text,
    no_plan,
    pairs,
    reason_text,
    retry_text,
    running_text,
    slip_text,
    status_style,
    status_text,
    workload_status,
    workload_style,
)
from mooring.cli.rendering.output import (
    Cell,
    Column,
    Format,
    Styled,
    show_document,
    show_fields,
    show_line,
    show_table,
)
from mooring.model.calendar.durations import format_duration
from mooring.model.workloads.lifetime.health import LOOPS_AFTER

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.wire.workloads.tasks import TaskView
    from mooring.wire.workloads.workloads import ContainerView, StartView, WorkloadDetail

_PAGE = 1000
_SHOWN_OF_ARRAY = 20
_BRIEFLY = timedelta(minutes=1)


def show_workload(client: Client, detail: WorkloadDetail, output: Format, *, all_tasks: bool) -> None:
    """Print a workload. Of a large array only the first tasks are listed, unless all are requested."""
    tasks = [task for task in detail.tasks if task.current or _retires(task) or output.layout is Format.WIDE]
    if all_tasks:
        tasks = detail.tasks = _all_tasks(client, detail)
    if output.is_document:
        show_document(detail, output)
        return
    _show_fields(detail)
    if not tasks:
        return
    shown = tasks if all_tasks or detail.array is None else tasks[:_SHOWN_OF_ARRAY]
    print()
    relevant = {
        "DEVICES": any(task.devices for task in shown),
        "IMAGES": any(task.digests for task in shown),
        "INDEX": detail.array is not None,
        "REVISION": len({task.revision for task in shown}) > 1,
    }
    columns = [replace(column, wide=not relevant.get(column.title, not column.wide)) for column in _TASK_COLUMNS]
    show_table(columns, [_task_row(task, detail) for task in shown], output)
    if len(shown) < detail.replicas:
        show_line(f"{len(shown)} of {detail.replicas:,} tasks; --tasks lists all")


def _all_tasks(client: Client, detail: WorkloadDetail) -> list[TaskView]:
    found: list[TaskView] = []
    while page := client.tasks(str(detail.id), limit=_PAGE, offset=len(found)).tasks:
        found += page
    return found


def _show_fields(detail: WorkloadDetail) -> None:
    from mooring.cli.rendering.remedies import cure

    state = workload_status(detail)
    if detail.stopping and not has_ended(detail):
        state += ", stopping"
    show_fields(
        [
            ("name", detail.name),
            ("id", str(detail.id)),
            ("kind", f"{detail.kind} ({detail.type})"),
            ("status", Styled(state, workload_style(detail))),
            ("health", health_text(detail)),
            ("last exit", last_exit_text(detail)),
            ("replicas", _replicas(detail)),
            ("rollout", _rollout(detail)),
            ("array", _array(detail)),
            ("pool", detail.pool),
            ("region", detail.region or ""),
            ("user", f"{detail.user} (project {detail.project})"),
            ("image", detail.image or ""),
            ("command", command_text(detail.command)),
            ("resources", amounts(detail.resources)),
            ("qos", detail.qos),
            ("together", _gang(detail)),
            ("priority", _priority(detail)),
            ("private", "yes" if detail.private else ""),
            ("time", _time(detail)),
            ("idle", _idle(detail)),
            ("retries", _retries(detail)),
            ("after", _dependencies(detail)),
            ("singleton", detail.singleton or ""),
            ("booking", "" if detail.booking is None else str(detail.booking)),
            ("starts", instant(detail.starts_at) if detail.starts_at else ""),
            ("start", _start(detail)),
            ("labels", pairs(detail.labels)),
            ("created", f"{instant(detail.created_at)} ({age(detail.created_at)} ago)"),
            ("started", instant(detail.started_at)),
            ("ended", instant(detail.ended_at)),
            ("reason", reason_text(detail.reason)),
            ("admission", _admission(detail)),
        ]
    )
    if len(detail.containers) > 1 or any(each.ports or each.mounts for each in detail.containers):
        for each in detail.containers:
            show_line(f"container {each.name}: {_container(each)}")
    for container, variables in (detail.environment or {}).items():
        for variable, value in variables.items():
            show_line(f"environment of {container}: {variable}={value}")
    if detail.reason and detail.status != "RUNNING" and (advice := cure(detail)):
        show_line(f"hint: {advice}")
    if detail.status == "PENDING":
        show_line(f"`mooring explain {detail.name}` shows why each node is excluded")


def _container(container: ContainerView) -> str:
    parts = [
        "" if container.role == "main" else container.role,
        container.image or command_text(container.command),
        f"listens on {', '.join(map(str, container.ports))}" if container.ports else "",
        *(f"{volume} at {path}" for path, volume in container.mounts.items()),
    ]
    return ", ".join(filter(None, parts))


def _replicas(detail: WorkloadDetail) -> str:
    running = running_text(detail.running, detail.replicas)
    return f"{running}, {detail.ready} ready" if detail.kind == "deployment" else running


def _rollout(detail: WorkloadDetail) -> str:
    """Return the revision of a deployment that was updated."""
    rollout = detail.rollout
    if rollout is None or (rollout.revision == 1 and rollout.phase == "done"):
        return ""
    if rollout.phase == "done":
        return f"revision {rollout.revision}"
    text = f"revision {rollout.revision} {rollout.phase}: {rollout.updated} updated, {rollout.outdated} outdated"
    return f"{text}; {rollout.reason}" if rollout.reason else text


def _start(detail: WorkloadDetail) -> str:
    """Return the planned or estimated start, if known."""
    start = detail.start
    if start is None:
        return ""
    if start.unless is not None:
        return f"cannot start unless {start.unless}"
    parts = [
        "" if start.position is None else f"position {start.position:,} in the queue of its pool",
        "" if start.planned_at is None else f"planned for {instant(start.planned_at)} {_certainty(start)}",
        "" if start.estimated_at is None else f"about {instant(start.estimated_at)}, an estimate",
        slip_text(start.first_at, start.moves, start.planned_at or start.estimated_at),
        "" if start.not_before is None else f"not before {instant(start.not_before)}",
        f"waits for {WAITS_FOR[start.waits_for]}",
        no_plan(detail.reason),
    ]
    return "; ".join(filter(None, parts))


def _certainty(start: StartView) -> str:
    return "if work runs as long as predicted" if start.by_prediction else "at the latest"


def _gang(detail: WorkloadDetail) -> str:
    """Return the constraints among its tasks and with other work."""
    parts = [
        "all start together" if detail.gang and detail.replicas > 1 else "",
        "" if detail.min_tasks is None else f"at least {detail.min_tasks} start together",
        "all on one node" if detail.single_node else "",
        f"packed by {', '.join(detail.pack)}" if detail.pack else "",
        "" if detail.group is None else f"group {detail.group}",
    ]
    return "; ".join(filter(None, parts))


def _priority(detail: WorkloadDetail) -> str:
    parts = [
        str(detail.priority),
        "" if detail.preempts else "does not preempt",
        "" if detail.preemptible else "not preemptible",
        "" if detail.min_available is None else f"at least {detail.min_available} stay",
    ]
    return "; ".join(filter(None, parts))


def _array(detail: WorkloadDetail) -> str:
    """Return the indexes of an array, and the number of tasks in each status."""
    if detail.array is None:
        return ""
    array = detail.array
    last = array.first + array.step * (detail.replicas - 1)
    step = f" by {array.step}" if array.step > 1 else ""
    most = f", at most {detail.parallel:,} at a time" if detail.parallel else ""
    return f"{array.first}-{last}{step}{most}: {counts_text(detail.counts)}"


def _time(detail: WorkloadDetail) -> str:
    if detail.time_limit_seconds is None:
        return ""
    parts = [f"at most {format_duration(detail.time_limit_seconds)}"]
    if detail.signal is not None:
        parts.append(f"signal {detail.signal}")
    if detail.deadline_at is not None:
        parts.append(f"ends at {instant(detail.deadline_at)} (in {age(datetime.now(UTC), until=detail.deadline_at)})")
    return "; ".join(parts)


def _idle(detail: WorkloadDetail) -> str:
    if detail.idle_timeout_seconds is None:
        return ""
    if detail.idle_since is None or datetime.now(UTC) - detail.idle_since < _BRIEFLY:
        return f"ends when idle for {format_duration(detail.idle_timeout_seconds)}"
    return f"for {age(detail.idle_since)}, ends at {instant(detail.idle_ends_at)} if it stays idle"


def _retries(detail: WorkloadDetail) -> str:
    if not detail.retries:
        return ""
    codes = "" if detail.retry_on is None else f" after exit code {', '.join(map(str, detail.retry_on))}"
    failures = [task.failures for task in detail.tasks if task.current]
    # The tasks of an array are retried individually, other tasks together.
    used = max(failures, default=0) if detail.array is None else sum(failures)
    return f"up to {detail.retries}{codes}; {used} used"


def _dependencies(detail: WorkloadDetail) -> str:
    parts = [f"{need.condition} {need.name} ({need.status.lower()}, {need.fate})" for need in detail.dependencies]
    if parts and detail.on_dependency_failure == "wait":
        parts.append("stays pending")
    return "; ".join(parts)


def _admission(detail: WorkloadDetail) -> str:
    """Return the validators that rejected the last attempt, and their reasons, unless its reason says the same."""
    stated = {each.get("code") for each in _failed_validators(detail.reason)} | {(detail.reason or {}).get("code")}
    failed = [reason for reason in (detail.admission or {}).get("failed", ()) if reason["code"] not in stated]
    return "; ".join(f"{reason['by']}: {reason['message']}" for reason in failed)


def _failed_validators(reason: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    return ((reason or {}).get("details") or {}).get("failed") or ()


_TASK_COLUMNS = (
    Column("TASK", number=True),
    Column("INDEX", number=True),
    Column("STATUS"),
    Column("REVISION", number=True),
    Column("NODE"),
    Column("DEVICES"),
    Column("ATTEMPT", number=True),
    Column("RESTARTS", number=True),
    Column("EXIT", number=True),
    Column("AGE", number=True),
    Column("SCORE", wide=True, number=True),
    Column("STARTED", wide=True),
    Column("ENDED", wide=True),
    Column("ADDRESS", wide=True),
    Column("IMAGES"),
    Column("ID", wide=True),
    Column("REASON", cut=True),
)


def _retires(task: TaskView) -> bool:
    return task.retires_at is not None and task.ended_at is None


def _task_status(task: TaskView, detail: WorkloadDetail) -> Styled:
    """Return a task's status and, for a running replica, whether it is ready."""
    text = status_text(task.status, simulated=detail.simulated)
    if task.crashes >= LOOPS_AFTER and not task.ready and task.ended_at is None:
        return Styled(status_text("crash-looping", simulated=detail.simulated), "red")
    if detail.kind == "deployment" and task.status == "RUNNING":
        text += ", retires" if _retires(task) else "" if task.ready else ", not ready"
    return Styled(text, status_style(task.status))


def _exit_code(task: TaskView) -> str:
    """Return the exit code of a task; of one that was restarted, that of its last end."""
    code = task.last_exit_code if task.exit_code is None else task.exit_code
    return "" if code is None else str(code)


def _restarts(task: TaskView) -> int:
    """Return the restarts of a task, of one that lives also those by replacement; a last end is no restart."""
    return task.restarts if task.ended_at is not None else max(task.restarts, task.crashes)


def _task_reason(task: TaskView) -> str:
    """Return why a task ended or is preparing; of one that starts again, why it ended before."""
    if task.ended_at is not None or not task.last_reason or task.ready:
        return task.reason or ""
    return ", ".join(filter(None, (task.reason or task.last_reason, retry_text(task.next_retry_at))))


def _task_row(task: TaskView, detail: WorkloadDetail) -> list[Cell]:
    return [
        str(task.index),
        "" if detail.array is None else str(detail.array.first + detail.array.step * task.index),
        _task_status(task, detail),
        str(task.revision),
        task.node or "",
        devices(task.devices),
        str(task.attempt),
        str(_restarts(task)),
        _exit_code(task),
        age(task.started_at or task.created_at, until=task.ended_at),
        "" if task.score is None else f"{task.score:.2f}",
        instant(task.started_at),
        instant(task.ended_at),
        task.address or "",
        digests(task.digests),
        str(task.id),
        _task_reason(task),
    ]
