"""When a running task has to leave a node because of its taints, with Kubernetes' rules for NoExecute. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from mooring.model.constraints import Effect, Taint, Toleration

NODE_DRAINED = "node-drained"
NOT_TOLERATED = "taint-not-tolerated"
LEAVING = frozenset({NODE_DRAINED, NOT_TOLERATED})
"""The codes of the reasons why a task has to leave its node."""


def eviction(
    taints: Iterable[tuple[Taint, datetime]], tolerations: Sequence[Toleration], placed_at: datetime
) -> tuple[datetime, Taint] | None:
    """When it has to leave, and for which taint; None: for none.

    A taint that nothing tolerates sends it away at once; otherwise the fewest seconds of all tolerations that match
    count, from when both the taint and the task were there.
    """
    found: list[tuple[datetime, Taint]] = []
    for taint, since in taints:
        if taint.effect is not Effect.NO_EXECUTE:
            continue
        matching = [toleration for toleration in tolerations if toleration.tolerates(taint)]
        seconds = min((each.seconds for each in matching if each.seconds is not None), default=None)
        if not matching:
            seconds = 0
        if seconds is not None:
            found.append((max(since, placed_at) + timedelta(seconds=seconds), taint))
    return min(found, key=lambda each: each[0], default=None)
