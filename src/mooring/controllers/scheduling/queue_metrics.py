"""Metrics of the pending queue and of capacity, computed from the leader's mirror on every scrape.

All queue metrics come from one read of the queue, so that length, ages and the oldest workload agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from mooring.mirror.mirror import Mirror

AGES_SECONDS = (60, 600, 3600, 21_600, 86_400, 604_800)


def queue_metrics(mirror: Mirror, at: datetime) -> Iterable[Metric]:
    ages: dict[str, list[float]] = {name: [] for name in mirror.pools}
    for workload in mirror.queue.values():
        ages.setdefault(workload.pool, []).append((at - workload.created_at).total_seconds())
    length = GaugeMetricFamily("mooring_queue_length", "Pending workloads")
    length.add_metric((), sum(map(len, ages.values())))
    oldest = GaugeMetricFamily("mooring_queue_oldest_seconds", "Age of the oldest pending workload")
    oldest.add_metric((), max((max(waited) for waited in ages.values() if waited), default=0.0))
    of_pool = GaugeMetricFamily(
        "mooring_pool_oldest_seconds", "Age of the oldest pending workload of a pool", labels=["pool"]
    )
    histogram = GaugeMetricFamily(
        "mooring_queue_age", "Pending workloads that are at most this many seconds old", labels=["pool", "le"]
    )
    for pool, waited in sorted(ages.items()):
        waited.sort()
        of_pool.add_metric((pool,), waited[-1] if waited else 0.0)
        for most in AGES_SECONDS:
            histogram.add_metric((pool, str(most)), bisect_right(waited, most))
        histogram.add_metric((pool, "+Inf"), len(waited))
    return (length, oldest, of_pool, histogram)


def capacity_metrics(mirror: Mirror) -> Iterable[Metric]:
    """Return allocated and allocatable amounts by pool and slot, in base units."""
    allocatable = GaugeMetricFamily(
        "mooring_pool_allocatable", "Allocatable amount of a slot in a pool, in base units", labels=["pool", "slot"]
    )
    allocated = GaugeMetricFamily(
        "mooring_pool_allocated",
        "Amount of a slot in a pool that is held, reserved or used, in base units",
        labels=["pool", "slot"],
    )
    cluster = mirror.cluster
    for pool in sorted(mirror.pools):
        rows = cluster.rows_of_pool(pool)
        totals, taken = cluster.allocatable[:, rows].sum(axis=1), cluster.taken[:, rows].sum(axis=1)
        for slot, total, amount in zip(cluster.slot_names, totals.tolist(), taken.tolist(), strict=False):
            if total or amount:
                allocatable.add_metric((pool, slot), total)
                allocated.add_metric((pool, slot), amount)
    return (allocatable, allocated)
