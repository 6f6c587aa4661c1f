"""One move of a defragmentation plan: the task is evicted, and its replacement prefers the planned node."""

from __future__ import annotations

from mooring.clock import now
from mooring.model.errors import Conflict
from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.nodes.eviction import DEFRAGMENTED
from mooring.model.reasons import Reason
from mooring.model.tenancy.access import not_there
from mooring.model.workloads.workload import Kind
from mooring.store.commit import replacements, transitions
from mooring.store.commit.locked_workloads import lock_workloads
from mooring.store.commit.replacements import Replacement
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import nominations, running_tasks
from mooring.store.nodes.placed_tasks import may_move
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.workloads import stopping
from mooring.wire.cluster.defragmentation import MoveRequest


class Defragmentation:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def move(self, pool: str, request: MoveRequest, actor: Actor) -> None:
        """Evict a task towards another node. Raise Conflict if the state differs from the plan."""

        async def work(connection: Connection) -> None:
            await _move(connection, pool, request, actor)

        await self._database.write(work)


async def _move(connection: Connection, pool: str, request: MoveRequest, actor: Actor) -> None:
    at = now()
    workload_id = await nominations.workload_of(connection, request.task_id)
    if workload_id is None:
        raise not_there(f"task {request.task_id}")
    await lock_workloads(connection, [workload_id])
    task = await nominations.on_node(connection, request.task_id)
    # The owner may have changed its workload since the plan. Interactive sessions are moved if the plan contains them.
    if task is None or task.pool != pool or not may_move(task, interactive=True):
        raise _departed(f"task {request.task_id} is not a task of pool {pool} that may move")
    if task.node != request.source:
        raise _departed(f"task {request.task_id} of {task.name} no longer runs on {request.source}")
    if request.target == request.source:
        raise _departed(f"task {request.task_id} of {task.name} already runs on {request.target}")
    target = await nominations.target(connection, pool, request.target)
    if target is None or target.status != NodeStatus.READY or not target.schedulable:
        raise _departed(f"node {request.target} takes no new tasks")
    allowed = (await running_tasks.budgets(connection)).allowed.get(workload_id)
    if allowed is not None and allowed < 1:
        raise _departed(f"{task.name} can spare no running task at the moment")
    await nominations.nominate(connection, request.task_id, request.target)
    service = task.kind == Kind.DEPLOYMENT
    if service:
        await replacements.replace_tasks(
            connection, [Replacement(request.task_id, workload_id)], actor=actor.username, now=at, term=None
        )
    message = f"Moved from {request.source} to {request.target} by {actor.username} for plan {request.plan}"
    reason = Reason(DEFRAGMENTED, message, "defragmentation", "never")
    change = stopping.evict(request.task_id, TaskStatus.RUNNING, reason, requeue=not service)
    await transitions.apply(connection, [change], actor=actor.username, now=at)
    await admin_actions.record(
        connection,
        actor,
        "move",
        "task",
        str(request.task_id),
        now=at,
        before={"node": request.source},
        after={"node": request.target, "plan": str(request.plan), "workload": task.name},
    )


def _departed(message: str) -> Conflict:
    return Conflict(f"the cluster departed from the plan: {message}", code="plan-departed")
