"""Many workloads in one request."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException, Request
from pydantic import ValidationError

from mooring.api.auth.request_access import IdempotencyHeader, Served, Submitter
from mooring.api.middleware.errors import problems
from mooring.api.middleware.task_costs import charge_batch, tasks_of
from mooring.concurrency.workers import off_loop
from mooring.wire.fields import MAX_BATCH
from mooring.wire.problems import invalid, refused
from mooring.wire.workloads.batches import BatchAccepted, BatchRequest

PATH = "/api/workloads/batch"

router = APIRouter(tags=["workloads"], responses=problems(401, 403, 409, 422, 503))

_BODY: dict[str, Any] = {
    "type": "object",
    "required": ["workloads"],
    "additionalProperties": False,
    "properties": {
        "workloads": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_BATCH,
            "items": {"$ref": "#/components/schemas/WorkloadRequest"},
        },
        "idempotency_key": {"type": ["string", "null"], "pattern": "^[!-~]{1,128}$"},
    },
}


@router.post(
    PATH,
    status_code=202,
    operation_id="submit_batch",
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": _BODY}}}},
)
async def submit_batch(
    services: Served, principal: Submitter, request: Request, idempotency_key: IdempotencyHeader = None
) -> BatchAccepted:
    """Submit up to 1,000 workloads of any kind, with 20,000 tasks in all, in one transaction.

    Each is accepted or refused by itself.
    """
    # Read after the authentication: a large body without a credential is not parsed.
    batch, tasks = await off_loop(_parsed, await request.body())
    if idempotency_key and batch.idempotency_key and idempotency_key != batch.idempotency_key:
        raise invalid([("idempotency_key", "is not the one of the header Idempotency-Key")])
    charge_batch(services, principal, batch.workloads, tasks)
    return await services.submissions.submit_batch(
        principal, batch.workloads, key=idempotency_key or batch.idempotency_key
    )


def _parsed(body: bytes) -> tuple[BatchRequest, int]:
    """The batch, and its tasks in all."""
    try:
        batch = BatchRequest.model_validate_json(body)
        return batch, sum(map(tasks_of, batch.workloads))
    except ValidationError as error:
        if any(one["type"] == "json_invalid" for one in error.errors(include_url=False, include_input=False)):
            raise HTTPException(400) from None
        raise refused(error) from None
