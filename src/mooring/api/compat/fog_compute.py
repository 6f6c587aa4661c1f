"""Deployments in the words of fog-compute's users: a thin translation to and from workloads."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Literal

import structlog
from fastapi import APIRouter, Query

from mooring.api.auth.request_access import Served, Submitter, User
from mooring.api.lookup.workloads import find_workload
from mooring.api.middleware.errors import problems
from mooring.api.middleware.task_costs import charge_tasks
from mooring.api.serializers import as_score
from mooring.api.services import DeploymentLimits
from mooring.model.errors import Conflict
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.names import shown
from mooring.model.tenancy.access import Action, own_work
from mooring.model.workloads.workload import Kind
from mooring.services.submission.submission import simulation_note
from mooring.store.views import history as history_views
from mooring.store.views import workloads as views
from mooring.store.views.history import HistoryEntry
from mooring.store.views.workloads import Order, Selection, TaskRow, WorkloadRow
from mooring.store.workloads import templates
from mooring.wire.fields import INT32_MAX
from mooring.wire.problems import invalid
from mooring.wire.workloads.containers import ContainerRequest
from mooring.wire.workloads.fog_compute import (
    DeploymentAccepted,
    DeploymentHistoryRow,
    DeploymentList,
    DeploymentRequest,
    DeploymentScaled,
    DeploymentStatus,
    DeploymentSummary,
    ReplicaView,
)
from mooring.wire.workloads.workloads import ScaleRequest, WorkloadRequest

router = APIRouter(prefix="/api/deployment", tags=["deployment"], responses=problems(401, 422, 503))

log = structlog.get_logger()

Word = Literal["pending", "scheduled", "running", "failed", "stopped", "deleted"]

_WORDS: Mapping[WorkloadStatus, Word] = {
    WorkloadStatus.PENDING: "pending",
    WorkloadStatus.RESERVED: "pending",
    WorkloadStatus.SCHEDULED: "scheduled",
    WorkloadStatus.PREPARING: "scheduled",
    WorkloadStatus.RUNNING: "running",
    WorkloadStatus.TERMINATING: "stopped",
    WorkloadStatus.SUCCEEDED: "stopped",
    WorkloadStatus.CANCELLED: "stopped",
    WorkloadStatus.FAILED: "failed",
    WorkloadStatus.EXPIRED: "failed",
}
_REPLICA_WORDS: Mapping[TaskStatus, str] = {
    TaskStatus.PENDING: "pending",
    TaskStatus.RESERVED: "pending",
    TaskStatus.SCHEDULED: "starting",
    TaskStatus.PREPARING: "starting",
    TaskStatus.RUNNING: "running",
    TaskStatus.TERMINATING: "stopping",
    TaskStatus.SUCCEEDED: "stopped",
    TaskStatus.CANCELLED: "stopped",
    TaskStatus.FAILED: "failed",
    TaskStatus.LOST: "failed",
}
_SAME_WORD = [(old.value, new.value) for old in WorkloadStatus for new in WorkloadStatus if _WORDS[old] == _WORDS[new]]
_RANKS = {status.value: sorted(set(_WORDS.values())).index(word) for status, word in _WORDS.items()}
_SHOWN_HISTORY = 10


@router.post("/deploy", status_code=202, operation_id="deploy", responses=problems(403, 404, 409, 412))
async def deploy(services: Served, principal: Submitter, request: DeploymentRequest) -> DeploymentAccepted:
    """Submit a deployment with one replica per node, all or none."""
    name = shown(request.name)
    log.info(f"Creating deployment: {name} ({request.type}) for user {shown(principal.username)}")
    check_limits(request, services.limits)
    charge_tasks(services, principal, replicas=request.replicas)
    workload = as_workload(request)
    accepted = await services.submissions.submit(principal, workload)
    log.info(f"Created deployment record {accepted.id} for {name} with {request.replicas} replicas")
    log.info(f"Queued deployment {accepted.id} for scheduling")
    note = simulation_note(workload, accepted.simulated)
    message = f"Deployment queued. Use /status/{accepted.id} to track progress.{note}"
    return DeploymentAccepted(deployment_id=accepted.id, status="pending", replicas=request.replicas, message=message)


@router.get("/status/{deployment_id}", operation_id="get_deployment_status", responses=problems(404))
async def get_status(services: Served, principal: User, deployment_id: str) -> DeploymentStatus:
    """Get a deployment with its replicas and its latest status changes, newest first."""
    row = await find_workload(services, principal, deployment_id, kind=Kind.DEPLOYMENT)
    async with services.database.read() as connection:
        tasks = await views.tasks_of(connection, row)
        history = await history_views.of_workload(
            connection, row.id, limit=_SHOWN_HISTORY, noun="workload", leaving_out=_SAME_WORD
        )
    return DeploymentStatus(
        deployment_id=row.id,
        name=row.name,
        type=row.type,
        status=_word(row),
        simulated=row.simulated,
        container_image=_image(row),
        target_replicas=row.replicas,
        running_replicas=row.running,
        health=_health(row),
        replicas=[_replica(task, row.simulated) for task in tasks if task.current],
        reason=dict(row.reason) if row.reason is not None else None,
        history=[_history_row(entry) for entry in reversed(history)],
        pool=row.pool,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


@router.get("/list", operation_id="list_deployments")
async def list_deployments(
    services: Served,
    principal: User,
    status: Annotated[
        Word | None, Query(description="Only this status; deleted deployments are listed only if requested")
    ] = None,
    type: Annotated[Literal["compute", "storage", "gateway", "mixnode"] | None, Query()] = None,
    sort: Annotated[
        Literal["created_at", "name", "status"], Query(description="`created_at`: newest first")
    ] = "created_at",
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    offset: Annotated[int, Query(ge=0, le=INT32_MAX)] = 0,
) -> DeploymentList:
    """List the caller's deployments."""
    statuses = None
    if status is not None and status != "deleted":
        statuses = frozenset(known.value for known, word in _WORDS.items() if word == status)
    selection = Selection(
        sight=own_work(principal),
        statuses=statuses,
        kind=Kind.DEPLOYMENT,
        type=type,
        removed=status == "deleted",
    )
    order = Order(by=sort, descending=sort == "created_at", status_ranks=_RANKS)
    async with services.database.read() as connection:
        rows, total = await views.page(connection, selection, order, limit=limit, offset=offset)
    return DeploymentList(deployments=[_summary(row) for row in rows], total=total, limit=limit, offset=offset)


