"""The demand of a pool, learned from the workloads that arrive unless typical requests are set.

It is the requests of the newest WINDOW workloads. After the first FIRST of them, whenever their number has doubled, and
after every REFRESH it is taken over, if it rests on half as many workloads again or if the requests have changed beyond
chance. Otherwise the demand stays as it is, and with it everything computed for it. The first placements on an empty
cluster decide much, and even a few requests tell more than a guess.
"""

from __future__ import annotations

from collections import Counter, deque
from math import isqrt
from typing import NamedTuple, TypeAlias
from uuid import UUID

from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.typical_requests import MOST_WEIGHT, TypicalRequest

WINDOW = 2_000
REFRESH = 500
FIRST = 16
_MOST_SEEN = 50_000
"""Workloads remembered, so that one that is tried again is not another arrival."""
_MOST_TASKS = MOST_WEIGHT // WINDOW

Request: TypeAlias = tuple[tuple[tuple[str, int], ...], frozenset[str]]
"""Amounts by slot, and models of devices."""
_ANY_MODEL: frozenset[str] = frozenset()


class _Arrival(NamedTuple):
    request: Request
    tasks: int


class ArrivedRequests:
    """The requests of the newest workloads of one pool."""

    def __init__(self) -> None:
        self._newest: deque[_Arrival] = deque(maxlen=WINDOW)
        self._seen: dict[UUID, None] = {}
        self._arrived = 0
        self._due = FIRST
        """The number of arrivals at which the demand may be taken over next."""
        self._taken_over: Counter[Request] = Counter()
        """The arrivals of the demand that was taken over last."""

    def note(self, workload: Workload) -> tuple[TypicalRequest, ...] | None:
        """Count an arrival, once per workload. Return the demand learned before if it is due to be taken over.

        This runs for every workload of every pass, so each id is hashed once.
        """
        seen = self._seen
        known = len(seen)
        seen[workload.id] = None
        if len(seen) == known:
            return None
        if known >= _MOST_SEEN:
            del seen[next(iter(seen))]
        learned = None
        if self._arrived == self._due:
            learned = self._changed()
            self._due = _next_due(self._arrived)
        self._arrived += 1
        tasks = len(workload.tasks)
        arrival = _request_of(workload), tasks if 0 < tasks <= _MOST_TASKS else min(max(tasks, 1), _MOST_TASKS)
        self._newest.append(tuple.__new__(_Arrival, arrival))
        return learned

    def _changed(self) -> tuple[TypicalRequest, ...] | None:
        """Return the demand if it is to be taken over."""
        arrivals = Counter(each.request for each in self._newest)
        if not has_changed(self._taken_over, arrivals):
            return None
        self._taken_over = arrivals
        return self.typical()

    def typical(self) -> tuple[TypicalRequest, ...]:
        """Return the distinct requests with the numbers of their tasks as weights."""
        counted: Counter[Request] = Counter()
        for request, tasks in self._newest:
            counted[request] += tasks
        return tuple(TypicalRequest(dict(request), tasks, models) for (request, models), tasks in counted.items())


def _next_due(arrived: int) -> int:
    """Return the next number of arrivals at which the demand may be taken over: a doubling or a multiple of REFRESH."""
    return min(2 * arrived, REFRESH) if arrived < REFRESH else arrived + REFRESH


def has_changed(before: Counter[Request], arrivals: Counter[Request]) -> bool:
    """Return whether arrivals tell more than those of the demand that was taken over last.

    In two samples of the same demand the numbers of a request, scaled to the same total, differ by 0.8 standard
    deviations on average. Half as much again, summed up over all requests, is beyond chance.
    """
    old, new = before.total(), arrivals.total()
    if 2 * new >= 3 * old:
        return new > 0
    requests = before | arrivals
    difference = sum(abs(before[request] * new - arrivals[request] * old) for request in requests)
    variances = (before[request] * new * new + arrivals[request] * old * old for request in requests)
    return difference * 10 > sum(isqrt(variance * 144) for variance in variances)


def _request_of(workload: Workload) -> Request:
    request, devices = workload.request, workload.constraints.devices
    amounts = tuple(request.items()) if len(request) < 2 else tuple(sorted(request.items()))
    if not devices:
        return amounts, _ANY_MODEL
    return amounts, devices[0].models if len(devices) == 1 else _ANY_MODEL.union(*(each.models for each in devices))
