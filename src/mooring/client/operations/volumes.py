"""The operations on volumes."""

from __future__ import annotations

from mooring.client.operation import Operation, given, segment
from mooring.wire.volumes import NewVolumeRequest, VolumeView


def volumes(
    *, project: str | None = None, domain: str | None = None, node: str | None = None
) -> Operation[list[VolumeView]]:
    """Those of all projects that one may see, or of one; only those on a node if one is named."""
    return Operation("GET", "/api/volumes", list[VolumeView], query=given(project=project, domain=domain, node=node))


def volume(name: str, *, project: str | None = None, domain: str | None = None) -> Operation[VolumeView]:
    """Of one's own project if none is named."""
    query = given(project=project, domain=domain)
    return Operation("GET", f"/api/volumes/{segment(name)}", VolumeView, query=query)


def create_volume(request: NewVolumeRequest) -> Operation[VolumeView]:
    return Operation("POST", "/api/volumes", VolumeView, body=request)


def remove_volume(name: str, *, project: str | None = None, domain: str | None = None) -> Operation[None]:
    """It is gone when its node has deleted what is in it."""
    query = given(project=project, domain=domain)
    return Operation("DELETE", f"/api/volumes/{segment(name)}", type(None), query=query)
