"""The demand of a pool, learned from the workloads that arrive unless typical requests are set.

It is the requests of the newest WINDOW workloads, taken over after the first FIRST of them and after every REFRESH.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple
from uuid import UUID

from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.typical_requests import MOST_WEIGHT, TypicalRequest

WINDOW = 2_000
REFRESH = 500
FIRST = 100
_MOST_SEEN = 50_000
"""Workloads remembered, so that one that is tried again is not another arrival."""
_MOST_TASKS = MOST_WEIGHT // WINDOW


class _Arrival(NamedTuple):
    request: tuple[tuple[str, int], ...]
    models: frozenset[str]
    tasks: int


class ArrivedRequests:
    """The requests of the newest workloads of one pool."""

    def __init__(self) -> None:
        self._newest: deque[_Arrival] = deque(maxlen=WINDOW)
        self._seen: dict[UUID, None] = {}
        self._arrived = 0

    def note(self, workload: Workload) -> tuple[TypicalRequest, ...] | None:
        """Count an arrival, once per workload. Return the demand learned before if it is due to be taken over."""
        if workload.id in self._seen:
            return None
        due = self._arrived == FIRST or (self._arrived > 0 and self._arrived % REFRESH == 0)
        learned = self.typical() if due else None
        if len(self._seen) >= _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[workload.id] = None
        self._arrived += 1
        models = frozenset[str]().union(*(demand.models for demand in workload.constraints.devices))
        tasks = min(max(len(workload.tasks), 1), _MOST_TASKS)
        self._newest.append(_Arrival(tuple(sorted(workload.request.items())), models, tasks))
        return learned

    def typical(self) -> tuple[TypicalRequest, ...]:
        """Return the distinct requests with the numbers of their tasks as weights."""
        counted: Counter[tuple[tuple[tuple[str, int], ...], frozenset[str]]] = Counter()
        for request, models, tasks in self._newest:
            counted[request, models] += tasks
        return tuple(TypicalRequest(dict(request), tasks, models) for (request, models), tasks in counted.items())
