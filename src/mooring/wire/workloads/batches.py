"""Many workloads in one request."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field, SkipValidation

from mooring.wire.fields import MAX_BATCH, Answer, IdempotencyKey, Request
from mooring.wire.problems import ErrorBody
from mooring.wire.workloads.workloads import WorkloadRequest


class BatchRequest(Request):
    """Each workload is checked by itself: an invalid one is refused alone."""

    workloads: Annotated[list[SkipValidation[WorkloadRequest]], Field(min_length=1, max_length=MAX_BATCH)]
    idempotency_key: IdempotencyKey | None = None
    """As the header `Idempotency-Key`."""


class BatchItem(Answer):
    """The outcome of one workload of a batch: its id if accepted, or the error."""

    id: UUID | None = None
    name: str | None = None
    pool: str | None = None
    simulated: bool | None = None
    error: ErrorBody | None = None


class BatchAccepted(Answer):
    accepted: int
    refused: int
    workloads: list[BatchItem]
    """In the order of the request."""