@router.post(
    "/scale/{deployment_id}",
    status_code=202,
    operation_id="scale_deployment",
    responses=problems(403, 404, 409, 412),
)
async def scale(services: Served, principal: User, deployment_id: str, request: ScaleRequest) -> DeploymentScaled:
    """Change the number of replicas of a deployment."""
    row = await find_workload(services, principal, deployment_id, action=Action.CHANGE_WORK, kind=Kind.DEPLOYMENT)
    highest = services.limits.max_scale
    if not 1 <= request.replicas <= highest:
        raise invalid([("replicas", f"{request.replicas} requested; a deployment may have 1 to {highest}")])
    if (word := _word(row)) in ("deleted", "failed"):
        raise Conflict(f"deployment {row.name!r} is {word} and cannot be scaled", code=f"deployment-{word}")
    charge_tasks(services, principal, replicas=request.replicas)
    await services.submissions.scale(principal, row.id, request.replicas)
    return DeploymentScaled(
        deployment_id=row.id,
        replicas=request.replicas,
        message=f"Scaling from {row.replicas} to {request.replicas} replicas."
        if request.replicas != row.replicas
        else f"The deployment has {row.replicas} replicas already.",
    )


@router.delete("/{deployment_id}", status_code=202, operation_id="delete_deployment", responses=problems(403, 404, 409))
async def delete(services: Served, principal: User, deployment_id: str) -> DeploymentSummary:
    """Stop the replicas of a deployment and delete it. Its history is retained."""
    row = await find_workload(services, principal, deployment_id, action=Action.CHANGE_WORK, kind=Kind.DEPLOYMENT)
    if row.removed_at is not None:
        raise Conflict(f"deployment {row.name!r} is deleted already", code="deployment-deleted")
    await services.submissions.remove(principal, row.id)
    return _summary(await find_workload(services, principal, str(row.id)))


