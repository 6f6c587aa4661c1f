"""Weighted fair queuing between users: next is the user with the smallest share of the pool right now.

A workload's place is its start tag: the dominant share that its user holds of the pool plus what the user's own earlier
workloads of the band would add, divided by the user's weight. However many workloads one user queues, they queue behind
each other and not ahead of another user's. Unlike `drf` the tags assume that everything ahead is placed, so that a band
is one sorted offer; the next pass counts what really was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from mooring.model.workloads.workload import Workload
from mooring.scheduling.plugins.ordering.bands import arrival_key
from mooring.scheduling.plugins.protocols import SHARE_ONE, Offer, OrderingContext


class FairQueueSequencer:
    name = "fair_queue"

    def offers(self, bands: Sequence[Sequence[Workload]], context: OrderingContext) -> Iterator[Offer]:
        queues: dict[tuple[str, UUID], _UserQueue] = {}
        yield Offer([workload for band in bands for workload in _fair_order(band, queues, context)])


class _UserQueue:
    """The shares that one user would hold of each slot of a pool if all workloads so far were placed."""

    def __init__(self, used: Mapping[str, int], capacity: Mapping[str, int], weight: float) -> None:
        # The user's weight divides every share, so that tags of different users compare.
        self._rates = {slot: SHARE_ONE / total / weight for slot, total in capacity.items() if total}
        self._shares = {slot: used.get(slot, 0) * rate for slot, rate in self._rates.items()}
        self.tag = max(self._shares.values(), default=0.0)
        """The weighted dominant share."""
        self._before = 0

    def join(self, workload: Workload) -> tuple[float, int]:
        """Return the start tag of the user's next workload, and how many of the user's own come before it."""
        start = self.tag, self._before
        tasks = len(workload.tasks)
        for slot, amount in workload.request.items():
            rate = self._rates.get(slot)
            if rate is not None:
                share = self._shares[slot] = self._shares[slot] + amount * tasks * rate
                if share > self.tag:
                    self.tag = share
        # Workloads that ask for nothing of the pool still take turns.
        self._before += 1
        return start


def _fair_order(
    band: Sequence[Workload], queues: dict[tuple[str, UUID], _UserQueue], context: OrderingContext
) -> Sequence[Workload]:
    first_come = sorted(band, key=arrival_key)
    tags: list[tuple[float, int]] = []
    for workload in first_come:
        key = workload.pool, workload.user_id
        queue = queues.get(key)
        if queue is None:
            weight = context.factors.weights.product(workload.domain_id, workload.project_id, workload.user_id)
            queue = queues[key] = _UserQueue(context.used(*key), context.capacity(workload.pool), weight)
        tags.append(queue.join(workload))
    # Stable: equal tags stay in the order of submission.
    return [first_come[position] for position in sorted(range(len(tags)), key=tags.__getitem__)]
