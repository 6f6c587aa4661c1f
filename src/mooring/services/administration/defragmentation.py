"""One move of a defragmentation plan, as an admin requests it."""

from __future__ import annotations

from mooring.clock import now
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import task_moves
from mooring.store.nodes.task_moves import TaskMove
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor
from mooring.wire.cluster.defragmentation import MoveRequest


class Defragmentation:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def move(self, pool: str, request: MoveRequest, actor: Actor) -> None:
        """Evict a task towards another node. Raise Conflict if the state differs from the plan."""

        async def work(connection: Connection) -> None:
            at = now()
            move = TaskMove(request.plan, pool, request.task_id, request.source, request.target)
            # Interactive sessions are moved if the plan contains them.
            name, _ = await task_moves.evict(
                connection, move, actor=actor.username, interactive=True, now=at, term=None
            )
            await admin_actions.record(
                connection,
                actor,
                "move",
                "task",
                str(request.task_id),
                now=at,
                before={"node": request.source},
                after={"node": request.target, "plan": str(request.plan), "workload": name},
            )

        await self._database.write(work)
