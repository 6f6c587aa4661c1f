"""The time ahead of pools or nodes, as a mirror has it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mooring.mirror.mirror import Mirror
from mooring.model.slots import Amounts
from mooring.scheduling.arrays import Rows
from mooring.scheduling.outlook import BOOKED, PLANNED, RUNNING, Outlook, Window, outlook
from mooring.scheduling.timeline import seconds_of
from mooring.wire.timeline import OutlookView, SlotOutlook, TimelineView


def timeline_view(
    mirror: Mirror, pools: Sequence[str], at: datetime, hours: int, steps: int, *, by_node: bool
) -> TimelineView:
    cluster, seconds = mirror.cluster, hours * 3600
    cluster.timeline.advance(seconds_of(at))
    views: list[OutlookView] = []
    for pool in pools:
        rows = cluster.rows_of_pool(pool)
        if by_node:
            for row in sorted(rows.tolist(), key=lambda row: cluster.node(row).name):
                own: Rows = rows[rows == row]
                views.append(_view(pool, cluster.node(row).name, 1, outlook(cluster, own, seconds, steps)))
        else:
            seen = outlook(cluster, rows, seconds, steps, _planned(mirror, pool))
            views.append(_view(pool, None, int(cluster.ready[rows].sum()), seen))
    return TimelineView(starts_at=at, step_seconds=seconds / steps, steps=steps, outlooks=views)


def _planned(mirror: Mirror, pool: str) -> list[Window]:
    """The planned starts as they were stored: where they are to be is known to the leader alone."""
    found = []
    for workload in mirror.queue.values():
        if workload.pool == pool and workload.planned_start is not None:
            start, seconds = seconds_of(workload.planned_start), workload.longest_seconds
            amounts: Amounts = {name: amount * len(workload.tasks) for name, amount in workload.request.items()}
            found.append(Window(start, None if seconds is None else start + seconds, amounts))
    return found


def _view(pool: str, node: str | None, nodes: int, seen: Outlook) -> OutlookView:
    slots = [
        SlotOutlook(
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
    return OutlookView(pool=pool, node=node, nodes=nodes, slots=slots)
