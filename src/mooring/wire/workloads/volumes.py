"""Volumes as they travel."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from mooring.wire.fields import Answer, Name, Quantity, Request


class NewVolumeRequest(Request):
    name: Name
    size: Quantity
    """The storage that it counts as, `10Gi`."""
    pool: Name | None = None
    """None: one that may be used."""
    project: Name | None = None
    """None: the caller's project."""
    shared: bool = False
    """All nodes of its pool have it, in a folder that the pool says."""


class VolumeUse(Answer):
    workload: str
    user: str
    id: UUID
    """Of the workload."""


class VolumeView(Answer):
    id: UUID
    name: str
    project: str
    domain: str
    pool: str
    size: str
    shared: bool
    status: str
    """`unplaced`, `available`, `unreachable`, `lost`, `removing`."""
    node: str | None
    """The node that has, or had, its content."""
    mounted_by: int
    """Workloads that have not ended."""
    uses: list[VolumeUse] = []
    """Those of them that one may see."""
    created_by: str
    created_at: datetime
