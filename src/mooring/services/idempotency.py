"""The same request under the same key gets the answer that was given before; another one does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.model.errors import Conflict
from mooring.store.submissions import Answered


def recalled(before: Answered, request_hash: str) -> Mapping[str, Any]:
    if before.request_hash != request_hash:
        raise Conflict(
            "this idempotency key was used for another request; take a new one for every request",
            code="idempotency-key-reused",
        )
    return before.answer
