"""The timeline of pools or nodes, from the mirror."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mooring.mirror.mirror import Mirror
from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import Amounts
from mooring.scheduling.calendar.capacity_forecast import (
    BOOKED,
    PLANNED,
    RUNNING,
    CapacityForecast,
    Window,
    capacity_forecast,
)
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.cluster.arrays import Rows
from mooring.wire.cluster.timeline import ForecastView, SlotForecast, TimelineView

MAX_POINTS = 50_000
"""Maximum nodes times steps of one answer."""


def check_size(nodes: int, steps: int) -> None:
    """Raise if the timeline of this many nodes is too large for one answer."""
    if nodes * steps > MAX_POINTS:
        fitting = MAX_POINTS // nodes
        fewer = f"at most {fitting} steps" if fitting else "pools without their nodes"
        raise InvalidInput(
            f"{nodes:,} nodes in {steps} steps are {nodes * steps:,} points, and an answer has at most"
            f" {MAX_POINTS:,}; ask for {fewer}, or for one pool",
            code="timeline-too-large",
            details={"nodes": nodes, "steps": steps, "limit": MAX_POINTS},
        )


def timeline_view(
    mirror: Mirror, pools: Sequence[str], at: datetime, hours: int, steps: int, *, by_node: bool
) -> TimelineView:
    cluster, seconds = mirror.cluster, hours * 3600
    cluster.timeline.advance(seconds_of(at))
    views: list[ForecastView] = []
    for pool in pools:
        rows = cluster.rows_of_pool(pool)
        if by_node:
            for row in sorted(rows.tolist(), key=lambda row: cluster.node(row).name):
                own: Rows = rows[rows == row]
                views.append(_view(pool, cluster.node(row).name, 1, capacity_forecast(cluster, own, seconds, steps)))
        else:
            seen = capacity_forecast(cluster, rows, seconds, steps, _planned(mirror, pool))
            views.append(_view(pool, None, int(cluster.ready[rows].sum()), seen))
    return TimelineView(starts_at=at, step_seconds=seconds / steps, steps=steps, outlooks=views)


def _planned(mirror: Mirror, pool: str) -> list[Window]:
    """Return the stored planned starts; only the leader knows their nodes."""
    found = []
    for workload in mirror.queue.values():
        if workload.pool == pool and workload.planned_start is not None:
            start, seconds = seconds_of(workload.planned_start), workload.longest_seconds
            amounts: Amounts = {name: amount * len(workload.tasks) for name, amount in workload.request.items()}
            found.append(Window(start, None if seconds is None else start + seconds, amounts))
    return found


def _view(pool: str, node: str | None, nodes: int, seen: CapacityForecast) -> ForecastView:
    slots = [
        SlotForecast(
            slot=name,
            capacity=int(seen.capacity[at]),
            running=seen.used[RUNNING, at].tolist(),
            booked=seen.used[BOOKED, at].tolist(),
            planned=seen.used[PLANNED, at].tolist(),
            free=seen.free[at].tolist(),
        )
        for at, name in enumerate(seen.slots)
        if seen.capacity[at] or seen.used[:, at].any()
    ]
    return ForecastView(pool=pool, node=node, nodes=nodes, slots=slots)
