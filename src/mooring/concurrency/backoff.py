"""Exponential backoff with jitter: the one source of pauses between failed attempts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

_MAX_DOUBLINGS = 64
"""Attempts may be counted indefinitely; a float cannot hold every power of two."""


def delays(first_seconds: float, max_seconds: float, *, jitter: float = 0.2) -> Iterator[float]:
    """Yield the pauses after the first, second, third… failure."""
    for attempt in count(1):
        yield delay(attempt, first_seconds, max_seconds, jitter=jitter)


def delay(attempt: int, first_seconds: float, max_seconds: float, *, jitter: float = 0.2) -> float:
    """Return the pause after the failed `attempt` (the first is 1); it doubles each time, up to `max_seconds`."""
    doublings = min(max(attempt - 1, 0), _MAX_DOUBLINGS)
    return jittered(min(first_seconds * 2.0**doublings, max_seconds), jitter)


def jittered(seconds: float, jitter: float = 0.2) -> float:
    """Return `seconds` less a random part, so that those who started together do not stay in step.

    `jitter`: the part of it that is random; 0 for none, 1 for anything from zero up.
    """
    return seconds * random.uniform(1 - jitter, 1) if jitter else seconds
