"""Slows down the guessing of passwords: per account and per address, twice as long after every further failure."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from mooring.model.errors import TooManyAttempts

_FREE_FAILURES = 5
_FIRST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 60.0
_FORGET_SECONDS = 900.0


@dataclass(slots=True)
class _Failures:
    count: int
    last_at: float

    @property
    def blocked_until(self) -> float:
        if self.count < _FREE_FAILURES:
            return self.last_at
        doublings = min(self.count - _FREE_FAILURES, 30)
        return self.last_at + min(_FIRST_WAIT_SECONDS * (1 << doublings), _LONGEST_WAIT_SECONDS)


class LoginThrottle:
    """Remembers failures for a while; of very many keys only those that failed last."""

    def __init__(self, *, max_keys: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._max_keys = max_keys
        self._clock = clock

    def check(self, *keys: str) -> None:
        """Raise TooManyAttempts while one of the keys has to wait."""
        now = self._clock()
        waits = max((self._failures[key].blocked_until - now for key in keys if key in self._failures), default=0.0)
        if waits > 0:
            seconds = math.ceil(waits)
            raise TooManyAttempts(
                f"too many failed logins; try again in {seconds} second{'s' if seconds != 1 else ''}",
                details={"retry_after_seconds": seconds},
            )

    def failed(self, *keys: str) -> None:
        now = self._clock()
        self._forget(now)
        for key in keys:
            known = self._failures.pop(key, None)
            self._failures[key] = _Failures(known.count + 1 if known else 1, now)
        while len(self._failures) > self._max_keys:
            self._failures.popitem(last=False)

    def succeeded(self, key: str) -> None:
        self._failures.pop(key, None)

    def __len__(self) -> int:
        return len(self._failures)

    def _forget(self, now: float) -> None:
        # The order is that of the last failure, so what is to be forgotten comes first.
        while self._failures and next(iter(self._failures.values())).last_at <= now - _FORGET_SECONDS:
            self._failures.popitem(last=False)


def account_key(username: str) -> str:
    return f"account {username}"


def address_key(address: str | None) -> str:
    """One key per IPv4 address or IPv6 network: a host has a whole /64 to choose addresses from."""
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return f"address {address}"
    if isinstance(parsed, ipaddress.IPv6Address):
        return f"address {ipaddress.ip_network((parsed, 64), strict=False)}"
    return f"address {parsed}"
