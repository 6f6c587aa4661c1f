"""The operations on deployments over time."""

from __future__ import annotations

from mooring.client.operation import Operation, segment
from mooring.wire import api, rollouts


def update(ref: str, request: rollouts.UpdateRequest) -> Operation[api.WorkloadView]:
    """Change what the tasks of a deployment are made from; they are replaced step by step."""
    return Operation("POST", _path(ref, "update"), api.WorkloadView, body=request)


def roll_back(ref: str, revision: int | None = None) -> Operation[api.WorkloadView]:
    """Go back to an earlier revision; None: the one before the present one."""
    body = rollouts.RollbackRequest(revision=revision)
    return Operation("POST", _path(ref, "rollback"), api.WorkloadView, body=body)


def pause_rollout(ref: str) -> Operation[api.WorkloadView]:
    """Replace no more tasks until it is resumed."""
    return Operation("POST", _path(ref, "pause"), api.WorkloadView)


def resume_rollout(ref: str) -> Operation[api.WorkloadView]:
    """Go on after a pause, or once more where it stalled."""
    return Operation("POST", _path(ref, "resume"), api.WorkloadView)


def revisions(ref: str) -> Operation[rollouts.RevisionList]:
    """The templates that a deployment had, from the first to the present one."""
    return Operation("GET", _path(ref, "revisions"), rollouts.RevisionList)


def endpoints(ref: str) -> Operation[rollouts.EndpointList]:
    """Where the tasks of a workload are that somebody may be sent to."""
    return Operation("GET", f"/api/workloads/{segment(ref)}/endpoints", rollouts.EndpointList)


def _path(ref: str, what: str) -> str:
    return f"/api/deployments/{segment(ref)}/{what}"
