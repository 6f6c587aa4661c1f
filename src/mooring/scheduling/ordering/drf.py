"""Dominant resource fairness: next is whoever has least of the slot that it has most of, in this pool alone.

Every placement moves the shares of those behind it. Workloads are offered as if each found room, those whose tasks may
start apart a few tasks at a time; where one does not, the pass stops there and the shares are put right. What is like
one that just failed is set aside until all others had their turn, since it would stop the pass each time for nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import heappop, heappush
from typing import NamedTuple
from uuid import UUID

from mooring.model.decisions import Decision
from mooring.model.slots import Amounts
from mooring.model.workloads import Workload
from mooring.scheduling.ordering.bands import turn
from mooring.scheduling.plugins import SHARE_ONE, Offer, Situation
from mooring.scheduling.together import least_together

_FEWEST, _MOST = 16, 8192
"""Workloads offered at a time: twice as many after each offer that went through, half after one that did not."""


class Claimant(NamedTuple):
    """A user, in one pool."""

    pool: str
    user_id: UUID


_Heap = list[tuple[int, tuple[datetime, int], Claimant, int]]
"""The share, who came first, whose it is, and which entry of theirs."""


@dataclass(slots=True)
class _Claim:
    """What a user has of a pool, and its waiting workloads, the next one first."""

    used: dict[str, int]
    capacity: Amounts
    waiting: deque[Workload] = field(default_factory=deque)
    entries: int = 0
    """How often it was put on the heap; only the latest entry counts."""

    def take(self, workload: Workload, tasks: int) -> None:
        for slot, amount in workload.request.items():
            self.used[slot] = self.used.get(slot, 0) + amount * tasks

    @property
    def share(self) -> int:
        return dominant_share(self.used, self.capacity)


class DrfSequencer:
    name = "drf"

    def __init__(self) -> None:
        self._claims: dict[Claimant, _Claim] = {}
        self._decided: Sequence[Decision] = ()
        self._failed: set[tuple[object, ...]] = set()
        self._size = _FEWEST

    def offers(self, bands: Sequence[Sequence[Workload]], situation: Situation) -> Iterator[Offer]:
        claimants = {_claimant(workload) for band in bands for workload in band}
        # Read before anything is placed, since what is charged meanwhile is counted here.
        self._claims = {
            claimant: _Claim(dict(situation.used(*claimant)), situation.capacity(claimant.pool))
            for claimant in claimants
        }
        self._failed, self._size = set(), _FEWEST
        for band in bands:
            yield from self._band(band)

    def placed(self, decisions: Sequence[Decision]) -> None:
        self._decided = decisions

    def _band(self, band: Sequence[Workload]) -> Iterator[Offer]:
        heap: _Heap = []
        for workload in sorted(band, key=turn):
            self._claims[_claimant(workload)].waiting.append(workload)
        self._put_on(heap, {_claimant(workload) for workload in band})
        aside: list[Workload] = []
        while heap:
            offered = self._next_ones(heap, aside)
            if not offered:
                break
            self._decided = ()
            yield Offer(offered, revised=True)
            if self._decided:
                self._correct(offered, self._decided)
                self._put_on(heap, {_claimant(workload) for workload in offered})
        if aside:
            self._decided = ()
            yield Offer(aside)
            decision: Decision
            for decision in self._decided:
                self._claims[_claimant(decision.workload)].take(decision.workload, len(decision.placements))

    def _next_ones(self, heap: _Heap, aside: list[Workload]) -> list[Workload]:
        """Whose turn it is, were each of them placed; of a workload one piece at most, since the next rests on it."""
        offered: dict[UUID, Workload] = {}
        while len(offered) < self._size and self._top_is_current(heap):
            claimant = heap[0][2]
            claim = self._claims[claimant]
            workload = claim.waiting[0]
            if workload.id in offered:
                break
            heappop(heap)
            claim.waiting.popleft()
            if self._failed and not self._failed.isdisjoint(_kinds(workload)):
                aside.append(workload)
            else:
                number = self._piece(claim, workload, heap)
                offered[workload.id] = workload
                if number < len(workload.tasks):
                    offered[workload.id] = replace(workload, tasks=workload.tasks[:number])
                    claim.waiting.appendleft(replace(workload, tasks=workload.tasks[number:]))
            self._put_on(heap, (claimant,))
        return list(offered.values())

    def _top_is_current(self, heap: _Heap) -> bool:
        """Drop entries that later ones replaced; False if none is left."""
        while heap and (heap[0][3] != self._claims[heap[0][2]].entries or not self._claims[heap[0][2]].waiting):
            heappop(heap)
        return bool(heap)

    def _piece(self, claim: _Claim, workload: Workload, heap: _Heap) -> int:
        """How many tasks have their turn, counted at once: all that stay together, others up to the next share."""
        total = len(workload.tasks)
        if total == 1 or least_together(workload) or not self._top_is_current(heap):
            claim.take(workload, total)
            return total
        for number in range(1, total + 1):
            claim.take(workload, 1)
            if claim.share >= heap[0][0]:
                return number
        return total

    def _put_on(self, heap: _Heap, claimants: Iterable[Claimant]) -> None:
        for claimant in claimants:
            claim = self._claims[claimant]
            claim.entries += 1
            if claim.waiting:
                heappush(heap, (claim.share, turn(claim.waiting[0]), claimant, claim.entries))

    def _correct(self, offered: Sequence[Workload], decided: Sequence[Decision]) -> None:
        """Give back what was not decided, and count what found fewer places than it has tasks as what it found."""
        for decision in decided:
            workload = decision.workload
            missing = len(workload.tasks) - len(decision.placements)
            self._tell_rest(decision)
            if missing:
                self._claims[_claimant(workload)].take(workload, -missing)
                lacks_room, refused = _kinds(workload)
                self._failed.add(lacks_room if decision.reason is None else refused)
        for workload in reversed(offered[len(decided) :]):
            claim = self._claims[_claimant(workload)]
            claim.take(workload, -len(workload.tasks))
            claim.waiting.appendleft(workload)
        through = len(decided) == len(offered)
        self._size = min(self._size * 2, _MOST) if through else max(self._size // 2, _FEWEST)

    def _tell_rest(self, decision: Decision) -> None:
        """What is left of a workload knows where the piece before it went."""
        waiting = self._claims[_claimant(decision.workload)].waiting
        if decision.placements and waiting and waiting[0].id == decision.workload.id:
            there = Counter(waiting[0].occupied)
            there.update(placement.node_id for placement in decision.placements)
            waiting[0] = replace(waiting[0], occupied=there, placed_before=True)


def dominant_share(used: Mapping[str, int], capacity: Mapping[str, int]) -> int:
    """The largest part of any slot of the pool that is used, of `SHARE_ONE`."""
    return max(
        (used[slot] * SHARE_ONE // total for slot, total in capacity.items() if total and slot in used), default=0
    )


def _claimant(workload: Workload) -> Claimant:
    return Claimant(workload.pool, workload.user_id)


def _kinds(workload: Workload) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """What has in common that it finds no room, and what, that it is not let in."""
    lacks_room = (
        workload.pool,
        workload.runtime,
        workload.architecture,
        workload.region,
        workload.constraints,
        tuple(workload.request.items()),
        len(workload.tasks) if least_together(workload) else 1,
        workload.gang,
        workload.min_tasks,
        workload.max_per_node,
        workload.single_node,
        workload.pack,
        workload.id if workload.occupied and workload.max_per_node is not None else None,
    )
    refused = (
        lacks_room,
        workload.user_id,
        workload.project_id,
        workload.access_key,
        workload.private,
        workload.dependencies,
        workload.behind,
        workload.starts_at,
    )
    return lacks_room, refused
