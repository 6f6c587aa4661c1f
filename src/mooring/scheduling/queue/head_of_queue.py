"""The line of a pool: who of those that lack room is first, without a look at all of them whenever that is asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from uuid import UUID

from mooring.model.workloads import Workload

Best = Callable[[Sequence[Workload], int], Sequence[Workload]]
"""So many of the workloads of one pool as there may be room for, or more: those whose turn it is."""
_REMEMBERED = 64


class Line:
    """The beginning of a line. Who joins it comes into that only before one that is there: others may be before."""

    def __init__(self, best: Best) -> None:
        self._best = best
        self._first: dict[UUID, Workload] = {}
        """In their turn; whoever else is in the line comes after all of these."""
        self._joined: dict[UUID, Workload] = {}

    def join(self, workload: Workload) -> None:
        """One that lacks room, or does so with another turn than before."""
        self._first.pop(workload.id, None)
        if self._first:
            self._joined[workload.id] = workload

    def leave(self, workload_id: UUID) -> None:
        self._first.pop(workload_id, None)
        self._joined.pop(workload_id, None)

    def forget(self) -> None:
        """Turns may have changed: the next look is at all of them."""
        self._first, self._joined = {}, {}

    def first(
        self, number: int, without: Collection[UUID], everybody: Callable[[], Iterable[Workload]]
    ) -> list[Workload]:
        """The first so many `without` some, in their turn; `everybody` is asked for if too few are known."""
        if self._joined:
            both = self._best([*self._first.values(), *self._joined.values()], len(self._first))
            self._first, self._joined = {workload.id: workload for workload in both}, {}
        found = [workload for workload in self._first.values() if workload.id not in without]
        if len(found) < number:
            all_of_them = list(everybody())
            in_turn = self._best(all_of_them, _REMEMBERED + number + len(without)) if all_of_them else ()
            self._first = {workload.id: workload for workload in in_turn[:_REMEMBERED]}
            found = [workload for workload in in_turn if workload.id not in without]
        return found[:number]
