"""Rows of the store as responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

import msgspec

from mooring.clock import now
from mooring.model.decisions import SCORE_ONE
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.policy.pools import effective_profile
from mooring.model.resources.slots import format_amounts, slot_type
from mooring.model.resources.task_resources import quality_of
from mooring.model.workloads.containers import Container
from mooring.model.workloads.dependencies import Dependency
from mooring.model.workloads.groups import group_of
from mooring.model.workloads.lifetime.attempts import AttemptRecord
from mooring.model.workloads.lifetime.health import Health, Members, health_of
from mooring.model.workloads.lifetime.idleness import Idleness
from mooring.model.workloads.needed_change import needed_change
from mooring.model.workloads.workload import Kind, placement_options
from mooring.store.core.constraint_columns import decode_constraints
from mooring.store.tenancy.users import User
from mooring.store.views.automatic_moves import AutomaticMoves
from mooring.store.views.history import HistoryEntry
from mooring.store.views.nodes import NodeRow, PoolRow, SlotRow
from mooring.store.views.task_trouble import next_start
from mooring.store.views.timeslots import TimeslotRow
from mooring.store.views.workloads import TaskRow, WorkloadRow, not_before
from mooring.store.workloads import option_columns, templates
from mooring.wire.cluster.nodes import DeviceView, NodeView, SlotView, TaintView
from mooring.wire.cluster.pools import AutomaticMovesView, DemandView, PoolView
from mooring.wire.tenancy.users import UserView
from mooring.wire.workloads.history import AttemptRow, HistoryRow
from mooring.wire.workloads.rollouts import RolloutView
from mooring.wire.workloads.sessions import ArrayView, DependencyView
from mooring.wire.workloads.tasks import TaskView
from mooring.wire.workloads.timeslots import (
    TimeslotPlacement,
    TimeslotView,
)
from mooring.wire.workloads.workloads import ContainerView, StartView, WorkloadDetail, WorkloadView


def workload_view(row: WorkloadRow) -> WorkloadView:
    template = templates.decode(row.template)
    first = template.containers[0]
    return WorkloadView(
        id=row.id,
        name=row.name,
        kind=row.kind,
        type=row.type,
        status=row.status,
        simulated=row.simulated,
        **health_fields(row),
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
        qos=quality_of(template).value,
        region=row.region,
        priority=row.priority,
        labels=dict(row.labels),
        reason=dict(row.reason) if row.reason is not None else None,
        start=start_view(row, now()) if row.status == WorkloadStatus.PENDING else None,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        removed=row.removed_at is not None,
        version=row.version,
    )


def health_fields(row: WorkloadRow) -> dict[str, Any]:
    """Return the fields of a view that say how well the workload runs."""
    counts, trouble = row.counts, row.trouble
    members = Members(
        wanted=row.replicas,
        running=row.running,
        ready=row.ready,
        succeeded=counts.get(TaskStatus.SUCCEEDED, 0),
        failed=sum(counts.get(status, 0) for status in (TaskStatus.FAILED, TaskStatus.LOST)),
    )
    status = WorkloadStatus.TERMINATING if row.stopping and row.ended_at is None else row.status
    health = health_of(row.kind, status, members, trouble, array=row.array is not None)
    found: dict[str, Any] = {"health": health, "health_reason": _health_reason(row, members, health)}
    if trouble is not None:
        found |= {
            "restarts": trouble.restarts,
            "last_exit_code": trouble.exit_code,
            "last_reason": trouble.reason,
            "next_retry_at": trouble.retry_at,
        }
    return found


def _health_reason(row: WorkloadRow, members: Members, health: Health | None) -> str | None:
    """Return why a workload is not healthy: crashes first, then the reason of its pending tasks."""
    trouble, reason = row.trouble, row.reason or {}
    if health in (None, Health.HEALTHY, Health.SCALED_TO_ZERO):
        return None
    noun = "replica" if row.kind == Kind.DEPLOYMENT else "task"
    if trouble is not None and (trouble.looping or not reason or reason.get("code") == "backing-off"):
        number = trouble.looping or 1
        return f"{number} of {row.replicas} {noun}{'' if row.replicas == 1 else 's'}: {trouble.reason}"
    if health is Health.DEGRADED and row.array is not None:
        return f"{members.failed} of {row.replicas} tasks failed"
    if reason.get("message"):
        return str(reason["message"])
    if health is Health.DEGRADED and members.running >= row.replicas:
        missing = row.replicas - members.ready
        return f"{missing} of {row.replicas} {noun}{'' if row.replicas == 1 else 's'} not ready"
    return None


def rollout_view(row: WorkloadRow) -> RolloutView:
    rollout = option_columns.decode_rollout(row.rollout)
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
_SHOWN_REQUESTS = 10
"""Most requests that are shown of a pool's learned demand."""
_WAITS_FOR: Mapping[str, WaitsFor] = {
    "dependencies-not-met": "dependency",
    "not-due-yet": "time",
    "backing-off": "time",
    "before-timeslot": "time",
    "too-many-sessions": "quota",
    "blocked": "turn",
}
"""The cause of a wait, by the code of the reason."""


