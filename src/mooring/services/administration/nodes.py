"""What an admin does with nodes: add simulated ones, drain, resume, taint, remove."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from mooring.clock import now
from mooring.intake.placing import check_own_taints, taints_of
from mooring.model.constraints import Effect
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.slots import parse_amounts
from mooring.model.tenants import Principal
from mooring.store import actions, agents, drains, nodes, pools, quarantine, suspicion, taints, transitions, workloads
from mooring.store.actions import Actor
from mooring.store.changes import Applied
from mooring.store.engine import Connection, Database
from mooring.store.loading import lock_workloads
from mooring.store.narration import narrate
from mooring.wire.api import DrainRequest, NodeRequest, TaintsChange
from mooring.wire.quarantine import QuarantineEnd

SIMULATED_POOL = "simulated"
_RUNTIMES = ("container",)


class NodeAdmin:
    def __init__(self, database: Database, *, simulation_allowed: bool) -> None:
        self._database = database
        self._simulation_allowed = simulation_allowed

    async def add_simulated(self, principal: Principal, request: NodeRequest) -> UUID:
        if not self._simulation_allowed:
            raise Conflict(
                "this server takes no simulated nodes: it is on PostgreSQL or listens beyond loopback; "
                "start it with --demo to allow them",
                code="simulation-refused",
            )
        capacity = parse_amounts(request.resources)

        async def work(connection: Connection) -> UUID:
            at = now()
            pool = await pools.ensure(connection, SIMULATED_POOL, runtimes=_RUNTIMES, simulated=True, now=at)
            new = nodes.NewNode(
                name=request.name,
                pool_id=pool.id,
                capacity=capacity,
                architecture=request.architecture,
                runtimes=_RUNTIMES,
                simulated=True,
                region=request.region,
                labels=request.labels,
                taints=taints_of(request.taints),
                max_tasks=request.max_tasks,
                licence=request.licence,
                machine_image=request.machine_image,
                machine_image_version=request.machine_image_version,
            )
            node_id = await nodes.add(connection, new, actor=str(principal.user_id), now=at)
            after = request.model_dump(mode="json", exclude_unset=True)
            await actions.record(connection, Actor.of(principal), "add", "node", new.name, now=at, after=after)
            return node_id

        return await self._database.write(work)

    async def drain(self, principal: Principal, name: str, request: DrainRequest) -> None:
        """Once more, with another reason or another time."""
        actor = str(principal.user_id)

        async def work(connection: Connection) -> None:
            node = await nodes.by_name(connection, name)
            at = now()
            seconds, reason = request.timeout_seconds, request.reason
            until = None if seconds is None else at + timedelta(seconds=seconds)
            await nodes.set_draining(connection, node.id, True, actor=actor, now=at, reason=reason, until=until)
            if until is not None:
                await drains.warn(connection, node.id, until, reason, actor=actor, now=at)
            after = request.model_dump(mode="json", exclude_unset=True)
            await actions.record(connection, Actor.of(principal), "drain", "node", name, now=at, after=after)

        await self._database.write(work)

    async def resume(self, principal: Principal, name: str) -> None:
        """It takes work again, and what went wrong on it so far is forgiven."""

        async def work(connection: Connection) -> None:
            node = await nodes.by_name(connection, name)
            at = now()
            await nodes.set_draining(connection, node.id, False, actor=str(principal.user_id), now=at)
            await suspicion.trust(connection, node.id, at)
            await actions.record(connection, Actor.of(principal), "resume", "node", name, now=at)

        await self._database.write(work)

    async def change_taints(self, principal: Principal, name: str, request: TaintsChange) -> None:
        """Those that Mooring set itself stay."""
        add = taints_of(request.add)
        remove = [(each.key, Effect(each.effect) if each.effect else None) for each in request.remove]
        check_own_taints(key for key, _ in remove)

        async def work(connection: Connection) -> None:
            node = await nodes.by_name(connection, name)
            at = now()
            new = [taints.Standing(taint, at) for taint in add]
            if await taints.change(connection, node.id, add=new, remove=remove, now=at):
                after = request.model_dump(mode="json", exclude_unset=True)
                await actions.record(connection, Actor.of(principal), "taint", "node", name, now=at, after=after)

        await self._database.write(work)

    async def remove(self, principal: Principal, name: str, force: bool) -> None:
        """Take a node out. By force: the machine is gone for good, so nothing of its tasks can be left."""

        async def work(connection: Connection) -> Applied:
            at = now()
            node = await nodes.by_name(connection, name)
            applied = Applied()
            if force:
                rows = await agents.desired(connection, node.id)
                await lock_workloads(connection, {row.workload_id for row in rows})
                await nodes.lock(connection, node.id)
                charged = [row.id for row in rows]
                reason = Reason("node-removed", f"Node {node.name} was removed", "user", "change")
                changes = [workloads.losing(row.id, TaskStatus(row.status), reason, freed=True) for row in rows]
                applied = await transitions.apply(connection, changes, actor=str(principal.user_id), now=at)
                await transitions.free_lost(connection, charged, at)
            await nodes.remove(connection, node.id, force=force, actor=str(principal.user_id), now=at)
            before = {"force": force}
            await actions.record(connection, Actor.of(principal), "remove", "node", name, now=at, before=before)
            return applied

        narrate(await self._database.write(work))

    async def end_quarantined(self, principal: Principal, asked: QuarantineEnd) -> None:
        """Let tasks be ended that the database does not know."""

        async def work(connection: Connection) -> None:
            at = now()
            node_id = (await nodes.by_name(connection, asked.node)).id if asked.node is not None else None
            confirmed = await quarantine.confirm(
                connection, principal.username, node_id=node_id, task_id=asked.task_id, now=at
            )
            if not confirmed and not await quarantine.holds(connection, node_id=node_id, task_id=asked.task_id):
                raise NotFound("no such task is in quarantine; `mooring quarantine` lists them")
            named = asked.node or str(asked.task_id or "everything")
            after = {"tasks": [str(task_id) for task_id in confirmed]}
            await actions.record(connection, Actor.of(principal), "end", "quarantine", named, now=at, after=after)

        await self._database.write(work)


def simulated_request(number: int, region: str) -> NodeRequest:
    """One of the nodes that `--simulate` adds; sizes differ, so that scores do."""
    if number < 1:
        raise InvalidInput("nodes are numbered from 1")
    cores = (8, 16, 32)[number % 3]
    return NodeRequest(
        name=f"sim-{number:02d}" if number < 100 else f"sim-{number}",
        simulated=True,
        resources={"cpu": cores, "memory": f"{cores * 4}Gi", "storage": "1Ti", "gpu": 4 if number % 5 == 0 else 0},
        region=region,
    )
