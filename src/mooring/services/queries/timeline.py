"""The timeline of pools or nodes, from the mirror."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from mooring.mirror.mirror import Mirror
from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.capacity_forecast import (
    BOOKED,
    PLANNED,
    RUNNING,
    CapacityForecast,
    Window,
    capacity_forecast,
)
from mooring.scheduling.calendar.seconds import seconds_of
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
            planned = _planned_by_node(mirror, pool)
            for row in sorted(rows.tolist(), key=lambda row: cluster.node(row).name):
                name, own = cluster.node(row).name, rows[rows == row]
                views.append(_view(pool, name, 1, capacity_forecast(cluster, own, seconds, steps, planned[name])))
        else:
            seen = capacity_forecast(cluster, rows, seconds, steps, _planned(mirror, pool))
            views.append(_view(pool, None, int(cluster.ready[rows].sum()), seen))
    return TimelineView(starts_at=at, step_seconds=seconds / steps, steps=steps, outlooks=views)


def _planned(mirror: Mirror, pool: str) -> list[Window]:
    """Return the stored planned starts of all tasks."""
    return [_window(workload, start, len(workload.tasks)) for workload, start in _with_planned_start(mirror, pool)]


def _planned_by_node(mirror: Mirror, pool: str) -> Mapping[str, list[Window]]:
    """Return the stored planned starts by node. Tasks that start later than the first ones have no node yet."""
    found: dict[str, list[Window]] = defaultdict(list)
    for workload, start in _with_planned_start(mirror, pool):
        for node, tasks in (workload.planned_nodes or {}).items():
            found[node].append(_window(workload, start, tasks))
    return found


def _with_planned_start(mirror: Mirror, pool: str) -> Iterator[tuple[Workload, datetime]]:
    for workload in mirror.queue.values():
        if workload.pool == pool and workload.planned_start is not None:
            yield workload, workload.planned_start


def _window(workload: Workload, planned_start: datetime, tasks: int) -> Window:
    start, seconds = seconds_of(planned_start), workload.longest_seconds
    amounts: Amounts = {name: amount * tasks for name, amount in workload.request.items()}
    return Window(start, None if seconds is None else start + seconds, amounts)


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
