"""A copy of a pool's nodes, made node by node, for simulating the time ahead while passes use the original."""

from __future__ import annotations

from mooring.scheduling.cluster_state import Cluster


def empty_copy(source: Cluster) -> Cluster:
    """Return a cluster with the rules of `source` and none of its nodes."""
    copy = Cluster(overcommit=source.overcommit)
    copy.placed_tasks.copy_project_labels(source.placed_tasks)
    copy.devices.copy_rules(source.devices)
    copy.timeline.open_ended_notice = dict(source.timeline.open_ended_notice)
    copy.timeline.displacing = set(source.timeline.displacing)
    return copy


def copy_node(source: Cluster, row: int, copy: Cluster) -> int:
    """Copy the node of a row with its tasks and promises, and return the number of promises.

    Planned starts are not copied: `copy_plans` copies them once all nodes exist.
    """
    # Promises refer to slots by their positions, so both slot axes must be equal.
    for name in source.slot_names[len(copy.slot_names) :]:
        copy.slot(name)
    node = source.node(row)
    copy.upsert(node)
    at = copy.row_of(node.id)
    assert at is not None
    slots = len(source.slot_names)
    copy.taken[:slots, at] = source.taken[:slots, row]
    copy.uncounted[:, at] = source.uncounted[:, row]
    copy.tasks[at] = source.tasks[row]
    copy.cpu_load[at] = source.cpu_load[row]
    copy.memory_load[at] = source.memory_load[row]
    copy.placed_tasks.copy_row(at, source.placed_tasks, row)
    copy.devices.copy_free(at, source.devices, row)
    promises = [(key, each) for key, each in source.timeline.on(row) if not each.is_planned]
    for key, promise in promises:
        copy.timeline.put_back(key, promise._replace(row=at))
    return len(promises)


def copy_plans(source: Cluster, pool: str, copy: Cluster) -> None:
    """Copy the planned starts of a pool on the copied nodes."""
    for each in source.timeline.plans_of(pool):
        at = copy.row_of(source.node(each.promise.row).id)
        if at is not None:
            copy.timeline.resume_plans([each._replace(promise=each.promise._replace(row=at))])
