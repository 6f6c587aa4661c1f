"""Waits after repeated failures by key: a few failures are free, then each doubles the wait."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from mooring.concurrency import backoff

_FORGET_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class FailureRule:
    free_failures: int
    longest_wait_seconds: float

    def wait_seconds(self, failures: int) -> float:
        """Return the wait after this many failures: 1 s after the last free one, then twice as long each time."""
        if failures < self.free_failures:
            return 0.0
        return backoff.delay(failures - self.free_failures + 1, 1.0, self.longest_wait_seconds, jitter=0)


@dataclass(slots=True)
class _Failures:
    count: int
    last_at: float


class FailureWaits:
    """Failures by key, forgotten after a while; beyond `max_keys` only the keys that failed last are known."""

    def __init__(self, rule: FailureRule, max_keys: int, clock: Callable[[], float]) -> None:
        self._rule = rule
        self._max_keys = max_keys
        self._clock = clock
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def missing_seconds(self, key: str) -> float:
        """Return the rest of the wait; 0 or less if there is none."""
        known = self._failures.get(key)
        return 0.0 if known is None else known.last_at + self._rule.wait_seconds(known.count) - self._clock()

    def failed(self, key: str) -> None:
        now = self._clock()
        # The order is that of the last failure, so the oldest come first.
        while self._failures and next(iter(self._failures.values())).last_at <= now - _FORGET_SECONDS:
            self._failures.popitem(last=False)
        known = self._failures.pop(key, None)
        self._failures[key] = _Failures(known.count + 1 if known else 1, now)
        if len(self._failures) > self._max_keys:
            self._failures.popitem(last=False)

    def succeeded(self, key: str) -> None:
        self._failures.pop(key, None)

    def __len__(self) -> int:
        return len(self._failures)
