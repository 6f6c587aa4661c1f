"""Dominant resource fairness: the user with the lowest dominant share of the pool is next.

Every placement changes the shares of the workloads behind it. Workloads are offered as if all of them fitted, those
whose tasks may start independently a few tasks at a time. At the first that does not fit the pass stops, and the shares
are corrected. Workloads like one that just failed are deferred to the end, since each would stop the pass for nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import heappop, heappush
from uuid import UUID

from mooring.model.decisions import Decision
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.workload import Workload
from mooring.scheduling.gang_size import gang_size
from mooring.scheduling.plugins.ordering.bands import arrival_key
from mooring.scheduling.plugins.protocols import SHARE_ONE, Offer, OrderingContext

_FEWEST, _MOST = 4, 8192
"""Workloads per offer: doubled after an offer that was placed completely, halved after another one."""


@dataclass(slots=True, eq=False)
class _Claim:
    """The amounts that a user has of a pool, and its pending workloads, the next one first."""

    used: dict[str, int]
    capacity: Amounts
    waiting: deque[Workload] = field(default_factory=deque)
    entry: int = 0
    """The number of its latest heap entry, which alone is valid."""
    refused: set[tuple[object, ...]] = field(default_factory=set)
    """The kinds of its workloads that admission refused."""

    def take(self, workload: Workload, tasks: int) -> None:
        for slot, amount in workload.request.items():
            self.used[slot] = self.used.get(slot, 0) + amount * tasks

    @property
    def share(self) -> int:
        return dominant_share(self.used, self.capacity)


_Heap = list[tuple[int, tuple[datetime, int], int, _Claim]]
"""The dominant share, the time of submission, the number of the entry, and the claim."""


class DrfSequencer:
    name = "drf"

    def __init__(self) -> None:
        self._claims: dict[tuple[str, int], _Claim] = {}
        """By pool and user, the latter as a number: the hash of a UUID is computed in Python."""
        self._entries = 0
        self._decided: Sequence[Decision] = ()
        self._without_capacity: set[tuple[object, ...]] = set()
        """The kinds of workloads that found no node."""
        self._size = _FEWEST

    def offers(self, bands: Sequence[Sequence[Workload]], context: OrderingContext) -> Iterator[Offer]:
        # Read before anything is placed: placements of this pass are counted here.
        self._claims = {}
        for band in bands:
            for workload in band:
                key = (workload.pool, workload.user_id.int)
                if key not in self._claims:
                    used = dict(context.used(workload.pool, workload.user_id))
                    self._claims[key] = _Claim(used, context.capacity(workload.pool))
        self._without_capacity, self._size = set(), _FEWEST
        for band in bands:
            yield from self._band(band)

    def placed(self, decisions: Sequence[Decision]) -> None:
        self._decided = decisions

    def _band(self, band: Sequence[Workload]) -> Iterator[Offer]:
        heap: _Heap = []
        for workload in sorted(band, key=arrival_key):
            self._claim_of(workload).waiting.append(workload)
        for claim in self._claims.values():
            self._put_on(heap, claim)
        skipped: list[Workload] = []
        while heap:
            offered = self._next_ones(heap, skipped)
            if not offered:
                break
            self._decided = ()
            yield Offer([workload for workload, _ in offered], revised=True)
            if self._decided:
                self._correct(heap, offered, self._decided)
        if skipped:
            self._decided = ()
            yield Offer(skipped)
            decision: Decision
            for decision in self._decided:
                if decision.placements:
                    self._claim_of(decision.workload).take(decision.workload, len(decision.placements))

    def _claim_of(self, workload: Workload) -> _Claim:
        return self._claims[workload.pool, workload.user_id.int]

    def _next_ones(self, heap: _Heap, skipped: list[Workload]) -> list[tuple[Workload, _Claim]]:
        """Return the next workloads if each of them fits, at most one piece of each: the next piece depends on it."""
        offered: list[tuple[Workload, _Claim]] = []
        in_pieces: set[UUID] = set()
        while len(offered) < self._size and self._top_is_current(heap):
            claim = heap[0][3]
            workload = claim.waiting[0]
            if in_pieces and workload.id in in_pieces:
                break
            heappop(heap)
            claim.waiting.popleft()
            if self._failed_before(claim, workload):
                skipped.append(workload)
            else:
                number = self._piece(claim, workload, heap)
                if number < len(workload.tasks):
                    in_pieces.add(workload.id)
                    claim.waiting.appendleft(replace(workload, tasks=workload.tasks[number:]))
                    workload = replace(workload, tasks=workload.tasks[:number])
                offered.append((workload, claim))
            self._put_on(heap, claim)
        return offered

    def _failed_before(self, claim: _Claim, workload: Workload) -> bool:
        """Return whether a workload of the same kind found no node, or was not admitted."""
        if not self._without_capacity and not claim.refused:
            return False
        without_capacity, refused = _kinds(workload)
        return refused in claim.refused or without_capacity in self._without_capacity

    def _top_is_current(self, heap: _Heap) -> bool:
        """Drop outdated heap entries. Return False if none is left."""
        while heap and heap[0][2] != heap[0][3].entry:
            heappop(heap)
        return bool(heap)

    def _piece(self, claim: _Claim, workload: Workload, heap: _Heap) -> int:
        """Return the number of tasks to offer, and count them: all of a gang, otherwise up to the next higher share."""
        total = len(workload.tasks)
        if total == 1 or gang_size(workload) or not self._top_is_current(heap):
            claim.take(workload, total)
            return total
        for number in range(1, total + 1):
            claim.take(workload, 1)
            if claim.share >= heap[0][0]:
                return number
        return total

    def _put_on(self, heap: _Heap, claim: _Claim) -> None:
        """Add a claim with its present share; its former entry is outdated."""
        self._entries += 1
        claim.entry = self._entries
        if claim.waiting:
            heappush(heap, (claim.share, arrival_key(claim.waiting[0]), claim.entry, claim))

    def _correct(self, heap: _Heap, offered: Sequence[tuple[Workload, _Claim]], decided: Sequence[Decision]) -> None:
        """Return the undecided workloads to the heap, and charge partly placed ones only for their placements."""
        changed: dict[int, _Claim] = {}
        for (workload, claim), decision in zip(offered, decided, strict=False):
            missing = len(workload.tasks) - len(decision.placements)
            if _note_in_rest(claim, decision) or missing:
                changed[claim.entry] = claim
            if missing:
                claim.take(workload, -missing)
                without_capacity, refused = _kinds(workload)
                if decision.reason is None:
                    self._without_capacity.add(without_capacity)
                else:
                    claim.refused.add(refused)
        for workload, claim in reversed(offered[len(decided) :]):
            claim.take(workload, -len(workload.tasks))
            claim.waiting.appendleft(workload)
            changed[claim.entry] = claim
        for claim in changed.values():
            self._put_on(heap, claim)
        through = len(decided) == len(offered)
        self._size = min(self._size * 2, _MOST) if through else max(self._size // 2, _FEWEST)


def _note_in_rest(claim: _Claim, decision: Decision) -> bool:
    """Record the nodes of a placed piece in the rest of its workload, which is next; return False if there is none."""
    rest = claim.waiting[0] if claim.waiting and decision.placements else None
    if rest is None or rest.id != decision.workload.id:
        return False
    there = Counter(rest.occupied)
    there.update(placement.node_id for placement in decision.placements)
    claim.waiting[0] = replace(rest, occupied=there, placed_before=True)
    return True


def dominant_share(used: Mapping[str, int], capacity: Mapping[str, int]) -> int:
    """Return the largest fraction of any slot of the pool that is used, scaled to `SHARE_ONE`."""
    highest = 0
    for slot, amount in used.items():
        total = capacity.get(slot)
        if total and (share := amount * SHARE_ONE // total) > highest:
            highest = share
    return highest


def _kinds(workload: Workload) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return what workloads have in common that fail for the same reason: shape, and tenants for admission."""
    without_capacity = (
        workload.pool,
        workload.runtime,
        workload.architecture,
        workload.region,
        workload.constraints,
        tuple(workload.request.items()),
        len(workload.tasks) if gang_size(workload) else 1,
        workload.gang,
        workload.min_tasks,
        workload.max_per_node,
        workload.single_node,
        workload.pack,
        workload.id if workload.occupied and workload.max_per_node is not None else None,
    )
    not_admitted = (
        without_capacity,
        workload.user_id.int,
        workload.project_id.int,
        workload.access_key,
        workload.private,
        workload.dependencies,
        workload.behind,
        workload.starts_at,
    )
    return without_capacity, not_admitted