def start_view(row: WorkloadRow, at: datetime) -> StartView:
    waits_for, later = _waits_for(row.reason or {}), not_before(row, at)
    unless = needed_change(row.reason)
    planned = row.planned_start_at if unless is None else None
    estimated = row.estimated_start_at if later is None and _is_estimated(row, waits_for, at) else None
    start, limit = planned or estimated, row.time_limit_seconds
    return StartView(
        position=row.position,
        planned_at=planned,
        nodes=dict(row.planned_nodes or {}) if planned is not None else {},
        estimated_at=estimated,
        ends_at=None if start is None or limit is None else start + timedelta(seconds=limit),
        # Work that returns to the queue is predicted again.
        first_at=None if row.placed_at is not None else row.first_start_at,
        moves=0 if row.placed_at is not None else row.start_moves,
        unless=unless,
        not_before=later,
        waits_for=waits_for,
        by_prediction=row.predicts,
    )


def _is_estimated(row: WorkloadRow, waits_for: WaitsFor, at: datetime) -> bool:
    """Return whether the stored estimate applies: a future time, no planned start, a wait for capacity or others."""
    start = row.estimated_start_at
    return row.planned_start_at is None and start is not None and start > at and waits_for in ("room", "turn")


def _waits_for(reason: Mapping[str, Any]) -> WaitsFor:
    code = reason.get("code", "")
    if code in _WAITS_FOR:
        return _WAITS_FOR[code]
    if reason.get("cure", "release") != "release":
        return "change"
    if code.endswith(("quota-exceeded", "limit-exceeded")):
        return "quota"
    return "room"


_DETAILED_OPTIONS = WorkloadDetail.model_fields.keys() - WorkloadView.model_fields.keys()


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
        **{name: value for name, value in placement_options(row).items() if name in _DETAILED_OPTIONS},
        group=group_of(decode_constraints(dict(row.constraints))),
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
        stdin=container.stdin,
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
        crashes=row.earlier_crashes + row.crashes,
        last_exit_code=row.last_exit_code,
        last_reason=None if row.last_reason is None else row.last_reason["message"],
        next_retry_at=next_start(row.status, row.not_before, row.retry_at),
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
        isolation=row.isolation,
        isolation_reason=row.isolation_reason,
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


@lru_cache(maxsize=4096)
def slot_view(name: str, row: SlotRow) -> SlotView:
    """Return the amounts as text. Many nodes have the same, so those of large clusters are formatted once."""
    write = slot_type(name).format
    return SlotView(
        capacity=write(row.capacity),
        allocatable=write(row.allocatable),
        held=write(row.held),
        reserved=write(row.reserved),
        used=write(row.used),
        free=write(row.free),
    )


def pool_view(row: PoolRow, moves: AutomaticMoves | None = None) -> PoolView:
    policy: dict[str, Any] = msgspec.to_builtins(row.policy)
    for pairs in ("factors", "validators", "selector_options"):
        policy[pairs] = dict(policy[pairs])
    for nested in ("filters", "scorer_options"):
        policy[nested] = {plugin: dict(options) for plugin, options in policy[nested]}
    policy["weights"] = dict(policy["weights"]) if policy["weights"] else None
    policy["default_cpu"] = slot_type("cpu").format(policy["default_cpu"])
    policy["default_memory"] = slot_type("memory").format(policy["default_memory"])
    policy["fair_share"]["slot_weights"] = dict(policy["fair_share"]["slot_weights"])
    return PoolView(
        name=row.name,
        simulated=row.simulated,
        runtimes=list(row.runtimes),
        nodes=row.nodes,
        version=row.version,
        learned_demand=_learned_demand(row),
        effective_profile=effective_profile(row.policy.profile, devices=row.has_devices),
        automatic_moves=None if moves is None else _automatic_moves(moves),
        **policy,
    )


def _automatic_moves(moves: AutomaticMoves) -> AutomaticMovesView:
    view = AutomaticMovesView(moves_last_hour=moves.last_hour, moves_left=moves.left)
    plan = moves.newest
    if plan is None:
        return view
    newest = {
        "plan": plan.id,
        "status": plan.status.value,
        "at": plan.created_at,
        "planned": len(plan.moves),
        "arrived": moves.arrived,
        "gained": round(plan.gained, 3),
        "bound": plan.bound,
        "bound_reason": plan.bound_reason,
    }
    return view.model_copy(update=newest)


def _learned_demand(row: PoolRow) -> list[DemandView]:
    total = sum(each.tasks for each in row.learned_demand)
    return [
        DemandView(
            request=format_amounts(each.request),
            models=sorted(each.models),
            percent=round(100 * each.tasks / total, 1),
        )
        for each in row.learned_demand[:_SHOWN_REQUESTS]
    ]


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


def timeslot_view(row: TimeslotRow) -> TimeslotView:
    slot = row.slot
    return TimeslotView(
        id=slot.id,
        name=slot.name,
        kind=slot.kind.value,
        purpose=slot.purpose,
        pool=slot.pool,
        project=row.project,
        user=row.user,
        status=slot.status.value,
        reason=None if row.reason is None else dict(row.reason),
        start=slot.starts_at,
        end=slot.ends_at,
        lead_seconds=slot.lead_seconds,
        grace_seconds=slot.grace_seconds,
        eligible_at=slot.eligible_at,
        resources=format_amounts(slot.request),
        count=slot.count,
        architecture=slot.architecture,
        region=slot.region,
        users=list(row.users),
        projects=list(row.projects),
        release_after_seconds=slot.release_after_seconds,
        places=[TimeslotPlacement(node=node, tasks=number) for node, number in row.placements],
        series=slot.series_id,
        rule=row.rule,
        timezone=row.timezone,
        replaces=slot.replaces,
        created_at=row.created_at,
        ended_at=row.ended_at,
        version=slot.version,
    )
