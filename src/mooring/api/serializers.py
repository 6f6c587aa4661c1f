"""Rows of the store as the answers that travel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from mooring.clock import now
from mooring.model.attempts import AttemptRecord
from mooring.model.containers import Container
from mooring.model.decisions import SCORE_ONE
from mooring.model.dependencies import Dependency
from mooring.model.groups import group_of
from mooring.model.idleness import Idleness
from mooring.model.lifecycle import TaskStatus
from mooring.model.slots import format_amounts, slot_type
from mooring.model.workloads import Kind
from mooring.store import rollout_states, templates
from mooring.store.constraints import decode_constraints
from mooring.store.users import User
from mooring.store.views.history import HistoryEntry
from mooring.store.views.nodes import NodeRow, PoolRow, SlotRow
from mooring.store.views.workloads import TaskRow, WorkloadRow, not_before
from mooring.wire.api import (
    AttemptRow,
    ContainerView,
    DeviceView,
    HistoryRow,
    NodeView,
    SlotView,
    StartView,
    TaintView,
    TaskView,
    UserView,
    WorkloadDetail,
    WorkloadView,
)
from mooring.wire.pools import PoolView
from mooring.wire.rollouts import RolloutView
from mooring.wire.sessions import ArrayView, DependencyView


def workload_view(row: WorkloadRow) -> WorkloadView:
    first = templates.decode(row.template).containers[0]
    return WorkloadView(
        id=row.id,
        name=row.name,
        kind=row.kind,
        type=row.type,
        status=row.status,
        simulated=row.simulated,
        pool=row.pool,
        project=row.project,
        user=row.user,
        image=first.image,
        command=list(first.command),
        replicas=row.replicas,
        running=row.running,
        ready=row.ready,
        rollout=rollout_view(row) if row.kind == Kind.DEPLOYMENT else None,
        counts=dict(row.counts),
        resources=format_amounts(row.requested_slots),
        region=row.region,
        priority=row.priority,
        labels=dict(row.labels),
        reason=dict(row.reason) if row.reason is not None else None,
        start=None if row.position is None else start_view(row, row.position, now()),
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        removed=row.removed_at is not None,
        version=row.version,
    )


def rollout_view(row: WorkloadRow) -> RolloutView:
    rollout = rollout_states.decode(row.rollout)
    return RolloutView(
        phase=rollout.phase.value,
        revision=row.revision,
        updated=row.updated,
        outdated=row.outdated,
        surge=rollout.surge,
        unavailable=rollout.unavailable,
        steady_seconds=rollout.steady_seconds,
        drain_seconds=rollout.drain_seconds,
        deadline_seconds=rollout.deadline_seconds,
        stalls_at=rollout.due_at,
        reason=rollout.reason,
    )


WaitsFor = Literal["room", "quota", "dependency", "time", "turn", "change"]
_WAITS_FOR: Mapping[str, WaitsFor] = {
    "dependencies-not-met": "dependency",
    "not-due-yet": "time",
    "backing-off": "time",
    "before-timeslot": "time",
    "too-many-sessions": "quota",
    "blocked": "turn",
}
"""By the code of the reason."""


def start_view(row: WorkloadRow, position: int, at: datetime) -> StartView:
    return StartView(
        position=position,
        planned_at=row.planned_start_at,
        not_before=not_before(row, at),
        waits_for=_waits_for(row.reason or {}),
    )


def _waits_for(reason: Mapping[str, Any]) -> WaitsFor:
    code = reason.get("code", "")
    if code in _WAITS_FOR:
        return _WAITS_FOR[code]
    if code.endswith(("quota-exceeded", "limit-exceeded")):
        return "quota"
    return "room" if reason.get("cure", "release") == "release" else "change"


def workload_detail(
    row: WorkloadRow, tasks: Sequence[TaskRow], dependencies: Sequence[Dependency], *, to_owner: bool
) -> WorkloadDetail:
    template, idle = templates.decode(row.template), _idleness(row, tasks)
    environment = {c.name: dict(c.environment) for c in template.all_containers} if to_owner else None
    return WorkloadDetail(
        **dict(workload_view(row)),
        tasks=[task_view(task) for task in tasks],
        containers=[
            *(container_view(each, "sidecar" if each.sidecar else "init") for each in template.init_containers),
            *(container_view(each, "main") for each in template.containers),
        ],
        environment=environment,
        stopping=row.stopping,
        gang=row.gang,
        min_tasks=row.min_tasks,
        single_node=row.single_node,
        pack=list(row.pack or ()),
        group=group_of(decode_constraints(dict(row.constraints))),
        preempts=row.preempts,
        preemptible=row.preemptible,
        min_available=row.min_available,
        private=row.private,
        starts_at=row.starts_at,
        time_limit_seconds=row.time_limit_seconds,
        idle_timeout_seconds=row.idle_timeout_seconds,
        idle_since=None if idle is None else idle.since,
        idle_ends_at=None if idle is None else idle.ends_at,
        signal=None if row.warning_signal is None else f"{row.warning_signal}@{row.warning_seconds}",
        deadline_at=min((t.deadline_at for t in tasks if t.status == "RUNNING" and t.deadline_at), default=None),
        dependencies=[dependency_view(dependency) for dependency in dependencies],
        on_dependency_failure=row.on_dependency_failure,
        singleton=row.singleton,
        booking=row.timeslot_id,
        array=None if row.array is None else ArrayView(**row.array),
        parallel=row.parallel,
        retries=row.max_retries,
        retry_on=None if row.retry_on is None else list(row.retry_on),
        admission=None if row.admission is None else dict(row.admission),
    )


def _idleness(row: WorkloadRow, tasks: Sequence[TaskRow]) -> Idleness | None:
    running = [task.active_at or task.started_at for task in tasks if task.status == TaskStatus.RUNNING]
    since = max((at for at in running if at is not None), default=None)
    if row.idle_timeout_seconds is None or since is None:
        return None
    return Idleness(since, timedelta(seconds=row.idle_timeout_seconds), row.idle_warned_at)


def dependency_view(dependency: Dependency) -> DependencyView:
    return DependencyView(
        id=dependency.workload_id,
        name=dependency.name,
        condition=dependency.condition,
        status=dependency.status,
        fate=dependency.fate,
    )


def container_view(container: Container, role: Literal["init", "sidecar", "main"]) -> ContainerView:
    return ContainerView(
        name=container.name,
        role=role,
        image=container.image,
        command=list(container.command),
        ports=list(container.ports),
        mounts={mount.path: mount.volume for mount in container.mounts},
        terminal=container.terminal,
    )


def task_view(row: TaskRow) -> TaskView:
    return TaskView(
        id=row.id,
        index=row.task_index,
        attempt=row.attempt,
        current=row.current,
        status=row.status,
        node=row.node_name,
        score=as_score(row.score),
        exit_code=row.exit_code,
        restarts=row.restarts,
        failures=row.failures,
        reason=row.reason["message"] if row.reason is not None else None,
        devices={slot: list(shares) for slot, shares in (row.devices or {}).items()},
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        deadline_at=row.deadline_at,
        revision=row.revision,
        ready=row.ready_at is not None,
        retires_at=row.retires_at,
        digests=dict(row.digests or {}),
        address=row.address,
    )


def as_score(fixed_point: int | None) -> float | None:
    return None if fixed_point is None else fixed_point / SCORE_ONE


def attempt_row(record: AttemptRecord) -> AttemptRow:
    return AttemptRow(
        phase=record.attempt.phase.value,
        result=record.attempt.result.value,
        code=record.attempt.code,
        message=record.attempt.message,
        task_index=record.attempt.task_index,
        number=record.number,
        first_at=record.first_at,
        last_at=record.last_at,
    )


def history_row(entry: HistoryEntry) -> HistoryRow:
    return HistoryRow(
        at=entry.at,
        noun=entry.noun,
        object_id=entry.object_id,
        task_index=entry.task_index,
        attempt=entry.attempt,
        old_status=entry.old_status,
        new_status=entry.new_status,
        actor=entry.actor,
        reason=entry.reason,
        term=entry.term,
    )


def node_view(row: NodeRow) -> NodeView:
    return NodeView(
        id=row.id,
        name=row.name,
        pool=row.pool,
        status=row.status,
        schedulable=row.schedulable,
        reason=row.reason,
        simulated=row.simulated,
        region=row.region,
        licence=row.licence,
        machine_image=row.machine_image,
        machine_image_version=row.machine_image_version or None,
        template=row.template,
        scale_request_id=row.scale_request_id,
        architecture=row.architecture,
        runtimes=list(row.runtimes),
        labels=dict(row.labels),
        slots={name: slot_view(name, slot) for name, slot in row.slots.items()},
        devices={
            slot: [
                DeviceView(index=d.index, model=d.model, memory=d.memory, capacity=d.capacity, taken=d.taken)
                for d in named
            ]
            for slot, named in row.devices.items()
        },
        enforces=dict(row.enforces),
        tasks=row.tasks,
        cpu_percent=row.cpu_percent,
        memory_percent=row.memory_percent,
        last_seen_at=row.last_seen_at,
        owner=row.owner,
        taints=[
            TaintView(
                key=each.taint.key,
                value=each.taint.value,
                effect=each.taint.effect,
                since=each.since,
                reason=each.reason,
            )
            for each in row.taints
        ],
        draining=row.draining,
        drain_reason=row.drain_reason,
        drain_until=row.drain_until,
        drained_at=row.drained_at,
    )


def slot_view(name: str, row: SlotRow) -> SlotView:
    write = slot_type(name).format
    return SlotView(
        capacity=write(row.capacity),
        allocatable=write(row.allocatable),
        held=write(row.held),
        reserved=write(row.reserved),
        used=write(row.used),
        free=write(row.free),
    )


def pool_view(row: PoolRow) -> PoolView:
    policy: dict[str, Any] = msgspec.to_builtins(row.policy)
    for pairs in ("factors", "validators"):
        policy[pairs] = dict(policy[pairs])
    policy["weights"] = dict(policy["weights"]) if policy["weights"] else None
    policy["fair_share"]["slot_weights"] = dict(policy["fair_share"]["slot_weights"])
    return PoolView(
        name=row.name,
        simulated=row.simulated,
        runtimes=list(row.runtimes),
        nodes=row.nodes,
        version=row.version,
        **policy,
    )


def user_view(user: User) -> UserView:
    return UserView(
        id=user.id,
        username=user.username,
        role=user.role.value,
        active=user.active,
        domain=user.domain,
        project=user.project,
        os_user=user.os_user,
        policy=user.policy,
        created_at=user.created_at,
    )