def check_limits(request: DeploymentRequest, limits: DeploymentLimits) -> None:
    """Raise InvalidInput that names every amount outside the bounds."""
    asked = request.resources
    bounds: tuple[tuple[str, float, float, float, str], ...] = (
        ("replicas", request.replicas, 1, limits.max_replicas, "replicas"),
        ("resources.cpu", asked.cpu, limits.min_cpu, limits.max_cpu, "CPU cores"),
        ("resources.memory", asked.memory, limits.min_memory_mb, limits.max_memory_mb, "MB of memory"),
        ("resources.gpu", asked.gpu, 0, limits.max_gpu, "GPUs"),
        ("resources.storage", asked.storage, limits.min_storage_gb, limits.max_storage_gb, "GB of storage"),
    )
    wrong = [
        (field, f"a deployment may have {lowest:g} to {highest:g} {unit}")
        for field, amount, lowest, highest, unit in bounds
        if not lowest <= amount <= highest
    ]
    if wrong:
        raise invalid(wrong)


def as_workload(request: DeploymentRequest) -> WorkloadRequest:
    asked = request.resources
    return WorkloadRequest(
        name=request.name,
        kind="deployment",
        type=request.type,
        pool=request.pool,
        replicas=request.replicas,
        region=request.region,
        gang=True,
        max_per_node=1,
        on_insufficient="fail",
        containers=[
            ContainerRequest(
                image=request.container_image,
                environment=request.environment,
                resources={
                    # The shortest text that means this float is what was written in the request.
                    "cpu": format(Decimal(repr(asked.cpu)), "f"),
                    "memory": f"{asked.memory}Mi",
                    "gpu": asked.gpu,
                    "storage": f"{asked.storage}Gi",
                },
            )
        ],
    )


def _word(row: WorkloadRow) -> Word:
    return "deleted" if row.removed_at is not None else _WORDS[WorkloadStatus(row.status)]


def _health(row: WorkloadRow) -> Literal["healthy", "degraded", "unhealthy"]:
    if row.ready >= row.replicas:
        return "healthy"
    return "degraded" if row.ready else "unhealthy"


def _image(row: WorkloadRow) -> str | None:
    return templates.decode(row.template).containers[0].image


def _replica(task: TaskRow, simulated: bool) -> ReplicaView:
    return ReplicaView(
        id=task.id,
        node=task.node_name,
        node_id=task.node_id,
        status=_REPLICA_WORDS[TaskStatus(task.status)],
        score=as_score(task.score),
        simulated=simulated,
    )


def _history_row(entry: HistoryEntry) -> DeploymentHistoryRow:
    return DeploymentHistoryRow(
        old_status=_past_word(entry.old_status),
        new_status=_past_word(entry.new_status),
        changed_by=entry.actor,
        changed_at=entry.at,
        reason=entry.reason,
    )


def _past_word(status: str) -> str:
    """The word for a status in the history, which also knows `none`."""
    try:
        return _WORDS[WorkloadStatus(status)]
    except ValueError:
        return status.lower()


def _summary(row: WorkloadRow) -> DeploymentSummary:
    return DeploymentSummary(
        deployment_id=row.id,
        name=row.name,
        type=row.type,
        status=_word(row),
        simulated=row.simulated,
        container_image=_image(row),
        target_replicas=row.replicas,
        running_replicas=row.running,
        created_at=row.created_at,
    )
