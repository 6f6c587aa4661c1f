"""A mirror as values, so that two of them can be compared whatever the order of their rows."""

from dataclasses import asdict, replace
from typing import Any
from uuid import UUID

from mooring.mirror.mirror import Mirror
from mooring.store.core.engine import Database


async def differences(mirror: Mirror, database: Database) -> list[str]:
    """Return the differences between a mirror that followed the feed and a freshly loaded one."""
    fresh = Mirror(database)
    await fresh.load()
    found = []
    for what, of in (("node", _nodes), ("workload", _queue), ("timeslot", _timeslots)):
        followed, loaded = of(mirror), of(fresh)
        found += [
            f"{what} {key}: {followed.get(key)} instead of {loaded.get(key)}"
            for key in followed.keys() | loaded.keys()
            if followed.get(key) != loaded.get(key)
        ]
    return found


def _nodes(mirror: Mirror) -> dict[UUID, dict[str, Any]]:
    cluster = mirror.cluster
    found = {}
    for row in cluster.rows.tolist():
        node = cluster.node(row)
        columns = {
            name: (int(cluster.allocatable[slot, row]), int(cluster.taken[slot, row]))
            for name, slot in cluster._slot_of.items()
            if cluster.allocatable[slot, row] or cluster.taken[slot, row]
        }
        found[node.id] = {
            **asdict(replace(node, cpu_percent=0, memory_percent=0)),
            "columns": columns,
            "tasks in column": int(cluster.tasks[row]),
            "ready in column": bool(cluster.ready[row]),
            "load": (int(cluster.cpu_load[row]), int(cluster.memory_load[row])),
        }
    return found


def _queue(mirror: Mirror) -> dict[UUID, Any]:
    # Why it waits, until when, and its version with them are written without an event: nothing placement depends on.
    not_compared: dict[str, Any] = {
        "version": 0,
        "waiting_reason": None,
        "waiting_code": None,
        "planned_start": None,
        "planned_nodes": None,
    }
    return {key: replace(workload, **not_compared) for key, workload in mirror.queue.items()}


def _timeslots(mirror: Mirror) -> dict[UUID, Any]:
    return {key: (slot, mirror.cluster.timeslots.left(key)) for key, slot in mirror.calendar.slots.items()}
