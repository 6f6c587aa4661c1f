"""Backoff of an agent before it tries a server again."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.concurrency import backoff

_FIRST_SECONDS, _MAX_SECONDS = 1.0, 5.0


def delays(heartbeat_seconds: float) -> Iterator[float]:
    """Yield random delays up to a limit that doubles, so that the agents of a server do not return in step.

    The larger the cluster, the longer the heartbeat interval and the wider the spread; a node is not missed within
    one interval.
    """
    return backoff.delays(max(_FIRST_SECONDS, heartbeat_seconds / 5), max(_MAX_SECONDS, heartbeat_seconds), jitter=1)
