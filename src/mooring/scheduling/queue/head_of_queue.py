"""The head of a pool's queue: the first workloads that lack capacity, cached so that a query rarely sorts the queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from uuid import UUID

from mooring.model.workloads.workload import Workload

Best = Callable[[Sequence[Workload], int], Sequence[Workload]]
"""Return the first given number of a pool's workloads by queue order, or a superset of them."""
_REMEMBERED = 64


class HeadOfQueue:
    """The cached head of one queue.

    A workload that joins enters the cache only ahead of a cached one: uncached workloads may precede it otherwise.
    """

    def __init__(self, best: Best) -> None:
        self._best = best
        self._first: dict[UUID, Workload] = {}
        """In queue order; every other workload of the queue comes after these."""
        self._joined: dict[UUID, Workload] = {}

    def join(self, workload: Workload) -> None:
        """Add a workload that lacks capacity, or whose queue position has changed."""
        if self._first:
            self._first.pop(workload.id, None)
        if self._first:
            self._joined[workload.id] = workload

    def leave(self, workload_id: UUID) -> None:
        if self._first:
            self._first.pop(workload_id, None)
        if self._joined:
            self._joined.pop(workload_id, None)

    def forget(self) -> None:
        """Drop the cache because the queue order may have changed; the next query sorts all workloads."""
        self._first, self._joined = {}, {}

    def first(
        self, number: int, without: Collection[UUID], everybody: Callable[[], Iterable[Workload]]
    ) -> list[Workload]:
        """Return the first `number` workloads except those in `without`; `everybody` refills the cache if needed."""
        if self._joined:
            both = self._best([*self._first.values(), *self._joined.values()], len(self._first))
            self._first, self._joined = {workload.id: workload for workload in both}, {}
        found = list(islice((each for each in self._first.values() if each.id not in without), number))
        if len(found) < number:
            all_of_them = list(everybody())
            in_order = self._best(all_of_them, _REMEMBERED + number + len(without)) if all_of_them else ()
            self._first = {workload.id: workload for workload in in_order[:_REMEMBERED]}
            found = [workload for workload in in_order if workload.id not in without]
        return found[:number]
