"""GPUs over time: samples of the unallocated and fragmented capacity, and the demand that pools learn."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

import numpy as np

from mooring.model.policy.pools import PoolPolicy
from mooring.scheduling.cluster.typical_requests import DEVICE_SLOT, TypicalRequest
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.scorers.fragmentation import fragment
from mooring.simulation.jobs import Job
from mooring.simulation.outcomes import GpuSample

_SAMPLES = 400
"""Samples from the first to the last submission."""
_RECENT = 1000
"""Workloads that the demand is learned from, as a server does."""
_KINDS = 100
_LEARN_SECONDS = 600
"""The time after which a server reads the demand again."""

Kind = tuple[tuple[tuple[str, int], ...], frozenset[str]]


class Gpus:
    def __init__(self, cluster: Cluster, policies: Mapping[str, PoolPolicy], span_seconds: int) -> None:
        self.samples: list[GpuSample] = []
        self._cluster = cluster
        self._every = max(1, span_seconds // _SAMPLES)
        self._sample_at = 0
        self._recent: dict[str, deque[tuple[Kind, int]]] = {name: deque(maxlen=_RECENT) for name in policies}
        self._learns = [name for name, policy in policies.items() if _scores_by_demand(policy)]
        self._learn_at = 0
        self.present = DEVICE_SLOT in cluster.devices.columns

    def submitted(self, job: Job) -> None:
        models = frozenset[str]().union(*(demand.models for demand in job.constraints.devices))
        kind = tuple(sorted(job.request.items())), models
        self._recent[job.pool].append((kind, job.tasks))

    def learn(self, now: int) -> None:
        """Pass the recent demand to the pools that score by it, as often as a server does."""
        if now < self._learn_at or not self._learns:
            return
        self._learn_at = now + _LEARN_SECONDS
        for pool in self._learns:
            typical = self._typical(pool)
            if typical != list(self._cluster.devices.typical.get(pool, ())):
                self._cluster.set_typical_requests(pool, typical)

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
        counted: Counter[Kind] = Counter()
        for kind, tasks in self._recent[pool]:
            counted[kind] += tasks
        if not any(dict(request).get(DEVICE_SLOT) for request, _ in counted):
            return []
        common = counted.most_common(_KINDS)
        total = sum(number for _, number in common)
        return [
            TypicalRequest(dict(request), max(1, number * 1000 // total), models)
            for (request, models), number in common
        ]


def _scores_by_demand(policy: PoolPolicy) -> bool:
    return policy.profile == "gpu" or any(scorer == "fragmentation" for scorer, _ in policy.weights or ())
