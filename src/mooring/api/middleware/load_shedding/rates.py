"""How much one may ask for: requests, questions and streams per user, and requests per address before a login.

Kept in memory, so every process of the API counts for itself.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from mooring.api.throttle import address_key
from mooring.model.errors import TooManyAttempts
from mooring.model.tenants import Principal

_BURST_SECONDS = 2.0
_MOST_KEYS = 10_000
_STREAM_RETRY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Per second, and twice as many at once; streams are counted while they are open."""

    requests: float = 500.0
    questions: float = 10.0
    streams: int = 20
    channels: int = 100
    """Ways into tasks: a page in a browser opens many at once."""
    address_requests: float = 100.0
    admin_factor: float = 10.0
    """An admin may have so many times as much."""


@dataclass(slots=True)
class _Bucket:
    rate: float
    spent: float
    """What is missing from a full bucket."""
    at: float

    def missing_seconds(self, now: float, cost: float) -> float:
        """How long until so much can be taken; what costs more than a full bucket needs a full one."""
        burst = self.rate * _BURST_SECONDS
        self.spent, self.at = max(0.0, self.spent - (now - self.at) * self.rate), now
        return max(0.0, (self.spent + min(cost, burst) - burst) / self.rate)


class Buckets:
    """Token buckets by key: each holds two seconds' worth and fills up again all the time."""

    def __init__(self, clock: Callable[[], float], *, most_keys: int = _MOST_KEYS) -> None:
        self._clock = clock
        self._most_keys = most_keys
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        """The one used last comes last."""

    def missing_seconds(self, key: str) -> float:
        """How long until one can be taken from a bucket that is known; nothing is taken."""
        known = self._buckets.get(key)
        return known.missing_seconds(self._clock(), 1.0) if known is not None else 0.0

    def take(self, key: str, rate: float, cost: float) -> float:
        """Take so much and return 0, or take nothing and return how long to wait."""
        now = self._clock()
        bucket = self._buckets.setdefault(key, _Bucket(rate, 0.0, now))
        bucket.rate = rate
        missing = bucket.missing_seconds(now, cost)
        if missing == 0:
            bucket.spent += cost
            self._buckets.move_to_end(key)
            if len(self._buckets) > self._most_keys:
                self._buckets.popitem(last=False)
        return missing

    def __len__(self) -> int:
        return len(self._buckets)


class Rates:
    """Refuses with TooManyAttempts; whoever stays below is never slowed by somebody else's flood."""

    def __init__(self, limits: RateLimits | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits or RateLimits()
        self._buckets = Buckets(clock)
        self._streams: Counter[UUID] = Counter()
        self._channels: Counter[UUID] = Counter()

    def address(self, address: str | None) -> None:
        """A request of somebody unknown."""
        self._take(
            address_key(address), self.limits.address_requests, 1.0, "requests without a login from your address"
        )

    def check(self, user_id: UUID) -> None:
        """Refuse one who has nothing left before anything is looked up for them."""
        if (missing := self._buckets.missing_seconds(f"requests {user_id}")) > 0:
            raise _too_many("requests", missing)

    def request(self, principal: Principal, cost: float = 1.0) -> None:
        self._take(f"requests {principal.user_id}", self._rate(principal, self.limits.requests), cost, "requests")

    def question(self, principal: Principal) -> None:
        """A dry run or an explanation: each is a small scheduling pass."""
        rate = self._rate(principal, self.limits.questions)
        self._take(f"questions {principal.user_id}", rate, 1.0, "dry runs and explanations")

    def open_stream(self, principal: Principal) -> Callable[[], None]:
        """Count a stream in; what is returned counts it out."""
        return self._open(self._streams, principal, self.limits.streams, "streams")

    def open_channel(self, principal: Principal) -> Callable[[], None]:
        """Count a way into a task in; what is returned counts it out."""
        return self._open(self._channels, principal, self.limits.channels, "channels")

    def _open(self, opened: Counter[UUID], principal: Principal, limit: int, what: str) -> Callable[[], None]:
        most = int(self._rate(principal, limit))
        user_id = principal.user_id
        if opened[user_id] >= most:
            raise TooManyAttempts(
                f"you have {most} {what} open, which is all that you may have; close one first",
                code=f"too-many-{what}",
                details={"retry_after_seconds": _STREAM_RETRY_SECONDS},
            )
        opened[user_id] += 1

        def close() -> None:
            opened[user_id] -= 1
            if not opened[user_id]:
                del opened[user_id]

        return close

    def _rate(self, principal: Principal, rate: float) -> float:
        return rate * self.limits.admin_factor if principal.is_admin else rate

    def _take(self, key: str, rate: float, cost: float, what: str) -> None:
        if (missing := self._buckets.take(key, rate, cost)) > 0:
            raise _too_many(what, missing)


def _too_many(what: str, missing_seconds: float) -> TooManyAttempts:
    seconds = math.ceil(missing_seconds)
    return TooManyAttempts(
        f"too many {what}; try again in {seconds} second{'s' if seconds != 1 else ''}",
        code="too-many-requests",
        details={"retry_after_seconds": seconds},
    )
