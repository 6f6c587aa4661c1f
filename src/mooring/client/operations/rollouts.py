"""Operations on rollouts of deployments."""

from __future__ import annotations

from mooring.client.operations.operation import Operation, segment
from mooring.wire.workloads import rollouts
from mooring.wire.workloads.workloads import WorkloadView


def update(ref: str, request: rollouts.UpdateRequest) -> Operation[WorkloadView]:
    """Change the template of a deployment; its tasks are replaced step by step."""
    return Operation("POST", _path(ref, "update"), WorkloadView, body=request)


def roll_back(ref: str, revision: int | None = None) -> Operation[WorkloadView]:
    """Roll back to an earlier revision; None: the previous one."""
    body = rollouts.RollbackRequest(revision=revision)
    return Operation("POST", _path(ref, "rollback"), WorkloadView, body=body)


def pause_rollout(ref: str) -> Operation[WorkloadView]:
    """Replace no more tasks until it is resumed."""
    return Operation("POST", _path(ref, "pause"), WorkloadView)


def resume_rollout(ref: str) -> Operation[WorkloadView]:
    """Resume a paused or stalled rollout."""
    return Operation("POST", _path(ref, "resume"), WorkloadView)


def revisions(ref: str) -> Operation[rollouts.RevisionList]:
    """The revisions of a deployment, oldest first."""
    return Operation("GET", _path(ref, "revisions"), rollouts.RevisionList)


def endpoints(ref: str) -> Operation[rollouts.EndpointList]:
    """The addresses of a workload's ready tasks."""
    return Operation("GET", f"/api/workloads/{segment(ref)}/endpoints", rollouts.EndpointList)


def _path(ref: str, what: str) -> str:
    return f"/api/deployments/{segment(ref)}/{what}"
