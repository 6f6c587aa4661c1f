"""One move of a defragmentation plan: the task is evicted, and its replacement prefers the planned node.

Nothing is evicted unless the state still agrees with the plan: the task may move and runs on the source, the target
has the capacity, and the disruption budget of the workload allows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select

from mooring.model.errors import Conflict
from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.nodes.eviction import DEFRAGMENTED
from mooring.model.reasons import Reason
from mooring.model.resources.devices import WHOLE
from mooring.model.resources.slots import slot_type
from mooring.model.tenancy.access import not_there
from mooring.model.workloads.workload import Kind
from mooring.store.commit import replacements, transitions
from mooring.store.commit.locked_workloads import lock_workloads
from mooring.store.commit.replacements import Replacement
from mooring.store.commit.status_changes import Applied
from mooring.store.core.engine import Connection
from mooring.store.nodes import devices, nominations, running_tasks
from mooring.store.nodes.placed_tasks import may_move
from mooring.store.tables import node_resources
from mooring.store.workloads import stopping


@dataclass(frozen=True, slots=True)
class TaskMove:
    """A move as planned."""

    plan: UUID
    pool: str
    task_id: UUID
    source: str
    target: str


async def evict(
    connection: Connection, move: TaskMove, *, actor: str, interactive: bool, now: datetime, term: int | None
) -> tuple[str, Applied]:
    """Evict the task of a move. Raise Conflict if the state differs from the plan.

    Return the name of its workload and the changes. `interactive`: interactive sessions may move.
    """
    workload_id = await nominations.workload_of(connection, move.task_id)
    if workload_id is None:
        raise not_there(f"task {move.task_id}")
    await lock_workloads(connection, [workload_id])
    task = await nominations.on_node(connection, move.task_id)
    # The owner may have changed its workload since the plan.
    if task is None or task.pool != move.pool or not may_move(task, interactive=interactive):
        raise departed(f"task {move.task_id} is not a task of pool {move.pool} that may move")
    if task.node != move.source:
        raise departed(f"task {move.task_id} of {task.name} no longer runs on {move.source}")
    if move.target == move.source:
        raise departed(f"task {move.task_id} of {task.name} already runs on {move.target}")
    target = await nominations.target(connection, move.pool, move.target)
    if target is None or target.status != NodeStatus.READY or not target.schedulable:
        raise departed(f"node {move.target} takes no new tasks")
    lacking = await _lacking(connection, target.id, task.task_request, split=target.fragmentation)
    if lacking is not None:
        raise departed(f"node {move.target} no longer has the {lacking} that {task.name} requests")
    allowed = (await running_tasks.budgets(connection)).allowed.get(workload_id)
    if allowed is not None and allowed < 1:
        raise departed(f"{task.name} can spare no running task at the moment")
    await nominations.nominate(connection, move.task_id, move.target)
    service = task.kind == Kind.DEPLOYMENT
    if service:
        replaced = [Replacement(move.task_id, workload_id)]
        await replacements.replace_tasks(connection, replaced, actor=actor, now=now, term=term)
    message = f"Moved from {move.source} to {move.target} by {actor} for plan {move.plan}"
    reason = Reason(DEFRAGMENTED, message, "defragmentation", "never")
    change = stopping.evict(move.task_id, TaskStatus.RUNNING, reason, requeue=not service)
    return task.name, await transitions.apply(connection, [change], actor=actor, now=now, term=term)


def departed(message: str) -> Conflict:
    return Conflict(f"the cluster departed from the plan: {message}", code="plan-departed")


async def _lacking(connection: Connection, node_id: UUID, request: Mapping[str, int], *, split: bool) -> str | None:
    """Return the first slot of which a node has less than a request, by the fit rule and its single devices."""
    own = node_resources.c
    rows = await connection.execute(
        select(own.slot_name, own.allocatable - own.held - own.reserved - own.used).where(own.node_id == node_id)
    )
    free = {name: int(amount) for name, amount in rows}
    listed = (await devices.by_node(connection, [node_id])).get(node_id, {})
    for slot, amount in sorted(request.items()):
        if amount > free.get(slot, 0):
            return slot
        if not slot_type(slot).devices or slot not in listed or split:
            continue
        whole, share = divmod(amount, WHOLE)
        left = sorted((device.capacity - device.taken for device in listed[slot]), reverse=True)
        if sum(each >= WHOLE for each in left) < whole or (share and max(left[whole:], default=0) < share):
            return slot
    return None
