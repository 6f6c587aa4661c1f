"""Protects the whole process: so many requests at once, a few that wait for their turn, and 429 for the rest.

Rates hold back one who asks too much. Here are those who each ask little, and together more than the process can do.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from mooring import metrics
from mooring.model.errors import TooManyAttempts

_BURST_SECONDS = 0.3
"""How long a request may have to wait while nobody is refused: what comes for a short time is worked off."""
_MOST_WAITING = 64
_LONGEST_WAIT_SECONDS = 0.4
"""Where the turns turn out to take longer than before."""
_NEWEST_REQUEST = 0.03
"""How much the newest request counts in the share of those that are refused."""
_NEWEST_TURN = 0.1
"""How much the newest turn counts in how soon they follow each other."""
RETRY_SECONDS = (1, 2, 3)
_MOST_OPERATORS = 1000


class Turn:
    """A request in progress, until its answer begins, or it only waits for something to happen."""

    def __init__(self, pressure: Pressure, credential: int, began: float) -> None:
        self._pressure: Pressure | None = pressure
        self._credential = credential
        self._began = began

    def release(self) -> None:
        """The next one may begin. A second time it changes nothing."""
        pressure, self._pressure = self._pressure, None
        if pressure is not None:
            pressure._ended(self._credential, self._began)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    credential: int
    come: asyncio.Future[bool]
    """Whether its turn has come; else its place was given to another."""


class Pressure:
    """The turns of one process. Refuses with TooManyAttempts, at the door if possible.

    The more are refused, the fewer are at work at once, down to half, and the less the others wait: in a flood
    what is taken is done as soon as ever. Where no place is left, who asks for little gets one of who asks for much.
    """

    def __init__(self, at_once: int = 6, *, reserved: int = 2, clock: Callable[[], float] = time.monotonic) -> None:
        """`reserved`: further turns for what operators read."""
        self._at_once = at_once
        self._reserved = reserved
        self._clock = clock
        self._in_progress = 0
        self._waiting: deque[_Waiting] = deque()
        self._asked: Counter[int] = Counter()
        """Requests in progress and waiting by credential."""
        self._refused_share = 0.0
        """Of those that came last."""
        self._spacing_seconds = 0.0
        """How soon after one another the last turns ended, or would have if the process had been busy."""
        self._operators: OrderedDict[int, None] = OrderedDict()
        """The last used comes last."""

    @staticmethod
    def credential(authorization: bytes) -> int:
        """What stands for it here: a hash that the process keys, so that nobody can choose it."""
        return hash(authorization)

    def trust(self, credential: int) -> None:
        """It was an operator's."""
        self._operators[credential] = None
        self._operators.move_to_end(credential)
        if len(self._operators) > _MOST_OPERATORS:
            self._operators.popitem(last=False)

    def trusts(self, credential: int) -> bool:
        return credential in self._operators

    def has_place(self, credential: int) -> bool:
        """Whether a request of this credential may come in; who may not is counted as refused."""
        free = self._in_progress < self._turns or self._may_wait() or self._greedier(credential) is not None
        if not free:
            self._refuse()
        return free

    async def turn(self, credential: int = 0, *, reserved: bool = False) -> Turn:
        """Wait for a turn. With `reserved` those may be taken that are kept for operators."""
        most = self._at_once + self._reserved if reserved else self._turns
        waits = self._in_progress >= most
        if waits and not self._may_wait():
            self._displace(credential)
        self._refused_share -= _NEWEST_REQUEST * self._refused_share
        self._asked[credential] += 1
        if waits:
            await self._wait(credential)
        else:
            self._in_progress += 1
            metrics.requests_in_progress.set(self._in_progress)
        return Turn(self, credential, self._clock())

    @property
    def _turns(self) -> int:
        """How many there are at this moment. With fewer each is done sooner, and with too few less gets done."""
        return max(1, round(self._at_once * (1 - self._refused_share / 2)))

    def _may_wait(self) -> bool:
        expected_seconds = (len(self._waiting) + 1) * self._spacing_seconds
        allowed_seconds = _BURST_SECONDS * (1 - self._refused_share) ** 3
        return len(self._waiting) < _MOST_WAITING and expected_seconds <= allowed_seconds

    def _greedier(self, credential: int) -> _Waiting | None:
        """The newest that waits of the one who has asked for most, if it would still have no less than this one."""
        found = max(reversed(self._waiting), key=lambda waiting: self._asked[waiting.credential], default=None)
        return found if found is not None and self._asked[found.credential] > self._asked[credential] + 1 else None

    def _displace(self, credential: int) -> None:
        """Take the place of one who asks for more, or refuse."""
        greedier = self._greedier(credential)
        self._refuse()
        if greedier is None:
            raise overloaded(retry_seconds())
        self._waiting.remove(greedier)
        self._forget(greedier.credential)
        greedier.come.set_result(False)

    async def _wait(self, credential: int) -> None:
        mine = _Waiting(credential, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        try:
            async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
                come = await mine.come
        except BaseException as error:
            if mine in self._waiting:
                self._waiting.remove(mine)
                self._forget(credential)
            elif not mine.come.cancelled() and mine.come.result():
                # Its turn came just when it went.
                self._forget(credential)
                self._hand_on()
            if isinstance(error, TimeoutError):
                self._refuse()
                raise overloaded(retry_seconds()) from None
            raise
        if not come:
            raise overloaded(retry_seconds())

    def _ended(self, credential: int, began: float) -> None:
        # Turns side by side take each other's time: one that was alone says how soon each of many will end.
        spacing = (self._clock() - began) / self._in_progress
        self._spacing_seconds += _NEWEST_TURN * (spacing - self._spacing_seconds)
        self._forget(credential)
        self._hand_on()

    def _hand_on(self) -> None:
        """To those who have waited longest and are still there."""
        self._in_progress -= 1
        while self._waiting and self._in_progress < self._turns:
            waiting = self._waiting.popleft()
            if waiting.come.done():
                self._forget(waiting.credential)
            else:
                waiting.come.set_result(True)
                self._in_progress += 1
        metrics.requests_in_progress.set(self._in_progress)

    def _forget(self, credential: int) -> None:
        self._asked[credential] -= 1
        if not self._asked[credential]:
            del self._asked[credential]

    def _refuse(self) -> None:
        metrics.requests_refused.inc()
        self._refused_share += _NEWEST_REQUEST * (1 - self._refused_share)


def retry_seconds() -> int:
    """Those who are refused together do not come back together."""
    return random.choice(RETRY_SECONDS)


def overloaded(retry_seconds: int) -> TooManyAttempts:
    return TooManyAttempts(
        "the server has more to do than it can; try again soon",
        code="overloaded",
        details={"retry_after_seconds": retry_seconds},
    )
