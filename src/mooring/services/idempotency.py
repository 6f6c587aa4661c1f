"""Idempotency: a request repeated under the same key gets the stored answer; a different one is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.model.errors import Conflict
from mooring.store.workloads.idempotency import Answered


def recalled(before: Answered, request_hash: str) -> Mapping[str, Any]:
    if before.request_hash != request_hash:
        raise Conflict(
            "this idempotency key was used for another request; use a new key for each request",
            code="idempotency-key-reused",
        )
    return before.answer
