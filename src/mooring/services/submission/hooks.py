"""Hooks of submissions: called before one is written, and notified afterwards.

A `pre_enqueue` that does not answer refuses the submission, since it may guard something; the result of
`post_enqueue` changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Self
from uuid import UUID

import structlog

from mooring.extensions.hooks import (
    CALL_SECONDS,
    Hook,
    discovered,
    with_method,
)
from mooring.model.errors import MooringError, Unavailable
from mooring.model.resources.task_resources import requests_of
from mooring.model.tenancy.admission import AdmissionError
from mooring.store.workloads.new_workloads import NewWorkload

_log = structlog.get_logger(__name__)


class RefusedByHook(AdmissionError):
    code = "refused-by-hook"


class Hooks:
    def __init__(self, hooks: Mapping[str, object] | None = None, *, seconds: float = CALL_SECONDS) -> None:
        """`hooks` by their display names."""
        self._before = with_method(hooks or {}, "pre_enqueue", seconds=seconds)
        self._after = with_method(hooks or {}, "post_enqueue", seconds=seconds)
        self._notifications: set[asyncio.Task[None]] = set()

    @classmethod
    def discovered(cls) -> Self:
        return cls(discovered())

    async def refused(self, new: Sequence[NewWorkload]) -> dict[UUID, MooringError]:
        """Call the hooks; return the refused submissions with their errors."""
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
        """Notify the hooks of written submissions, without waiting for them."""
        for hook in self._after if ids else ():
            notification = asyncio.create_task(hook.notify([str(id) for id in ids]))
            self._notifications.add(notification)
            notification.add_done_callback(self._notifications.discard)


async def _ask(hook: Hook, facts: Mapping[str, Any]) -> MooringError | None:
    try:
        answer = await hook.call(facts)
    except Unavailable as error:
        _log.error(error.message)
        return error
    if answer is None:
        return None
    if not isinstance(answer, str):
        problem = f"returned a {type(answer).__name__} instead of a message or None"
        _log.error(f"the hook {hook.name!r} {problem}")
        return Unavailable(f"the hook {hook.name!r} {problem}", code="hook-failed", details={"hook": hook.name})
    return RefusedByHook(answer, cure="change", details={"hook": hook.name})


def facts_of(new: NewWorkload) -> dict[str, Any]:
    """Return the facts about a submission that hooks receive."""
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
        "private": new.schedule.private,
        "starts_at": None if new.schedule.starts_at is None else new.schedule.starts_at.isoformat(),
        "labels": dict(new.labels),
    }
