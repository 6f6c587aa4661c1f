"""Leader election: candidates campaign for one lease, and its holder knows until when it safely holds it.

The lease only designates the leader. The writes of a former leader fail because of the term, which the store issues
when leadership begins (`leadership.Leadership`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from mooring.clock import monotonic
from mooring.coordination.outage import Outage, in_short

SAFE_PART = 0.8
"""Fraction of the lease time that its holder relies on; the rest covers clocks of different speed."""
RENEWALS = 3
"""Number of renewals per lease time."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The origin of a lease, recorded with the term: the kind of election, and etcd's cluster id and revision."""

    kind: str
    cluster: str | None = None
    revision: int | None = None


class Lease:
    """A leadership lease and its renewal. By the monotonic clock it ends before another server can acquire it."""

    def __init__(
        self,
        claim: Claim,
        *,
        ttl: float | None,
        renew: Callable[[], Awaitable[bool]],
        release: Callable[[str], Awaitable[None]],
        asked_at: float | None = None,
    ) -> None:
        """`ttl`: None if there are no other candidates. `asked_at`: monotonic time just before the lease was requested.

        `release`: releases the lease and records the reason, which explains why there is no leader.
        """
        self.claim = claim
        self.problem = "it has expired"
        """The reason of the last failed renewal."""
        self._ttl = ttl
        self._renew = renew
        self._release = release
        self.renewed_at = monotonic() if asked_at is None else asked_at
        """Monotonic time just before the last successful renewal was requested."""
        self._deadline = None if ttl is None else self.renewed_at + ttl * SAFE_PART
        self._lost = False

    @property
    def safe(self) -> bool:
        return not self._lost and (self._deadline is None or monotonic() < self._deadline)

    async def until_lost(self, needed: Callable[[], Awaitable[None]] | None = None) -> None:
        """Renew the lease; return when it is, or could be, lost.

        `needed`: returns once the database answers. A leader that cannot reach the database does not renew the lease,
        so that another server can acquire it.
        """
        if self._ttl is None:
            await asyncio.Event().wait()
            return
        while self.safe:
            assert self._deadline is not None
            pause = min(self._ttl / RENEWALS, self._deadline - monotonic())
            await asyncio.sleep(max(0.0, pause))
            asked_at = monotonic()
            left = self._deadline - asked_at
            if left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    if needed is None:
                        renewed = await self._renew()
                    else:
                        # Concurrently: on a busy machine each takes a large part of a short lease.
                        _, renewed = await asyncio.gather(needed(), self._renew())
            except Exception as error:
                # The renewal failed: the lease stays valid until its deadline, and the renewal is retried soon.
                self.problem = in_short(error)
                await asyncio.sleep(min(0.1, left))
                continue
            if not renewed:
                self.problem = "another server holds it, or its record was deleted"
                break
            self.renewed_at, self._deadline = asked_at, asked_at + self._ttl * SAFE_PART
        self._lost = True

    async def resign(self, reason: str = "the leader resigned") -> None:
        """Release the lease, so that the next leader need not wait for its expiry."""
        self._lost = True
        with suppress(Exception):
            async with asyncio.timeout(2.0):
                await self._release(reason)


class Election(Protocol):
    @property
    def standbys(self) -> bool:
        """Whether several servers campaign: a server without the lease is then healthy, and campaigns again."""
        ...

    @property
    def outage(self) -> Outage | None:
        """The outage that prevents this server from campaigning, if any."""
        ...

    async def campaign(self) -> Lease:
        """Wait until this server holds the lease, and return it."""
        ...

    async def close(self) -> None: ...


class Alone:
    """The election of a single server: it always leads."""

    standbys = False
    outage: Outage | None = None

    async def campaign(self) -> Lease:
        return Lease(Claim("alone"), ttl=None, renew=_still_here, release=_nothing)

    async def close(self) -> None:
        return None


async def _still_here() -> bool:
    return True


async def _nothing(_reason: str) -> None:
    return None
