"""Long polls: requests that wait until one workload or timeslot has changed, counted as streams of their user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from uuid import UUID

from starlette.types import Scope

from mooring.api.auth.logins import Login
from mooring.api.middleware.outermost import release_seat
from mooring.api.services import Services
from mooring.model.tenancy.tenants import Principal

_RECHECK_SECONDS = 15.0
"""Maximum delay of a response after a lost event."""


async def watch(
    services: Services,
    scope: Scope,
    login: Login,
    object_id: UUID,
    seconds: float,
    authorise: Callable[[Principal], None],
) -> AsyncGenerator[bool]:
    """Yield whenever the caller has to check the object, with whether this is the last time.

    Ends with NotAuthenticated where `authorise` no longer allows it. A server that stops answers every poll with the
    present state, and the clients continue at another.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    # Most requests are answered at once.
    yield seconds <= 0
    close = services.rates.open_stream(login.principal)
    try:
        with services.feed.watching(object_id) as changes, services.connections.opened(login, authorise) as held:
            while True:
                # Counted before the look: a change that is committed meanwhile must not be missed.
                count = changes.count
                left = deadline - loop.time()
                last = left <= 0 or services.feed.closed
                yield last
                if last:
                    return
                release_seat(scope)
                await held.run(changes.wait(min(left, _RECHECK_SECONDS), count))
    finally:
        close()
