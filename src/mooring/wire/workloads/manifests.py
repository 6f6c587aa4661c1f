"""Manifests: one document per workload, with the fields of requests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from mooring.wire.fields import Name, said
from mooring.wire.workloads.containers import TaskTemplateRequest
from mooring.wire.workloads.rollouts import RolloutRequest, UpdateRequest
from mooring.wire.workloads.timeslots import LabRequest, PromiseRequest
from mooring.wire.workloads.workload_fields import WorkloadFields
from mooring.wire.workloads.workloads import WorkloadRequest


class DeploymentManifest(WorkloadFields):
    """Replicas that are kept running."""

    kind: Literal["deployment"]
    name: Name
    type: Name = "compute"
    rollout: RolloutRequest | None = None
    """The rollout policy: the replacement of its tasks when it changes."""


class SessionManifest(WorkloadFields):
    """Work that runs to its end, or interactively; several replicas that start together with `gang`."""

    kind: Literal["session"]
    name: Name
    type: Literal["interactive", "batch", "inference", "system"] = "batch"


class LabManifest(WorkloadFields, PromiseRequest):
    """Work in a window of time, with reserved capacity: `start`, and one of `end` and `duration`."""

    kind: Literal["lab"]
    name: Name
    type: Literal["interactive", "batch", "inference", "system"] = "interactive"


Manifest = Annotated[DeploymentManifest | SessionManifest | LabManifest, Field(discriminator="kind")]
MANIFEST: TypeAdapter[DeploymentManifest | SessionManifest | LabManifest] = TypeAdapter(Manifest)


def workload_request(manifest: Manifest) -> WorkloadRequest:
    """Return the request for the workload itself."""
    fields = said(manifest, WorkloadRequest)
    fields["kind"] = "deployment" if manifest.kind == "deployment" else "session"
    return WorkloadRequest(**fields | {"type": manifest.type})


def update_request(manifest: DeploymentManifest, *, cause: str) -> UpdateRequest:
    """Return the update that makes an existing deployment match the manifest, as far as it can be changed."""
    template = TaskTemplateRequest(**said(manifest, TaskTemplateRequest))
    replicas = manifest.replicas if "replicas" in manifest.model_fields_set else None
    return UpdateRequest(template=template, replicas=replicas, rollout=manifest.rollout, cause=cause)


def lab_request(manifest: LabManifest) -> LabRequest:
    return LabRequest(workload=workload_request(manifest), **said(manifest, PromiseRequest))
