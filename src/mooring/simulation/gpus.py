"""GPUs over time: samples of the unallocated and fragmented capacity, and the demand that pools learn."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

import numpy as np

from mooring.model.policy.pools import PoolPolicy
from mooring.scheduling.cluster.typical_requests import DEVICE_SLOT, MOST_WEIGHT, TypicalRequest
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.expected_fill.learning import FIRST, WINDOW, Request, has_changed
from mooring.scheduling.plugins.profiles import places_by_demand
from mooring.scheduling.plugins.scorers.fragmentation import fragment
from mooring.simulation.jobs import Job
from mooring.simulation.outcomes import GpuSample

_SAMPLES = 400
"""Samples from the first to the last submission."""
_LEARN_SECONDS = 60
"""The time after which a server looks at the demand again."""


class Gpus:
    def __init__(self, cluster: Cluster, policies: Mapping[str, PoolPolicy], span_seconds: int) -> None:
        self.samples: list[GpuSample] = []
        self._cluster = cluster
        self._every = max(1, span_seconds // _SAMPLES)
        self._sample_at = 0
        self._recent: dict[str, deque[tuple[Request, int]]] = {name: deque(maxlen=WINDOW) for name in policies}
        self._learned: dict[str, Counter[Request]] = {
            name: Counter() for name, policy in policies.items() if places_by_demand(policy)
        }
        self._arrived: set[str] = set()
        """Pools with workloads since they last learned."""
        self._learn_at = 0
        self.present = DEVICE_SLOT in cluster.devices.columns

    def submitted(self, job: Job) -> None:
        models = frozenset[str]().union(*(demand.models for demand in job.constraints.devices))
        kind = tuple(sorted(job.request.items())), models
        self._recent[job.pool].append((kind, job.tasks))
        self._arrived.add(job.pool)

    def learn(self, now: int) -> None:
        """Pass the recent demand to the pools that score by it, as often as a server does."""
        if now < self._learn_at or not self._learned:
            return
        self._learn_at = now + _LEARN_SECONDS
        for pool in sorted(self._arrived & self._learned.keys()):
            arrivals = Counter(kind for kind, _ in self._recent[pool])
            if arrivals.total() >= FIRST and has_changed(self._learned[pool], arrivals):
                self._learned[pool] = arrivals
                self._cluster.set_typical_requests(pool, self._typical(pool))
        self._arrived.clear()

    def sample(self, now: int) -> None:
        """Record the state of the GPUs up to now, if a sample is due."""
        if now < self._sample_at:
            return
        self._sample_at = now + self._every
        cluster = self._cluster
        slot = cluster.slot_of(DEVICE_SLOT)
        if slot is None:
            return
        rows = cluster.rows
        capacity = int(cluster.allocatable[slot, rows].sum())
        unallocated = capacity - int(cluster.taken[slot, rows].sum())
        fragmented = 0
        for pool in self._recent:
            typical = self._typical(pool)
            total = sum(each.weight for each in typical)
            if total:
                at = cluster.rows_of_pool(pool)
                fragmented += int(np.sum(fragment(typical, cluster, at))) // total
        self.samples.append(GpuSample(now, capacity, unallocated, fragmented))

    def _typical(self, pool: str) -> list[TypicalRequest]:
        counted: Counter[Request] = Counter()
        for kind, tasks in self._recent[pool]:
            counted[kind] += tasks
        if not any(dict(request).get(DEVICE_SLOT) for request, _ in counted):
            return []
        # Large gangs must not make the sum too large.
        scale = counted.total() // (MOST_WEIGHT // 2) + 1
        return [
            TypicalRequest(dict(request), max(number // scale, 1), models)
            for (request, models), number in counted.most_common()
        ]
