"""Deployments in the schema of the fog-compute API."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from mooring.wire.fields import MAX_ENVIRONMENT, Answer, EnvironmentName, Image, Name, Request, Text


class DeploymentResources(Request):
    """The bounds are settings (`deployment_max_…`), checked by the route."""

    cpu: Annotated[float, Field(description="CPU cores", allow_inf_nan=False)]
    memory: Annotated[int, Field(description="Memory in MB")]
    gpu: Annotated[int, Field(description="GPU units")] = 0
    storage: Annotated[int, Field(description="Storage in GB")] = 10


class DeploymentRequest(Request):
    name: Name
    type: Literal["compute", "storage", "gateway", "mixnode"] = "compute"
    container_image: Image
    replicas: int = 1
    resources: DeploymentResources
    region: Name | None = None
    pool: Name | None = None
    environment: Annotated[dict[EnvironmentName, Text], Field(max_length=MAX_ENVIRONMENT)] = {}


class DeploymentAccepted(Answer):
    success: Literal[True] = True
    deployment_id: UUID
    status: str
    replicas: int
    message: str


class ReplicaView(Answer):
    id: UUID
    node: str | None
    node_id: UUID | None
    status: str
    score: float | None
    container_id: str | None = None
    simulated: bool


class DeploymentHistoryRow(Answer):
    old_status: str
    new_status: str
    changed_by: str
    changed_at: datetime
    reason: str | None


class DeploymentStatus(Answer):
    deployment_id: UUID
    name: str
    type: str
    status: str
    simulated: bool
    container_image: str | None
    target_replicas: int
    running_replicas: int
    health: Literal["healthy", "degraded", "unhealthy"]
    replicas: list[ReplicaView]
    reason: dict[str, Any] | None
    history: list[DeploymentHistoryRow]
    pool: str
    created_at: datetime
    updated_at: datetime


class DeploymentSummary(Answer):
    deployment_id: UUID
    name: str
    type: str
    status: str
    simulated: bool
    container_image: str | None
    target_replicas: int
    running_replicas: int
    created_at: datetime


class DeploymentList(Answer):
    deployments: list[DeploymentSummary]
    total: int
    limit: int
    offset: int


class DeploymentScaled(Answer):
    success: Literal[True] = True
    deployment_id: UUID
    replicas: int
    message: str
