"""Token buckets and counts: requests, dry runs, streams and channels per user, and requests per address.

They are in memory, so every process of the API counts for itself.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from mooring.api.middleware.load_shedding.limits import LoadLimits
from mooring.api.middleware.load_shedding.open_counts import OpenCounts
from mooring.model.errors import TooManyAttempts
from mooring.model.tenancy.tenants import Principal

_BURST_SECONDS = 2.0
MAX_KEYS = 10_000
_STREAM_RETRY_SECONDS = 5


@dataclass(slots=True)
class _Bucket:
    rate: float
    spent: float
    """Missing from a full bucket."""
    at: float

    def missing_seconds(self, now: float, cost: float) -> float:
        """Time until this cost can be taken; a cost above a full bucket needs a full one."""
        burst = self.rate * _BURST_SECONDS
        self.spent, self.at = max(0.0, self.spent - (now - self.at) * self.rate), now
        return max(0.0, (self.spent + min(cost, burst) - burst) / self.rate)


class Buckets:
    """Token buckets by key: each holds two seconds' worth and refills continuously."""

    def __init__(self, clock: Callable[[], float], *, max_keys: int = MAX_KEYS) -> None:
        self._clock = clock
        self._max_keys = max_keys
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        """The one used last comes last."""

    def take(self, key: str, rate: float, cost: float) -> float:
        """Take the cost and return 0, or take nothing and return the time to wait."""
        now = self._clock()
        bucket = self._buckets.setdefault(key, _Bucket(rate, 0.0, now))
        bucket.rate = rate
        missing = bucket.missing_seconds(now, cost)
        if missing == 0:
            bucket.spent += cost
            self._buckets.move_to_end(key)
            if len(self._buckets) > self._max_keys:
                self._buckets.popitem(last=False)
        return missing

    def __len__(self) -> int:
        return len(self._buckets)


class Rates:
    """Raises TooManyAttempts for a user or address that exceeds its own rate or count."""

    def __init__(self, limits: LoadLimits | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits or LoadLimits()
        self._buckets = Buckets(clock)
        self._streams = OpenCounts()
        self._channels = OpenCounts()

    def user(self, user_id: UUID, *, is_admin: bool = False, cost: float = 1.0) -> None:
        """Charge a request of a user."""
        rate = self.limits.requests * (self.limits.admin_factor if is_admin else 1.0)
        self._take(f"requests {user_id}", rate, cost, "requests")

    def address(self, address_key: str, cost: float = 1.0) -> None:
        """Charge a request without a verified credential."""
        self._take(address_key, self.limits.address_requests, cost, "requests without a valid login from your address")

    def keypair_lookup(self, lookup_key: str) -> None:
        """Charge the look-up of a keypair that is not known yet, apart from requests without a credential."""
        self._take(lookup_key, self.limits.keypair_lookups, 1.0, "attempts with an unknown keypair")

    def probe(self, address_key: str, cost: float = 1.0) -> None:
        """Charge a health check, apart from other requests: a flood from the same address must not hide the health."""
        rate = self.limits.address_requests
        self._take(f"probes {address_key}", rate, cost, "health checks from your address")

    def request(self, principal: Principal, cost: float) -> None:
        """Charge the further cost of a request, such as that of a batch."""
        self.user(principal.user_id, is_admin=principal.is_admin, cost=cost)

    def query(self, principal: Principal) -> None:
        """Charge an expensive request, such as a dry run: a small scheduling pass, or a report over many rows."""
        rate = self._scaled(principal, self.limits.queries)
        self._take(f"questions {principal.user_id}", rate, 1.0, "dry runs, explanations and reports")

    def open_stream(self, principal: Principal) -> Callable[[], None]:
        """Count a stream or a long poll; the function that is returned ends the count."""
        return self._open(self._streams, principal, self.limits.streams, "streams")

    def open_channel(self, principal: Principal) -> Callable[[], None]:
        """Count a connection into a task; the function that is returned ends the count."""
        return self._open(self._channels, principal, self.limits.channels, "channels")

    def _open(self, opened: OpenCounts, principal: Principal, limit: int, what: str) -> Callable[[], None]:
        most = int(self._scaled(principal, limit))
        close = opened.open(principal.user_id, most)
        if close is None:
            raise TooManyAttempts(
                f"you have {most} {what} open, which is the limit; close one first",
                code=f"too-many-{what}",
                details={"retry_after_seconds": _STREAM_RETRY_SECONDS},
            )
        return close

    def _scaled(self, principal: Principal, rate: float) -> float:
        return rate * self.limits.admin_factor if principal.is_admin else rate

    def _take(self, key: str, rate: float, cost: float, what: str) -> None:
        if (missing := self._buckets.take(key, rate, cost)) > 0:
            raise too_many(what, missing, code="too-many-requests")


def too_many(what: str, missing_seconds: float, *, code: str) -> TooManyAttempts:
    """Return the error of a caller that has to wait, with the time in its details."""
    seconds = math.ceil(missing_seconds)
    return TooManyAttempts(
        f"too many {what}; try again in {seconds} second{'s' if seconds != 1 else ''}",
        code=code,
        details={"retry_after_seconds": seconds},
    )
