"""Who leads: candidates campaign for one seat, and whoever has it knows until when it is safely theirs.

The seat only says who should lead. What makes a former leader's writes fail is the term that the store issues when
office is taken (`leadership.Office`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from mooring.clock import monotonic

SAFE_PART = 0.8
"""Of a lease's time: what is left over covers clocks that run at different speeds."""
RENEWALS = 3
"""In the time of a lease."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What the seat was won with, kept beside the term: which kind of coordination, and etcd's own numbers."""

    kind: str
    cluster: str | None = None
    revision: int | None = None


class Seat:
    """Leadership as long as it is renewed. By the monotonic clock it is over before anybody else can have it."""

    def __init__(
        self,
        claim: Claim,
        *,
        ttl: float | None,
        renew: Callable[[], Awaitable[bool]],
        release: Callable[[], Awaitable[None]],
        asked_at: float | None = None,
    ) -> None:
        """`ttl`: None where nobody else can come. `asked_at`: before the seat was asked for, by the monotonic clock."""
        self.claim = claim
        self._ttl = ttl
        self._renew = renew
        self._release = release
        self._deadline = None if ttl is None else (monotonic() if asked_at is None else asked_at) + ttl * SAFE_PART
        self._lost = False

    @property
    def safe(self) -> bool:
        return not self._lost and (self._deadline is None or monotonic() < self._deadline)

    async def until_lost(self, needed: Callable[[], Awaitable[None]] | None = None) -> None:
        """Renew it; return when it is lost, or could be.

        `needed`: returns once what the leader works on answers. Who does not reach that has no use for the seat, and
        another may.
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
                    if needed is not None:
                        await needed()
                    renewed = await self._renew()
            except Exception:
                # It could not be asked: the seat stays until its time is up, and is asked for again soon.
                await asyncio.sleep(min(0.1, left))
                continue
            if not renewed:
                break
            self._deadline = asked_at + self._ttl * SAFE_PART
        self._lost = True

    async def resign(self) -> None:
        """Give it back, so that another need not wait until it expires."""
        self._lost = True
        with suppress(Exception):
            async with asyncio.timeout(2.0):
                await self._release()


class Election(Protocol):
    @property
    def standbys(self) -> bool:
        """Others may have the seat: who waits for it is well, and who lost it waits for it again."""
        ...

    async def campaign(self) -> Seat:
        """Wait until the seat is ours."""
        ...

    async def close(self) -> None: ...


class Alone:
    """One machine, one server: whoever comes leads."""

    standbys = False

    async def campaign(self) -> Seat:
        return Seat(Claim("alone"), ttl=None, renew=_still_here, release=_nothing)

    async def close(self) -> None:
        return None


async def _still_here() -> bool:
    return True


async def _nothing() -> None:
    return None
