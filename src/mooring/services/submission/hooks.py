"""The hooks of submissions: they are asked before one is written, and told afterwards.

A `pre_enqueue` that does not answer refuses, since what it guards would be open otherwise; what becomes of
`post_enqueue` changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Self
from uuid import UUID

import structlog

from mooring.hooks import CALL_SECONDS, Hook, discovered, with_method
from mooring.model.admission import AdmissionError
from mooring.model.errors import MooringError, Unavailable
from mooring.model.resources import requests_of
from mooring.store.workloads import NewWorkload

_log = structlog.get_logger(__name__)


class RefusedByHook(AdmissionError):
    code = "refused-by-hook"


class Hooks:
    def __init__(self, hooks: Mapping[str, object] | None = None, *, seconds: float = CALL_SECONDS) -> None:
        """`hooks` by the names that people read."""
        self._before = with_method(hooks or {}, "pre_enqueue", seconds=seconds)
        self._after = with_method(hooks or {}, "post_enqueue", seconds=seconds)
        self._telling: set[asyncio.Task[None]] = set()

    @classmethod
    def discovered(cls) -> Self:
        return cls(discovered())

    async def refused(self, new: Sequence[NewWorkload]) -> dict[UUID, MooringError]:
        """Ask about submissions; who is refused, and why."""
        found: dict[UUID, MooringError] = {}
        for one in new if self._before else ():
            facts = facts_of(one)
            for hook in self._before:
                refusal = await _ask(hook, facts)
                if refusal is not None:
                    found[one.id] = refusal
                    break
        return found

    def written(self, ids: Sequence[UUID]) -> None:
        """Tell what was written; nobody waits for that."""
        for hook in self._after if ids else ():
            telling = asyncio.create_task(hook.tell([str(id) for id in ids]))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)


async def _ask(hook: Hook, facts: Mapping[str, Any]) -> MooringError | None:
    try:
        answer = await hook.call(facts)
    except Unavailable as error:
        _log.error(error.message)
        return error
    if answer is None:
        return None
    if not isinstance(answer, str):
        problem = f"answered with a {type(answer).__name__} where a sentence or None is due"
        _log.error(f"the hook {hook.name!r} {problem}")
        return Unavailable(f"the hook {hook.name!r} {problem}", code="hook-failed", details={"hook": hook.name})
    return RefusedByHook(answer, cure="change", details={"hook": hook.name})


def facts_of(new: NewWorkload) -> dict[str, Any]:
    """A submission as hooks see it."""
    return {
        "id": str(new.id),
        "name": new.name,
        "kind": new.kind.value,
        "type": new.type,
        "user": new.principal.username,
        "user_id": str(new.principal.user_id),
        "project_id": str(new.principal.project_id),
        "domain_id": str(new.principal.domain_id),
        "access_key": new.principal.access_key,
        "pool_id": str(new.pool_id),
        "tasks": new.replicas,
        "request": requests_of(new.template),
        "images": new.template.images,
        "priority": new.priority,
        "private": new.terms.private,
        "starts_at": None if new.terms.starts_at is None else new.terms.starts_at.isoformat(),
        "labels": dict(new.labels),
    }
