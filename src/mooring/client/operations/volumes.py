"""Operations on volumes."""

from __future__ import annotations

from mooring.client.operations.operation import Operation, given, segment
from mooring.wire.workloads.volumes import NewVolumeRequest, VolumeView


def volumes(
    *, project: str | None = None, domain: str | None = None, node: str | None = None
) -> Operation[list[VolumeView]]:
    """The volumes of all visible projects, or of one; optionally only those on a node."""
    return Operation("GET", "/api/volumes", list[VolumeView], query=given(project=project, domain=domain, node=node))


def volume(name: str, *, project: str | None = None, domain: str | None = None) -> Operation[VolumeView]:
    """Of the user's own project by default."""
    query = given(project=project, domain=domain)
    return Operation("GET", f"/api/volumes/{segment(name)}", VolumeView, query=query)


def create_volume(request: NewVolumeRequest) -> Operation[VolumeView]:
    return Operation("POST", "/api/volumes", VolumeView, body=request)


def remove_volume(name: str, *, project: str | None = None, domain: str | None = None) -> Operation[None]:
    """Remove a volume; it is gone when its node has deleted the content."""
    query = given(project=project, domain=domain)
    return Operation("DELETE", f"/api/volumes/{segment(name)}", type(None), query=query)
