"""Protects the whole process: so many requests at once, a few that wait for their turn, and 429 for the rest.

Rates hold back one who asks too much. Here are those who each ask little, and together more than the process can do.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from mooring import metrics
from mooring.model.errors import TooManyAttempts

_BURST_SECONDS = 0.5
"""How long a request may have to wait while many come for a short time: they are worked off."""
_STANDING_SECONDS = 0.1
"""The same once there were always some that had to wait, for longer than a burst: that is no burst."""
_MOST_WAITING = 256
_LONGEST_WAIT_SECONDS = 3.0
"""Where the turns turn out to take longer than before."""
_NEWEST_SHARE = 0.1
"""Of the newest measurement in the mean."""
_LONGEST_RETRY_SECONDS = 3
_MOST_OPERATORS = 1000


class Turn:
    """A request in progress, until its answer begins, or it only waits for something to happen."""

    def __init__(self, pressure: Pressure) -> None:
        self._pressure: Pressure | None = pressure

    def release(self) -> None:
        """The next one may begin. A second time it changes nothing."""
        pressure, self._pressure = self._pressure, None
        if pressure is not None:
            pressure._ended()


class Pressure:
    """The turns of one process. Refuses with TooManyAttempts, at the door if possible.

    How long a newcomer would wait is told from the time between the last turns that were handed on.
    """

    def __init__(self, at_once: int = 6, *, reserved: int = 2, clock: Callable[[], float] = time.monotonic) -> None:
        """`reserved`: further turns for what operators read."""
        self._at_once = at_once
        self._reserved = reserved
        self._clock = clock
        self._in_progress = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._crowded_since = self._crowded_until = clock() - _BURST_SECONDS
        """The last time in which no second went by without somebody who had to wait."""
        self._handed_on_at: float | None = None
        self._seconds_apart = 0.0
        """Between two turns that are handed on."""
        self._operators: OrderedDict[int, None] = OrderedDict()
        """By the hash of their credential, which the process keys: nobody can choose it. The last used comes last."""

    def trust(self, authorization: str) -> None:
        """This credential was an operator's."""
        self._operators[hash(authorization)] = None
        self._operators.move_to_end(hash(authorization))
        if len(self._operators) > _MOST_OPERATORS:
            self._operators.popitem(last=False)

    def trusts(self, authorization: str) -> bool:
        return hash(authorization) in self._operators

    def check(self) -> None:
        """Refuse a request that would have to wait too long."""
        if self._in_progress < self._at_once:
            return
        number = len(self._waiting)
        if number >= _MOST_WAITING or number * self._seconds_apart > self._longest_wait():
            raise _overloaded()

    async def turn(self, *, reserved: bool = False) -> Turn:
        """Wait for a turn. With `reserved` those may be taken that are kept for operators."""
        most = self._at_once + self._reserved if reserved else self._at_once
        if self._in_progress < most:
            self._in_progress += 1
            metrics.requests_in_progress.set(self._in_progress)
        else:
            self.check()
            await self._wait()
        return Turn(self)

    async def _wait(self) -> None:
        now = self._clock()
        if now - self._crowded_until > _BURST_SECONDS:
            self._crowded_since = now
        self._crowded_until = now
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
                await mine
        except BaseException as error:
            if not mine.cancelled():
                # Its turn came just when it went.
                self._ended()
            elif mine in self._waiting:
                self._waiting.remove(mine)
            if isinstance(error, TimeoutError):
                raise _overloaded() from None
            raise

    def _longest_wait(self) -> float:
        standing = self._crowded_until - self._crowded_since > _BURST_SECONDS
        return _STANDING_SECONDS if standing else _BURST_SECONDS

    def _ended(self) -> None:
        """Hand the turn on to the one who has waited longest and is still there."""
        while self._waiting and self._in_progress <= self._at_once:
            waiting = self._waiting.popleft()
            if not waiting.cancelled():
                self._measure()
                waiting.set_result(None)
                return
        self._in_progress -= 1
        self._handed_on_at = None
        metrics.requests_in_progress.set(self._in_progress)

    def _measure(self) -> None:
        now = self._clock()
        if self._handed_on_at is not None:
            self._seconds_apart += _NEWEST_SHARE * (now - self._handed_on_at - self._seconds_apart)
        self._handed_on_at = now


def _overloaded() -> TooManyAttempts:
    metrics.requests_refused.inc()
    # Those who are refused together do not come back together.
    seconds = random.randint(1, _LONGEST_RETRY_SECONDS)
    return TooManyAttempts(
        "the server has more to do than it can; try again soon",
        code="overloaded",
        details={"retry_after_seconds": seconds},
    )
