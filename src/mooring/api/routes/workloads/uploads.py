"""Uploads: folders of users for the working folders of their tasks."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from mooring.api.auth.request_access import LoggedIn, Served, Submitter, User, as_id
from mooring.api.middleware.errors import problems
from mooring.api.middleware.outermost import release_seat
from mooring.api.streams.exec_authorisation import counted_channel
from mooring.model.tenancy.access import Action, not_there, require
from mooring.wire.fields import Name
from mooring.wire.workloads.uploads import ChunkPositions, UploadView, json_schema

PATH = "/api/uploads"
_CONTENT = re.compile(r"/api/uploads/[^/]+/content")
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

router = APIRouter(prefix=PATH, tags=["uploads"], responses=problems(401, 422, 503))

OfProject = Annotated[Name | None, Query(description="Project (default: the caller's)")]
Positions = Annotated[
    ChunkPositions, Query(description="Positions in the manifest's list of distinct chunks, ascending: `0-3,7`")
]


def takes_a_stream(scope: Scope) -> bool:
    """Return whether the request body is streamed, because chunks go to disk as they arrive."""
    return scope["method"] == "PUT" and _CONTENT.fullmatch(scope["path"]) is not None


@router.post(
    "",
    operation_id="declare_upload",
    responses=problems(403, 404, 409),
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": json_schema()}}}},
)
async def declare_upload(
    services: Served, principal: Submitter, request: Request, project: OfProject = None
) -> UploadView:
    """Declare a folder by its manifest; the answer names the chunks that have to be sent. The same manifest again is
    the same upload, so that an interrupted upload continues and an unchanged folder sends nothing."""
    return await services.uploads.declare(principal, project, await request.body())


@router.get("", operation_id="list_uploads", responses=problems(403, 404, 409))
async def list_uploads(services: Served, principal: User, project: OfProject = None) -> list[UploadView]:
    """List the uploads of a project, the last used first, at most 1,000."""
    return await services.uploads.listed(principal, project)


@router.put(
    "/{upload_id}/content",
    status_code=204,
    response_class=Response,
    operation_id="store_chunks",
    responses=problems(403, 404, 409),
    openapi_extra={"requestBody": {"required": True, "content": _BINARY}},
)
async def store_chunks(
    services: Served, login: LoggedIn, request: Request, upload_id: str, chunks: Positions
) -> Response:
    """Send the content of chunks, one after the other; those that arrive in full are kept even if the rest does not."""
    principal, found = login.principal, _id(upload_id)
    require(principal, Action.SUBMIT)
    release_seat(request.scope)
    with (
        suppress(ClientDisconnect),
        counted_channel(services, principal),
        services.connections.opened(login, lambda principal: require(principal, Action.SUBMIT)) as connection,
    ):
        await connection.run(services.uploads.receive(principal, found, chunks, request.stream()))
    return Response(status_code=204)


@router.post("/{upload_id}/complete", operation_id="complete_upload", responses=problems(403, 404, 409))
async def complete_upload(services: Served, principal: Submitter, upload_id: str) -> UploadView:
    """Check that all chunks have arrived; from then on workloads of the project can use the upload."""
    return await services.uploads.complete(principal, _id(upload_id))


@router.delete("/{upload_id}", status_code=204, operation_id="remove_upload", responses=problems(403, 404, 409))
async def remove_upload(services: Served, principal: Submitter, upload_id: str) -> Response:
    """Remove an upload that no workload uses."""
    await services.uploads.remove(principal, _id(upload_id))
    return Response(status_code=204)


def _id(text: str) -> UUID:
    found = as_id(text)
    if found is None:
        raise not_there(f"upload {text[:63]!r}")
    return found
