"""How long an agent waits before it tries a server again."""

from __future__ import annotations

import random
from collections.abc import Iterator

_FIRST_SECONDS, _LONGEST_SECONDS = 1.0, 5.0


def delays(heartbeat_seconds: float) -> Iterator[float]:
    """Before each next try: anything up to a limit that doubles, so that agents of one server do not return in step.

    The larger the cluster, the longer is the pause between heartbeats, and the wider agents spread; within one pause
    nobody misses them.
    """
    limit = max(_FIRST_SECONDS, heartbeat_seconds / 5)
    longest = max(_LONGEST_SECONDS, heartbeat_seconds)
    while True:
        yield random.uniform(0, limit)
        limit = min(limit * 2, longest)
