"""Hooks: code of installed packages that is asked before a submission is written, and told afterwards.

An entry point of the group `mooring.hooks` names an object (a module will do) with one or both of

    pre_enqueue(facts)   returns None, or a sentence that says why the workload is refused
    post_enqueue(ids)    is told what was written

Neither can hurt the server: each call has its time, and one that raises or takes longer is named. A `pre_enqueue` that
does not answer refuses, since what it guards would be open otherwise; what becomes of `post_enqueue` changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self
from uuid import UUID

import structlog

from mooring.containment import Contained, Hangs
from mooring.installed import entry_points
from mooring.model.admission import AdmissionError
from mooring.model.errors import MooringError, Unavailable
from mooring.model.names import shown
from mooring.store.workloads import NewWorkload

_log = structlog.get_logger(__name__)
_SECONDS = 5.0


class RefusedByHook(AdmissionError):
    code = "refused-by-hook"


class Hooks:
    def __init__(self, hooks: Mapping[str, object] | None = None, *, seconds: float = _SECONDS) -> None:
        """`hooks` by the names that people read."""
        given = (hooks or {}).items()
        self._before = [_Hook(name, hook.pre_enqueue, seconds) for name, hook in given if hasattr(hook, "pre_enqueue")]
        self._after = [_Hook(name, hook.post_enqueue, seconds) for name, hook in given if hasattr(hook, "post_enqueue")]
        self._telling: set[asyncio.Task[None]] = set()

    @classmethod
    def discovered(cls) -> Self:
        return cls({entry.name: entry.load() for entry in entry_points(group="mooring.hooks")})

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
            telling = asyncio.create_task(_tell(hook, ids))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)


class _Hook:
    def __init__(self, name: str, function: Callable[[Any], object], seconds: float) -> None:
        self.name = name
        self._function = function
        self._contained = Contained(seconds)

    async def call(self, argument: object) -> object:
        """What it returns; Unavailable, which names it, if it raises or hangs."""
        try:
            return await asyncio.to_thread(self._contained.call, partial(self._function, argument))
        except Hangs as hangs:
            problem = str(hangs)
        except Exception as error:
            problem = f"raised {type(error).__name__}: {shown(str(error))[:200]}"
        raise Unavailable(f"the hook {self.name!r} {problem}", code="hook-failed", details={"hook": self.name})


async def _ask(hook: _Hook, facts: Mapping[str, Any]) -> MooringError | None:
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


async def _tell(hook: _Hook, ids: Iterable[UUID]) -> None:
    try:
        await hook.call([str(id) for id in ids])
    except Unavailable as error:
        _log.error(error.message)


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
        "request": dict(new.template.request),
        "images": [container.image for container in new.template.containers if container.image is not None],
        "priority": new.priority,
        "private": new.terms.private,
        "starts_at": None if new.terms.starts_at is None else new.terms.starts_at.isoformat(),
        "labels": dict(new.labels),
    }
