"""Hooks: code of installed packages that Mooring consults and notifies.

An entry point of the group `mooring.hooks` names an object (a module will do) with some of

    pre_enqueue(facts)   returns None, or a sentence that says why the workload is refused
    post_enqueue(ids)    receives the written ids
    scale_up(facts)      receives the nodes that a pool asks for

None of them can hurt the server: each call has its time, and one that raises or takes longer is named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog

from mooring.extensions.bounded_calls import Contained, Hangs
from mooring.extensions.entry_points import entry_points
from mooring.model.errors import Unavailable
from mooring.model.names import shown

_log = structlog.get_logger(__name__)
CALL_SECONDS = 5.0


def discovered() -> dict[str, object]:
    """Return the hooks of all installed packages by display name."""
    return {entry.name: entry.load() for entry in entry_points(group="mooring.hooks")}


def with_method(hooks: Mapping[str, object], method: str, *, seconds: float = CALL_SECONDS) -> list[Hook]:
    """Return the method of each hook that has it."""
    return [Hook(name, getattr(hook, method), seconds) for name, hook in hooks.items() if hasattr(hook, method)]


class Hook:
    def __init__(self, name: str, function: Callable[[Any], object], seconds: float) -> None:
        self.name = name
        self._function = function
        self._contained = Contained(seconds)

    async def call(self, argument: object) -> object:
        """Return its result; raise Unavailable, which names the hook, if it raises or hangs."""
        try:
            return await asyncio.to_thread(self._contained.call, partial(self._function, argument))
        except Hangs as hangs:
            problem = str(hangs)
        except Exception as error:
            problem = f"raised {type(error).__name__}: {shown(str(error))[:200]}"
        raise Unavailable(f"the hook {self.name!r} {problem}", code="hook-failed", details={"hook": self.name})

    async def notify(self, argument: object) -> None:
        """Call it; an error is logged and changes nothing."""
        try:
            await self.call(argument)
        except Unavailable as error:
            _log.error(error.message)
