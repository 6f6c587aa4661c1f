"""What an agent is told about a task that should be, or should no longer be, on its node."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from mooring.model import lifecycle
from mooring.model.arrays import Array
from mooring.model.containers import Container, TaskTemplate
from mooring.model.lifecycle import TaskStatus
from mooring.model.resources import quality_of
from mooring.model.workloads import Kind
from mooring.wire.agent import ContainerSpec, DesiredTask, EndWarning, Owner


def desired_task(row: Any) -> DesiredTask:
    template = row.template
    status = TaskStatus(row.status)
    run: Literal["prepare", "run"] = "prepare" if status is TaskStatus.RESERVED else "run"
    return DesiredTask(
        task_id=row.id,
        workload_id=row.workload_id,
        workload_name=row.name,
        index=row.task_index,
        attempt=row.attempt,
        action=run if status in lifecycle.ACTIVE else "stop",
        started=status is TaskStatus.RUNNING,
        owner=Owner(
            user_id=row.user_id,
            project_id=row.project_id,
            project_number=row.project_number,
            os_user=row.os_user,
        ),
        ports=[port for _, port in row.ports or ()],
        devices={slot: [(index, amount) for index, amount in shares] for slot, shares in (row.devices or {}).items()},
        variables=variables_of(row.kind, row.array, row.replicas, row.task_index),
        containers=[ContainerSpec(**container) for container in template["containers"]],
        quality=quality_of(_demand(template)).value,
        restart=template["restart"],
        max_restarts=template["max_restarts"],
        grace_seconds=template["stop_grace_seconds"],
        warning=_warning(row),
    )


def _demand(template: Mapping[str, Any]) -> TaskTemplate:
    """As much of a template as its quality depends on."""
    containers, before = (
        tuple(Container(slots=part["slots"], limits=part.get("limits", {})) for part in template.get(parts, ()))
        for parts in ("containers", "init_containers")
    )
    requests, limits = (template.get(whole, {}) for whole in ("requests", "limits"))
    return TaskTemplate(containers, init_containers=before, requests=requests, limits=limits)


def variables_of(kind: str, array: Mapping[str, int] | None, tasks: int, task_index: int) -> dict[str, str]:
    """What a task is told about its place in its workload: its index in an array, or its role in a session."""
    if array is not None:
        index = Array(**array, count=tasks).index(task_index)
        return {"MOORING_ARRAY_INDEX": str(index), "MOORING_ARRAY_COUNT": str(tasks)}
    if kind != Kind.SESSION:
        return {}
    return {"MOORING_TASK_ROLE": "sub" if task_index else "main", "MOORING_CLUSTER_SIZE": str(tasks)}


def _warning(row: Any) -> EndWarning | None:
    if row.deadline_at is None or row.warning_signal is None:
        return None
    at = row.deadline_at - timedelta(seconds=row.warning_seconds or 0)
    return EndWarning(at=at.timestamp(), signal=row.warning_signal)
