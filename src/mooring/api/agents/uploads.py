"""Content of uploads for agents: only of those that a task on the agent's node uses."""

from __future__ import annotations

import hashlib
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import StreamingResponse

from mooring.api.auth.request_access import Served, as_id
from mooring.api.middleware.errors import problems
from mooring.api.middleware.outermost import release_seat
from mooring.model.errors import NotAuthenticated
from mooring.model.tenancy.access import not_there
from mooring.store.nodes import nodes
from mooring.wire.workloads.uploads import ChunkPositions

_BINARY = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}

router = APIRouter(prefix="/api/agent/uploads", tags=["agents"], responses=problems(401, 404, 422, 503))


async def _node(services: Served, request: Request) -> UUID:
    scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credential:
        async with services.database.read() as connection:
            hashed = hashlib.sha256(credential.encode("utf-8", "backslashreplace")).hexdigest()
            found = await nodes.by_credential(connection, hashed)
        if found is not None:
            node_id: UUID = found.id
            return node_id
    raise NotAuthenticated("this needs the credential of a node", code="credential-refused")


Node = Annotated[UUID, Depends(_node)]


@router.get("/{upload_id}/manifest", operation_id="get_manifest", response_class=Response, responses={200: _BINARY})
async def get_manifest(services: Served, node_id: Node, upload_id: str) -> Response:
    """The manifest of an upload that a task of the node uses."""
    content = await services.uploads.manifest_for_node(node_id, _id(upload_id))
    return Response(content, media_type="application/octet-stream")


@router.get(
    "/{upload_id}/content", operation_id="get_chunks", response_class=StreamingResponse, responses={200: _BINARY}
)
async def get_chunks(
    services: Served,
    node_id: Node,
    request: Request,
    upload_id: str,
    chunks: Annotated[ChunkPositions, Query(description="Positions of chunks in the manifest, ascending: `0-3,7`")],
) -> Response:
    """The content of chunks, one after the other."""
    pieces = await services.uploads.content_for_node(node_id, _id(upload_id), chunks)
    release_seat(request.scope)
    return StreamingResponse(pieces, media_type="application/octet-stream")


def _id(text: str) -> UUID:
    found = as_id(text)
    if found is None:
        raise not_there(f"upload {text[:63]!r}")
    return found
