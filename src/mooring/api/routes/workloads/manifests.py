"""The schema of workload files, with which the console and other editors complete and check them."""

from __future__ import annotations

import json
from functools import cache

from fastapi import APIRouter, Response

from mooring.api.auth.request_access import User
from mooring.api.middleware.errors import problems
from mooring.concurrency.workers import off_loop
from mooring.wire.workloads.manifest_schema import JsonSchema, schema

router = APIRouter(prefix="/api/manifests", tags=["workloads"], responses=problems(401, 503))

# The server's version decides the schema; a new version may run at the same address tomorrow.
_CACHED = {"Cache-Control": "private, max-age=3600"}


@router.get("/schema", operation_id="get_manifest_schema", response_model=JsonSchema)
async def get_schema(principal: User) -> Response:
    """Get the JSON Schema of workload files, with a description of each field."""
    return Response(await off_loop(_schema), media_type="application/json", headers=_CACHED)


@cache
def _schema() -> bytes:
    return json.dumps(schema()).encode()
