"""Administration of nodes: add simulated ones, label, drain, resume, taint, remove."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from mooring.clock import now
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.resources.slots import parse_amounts
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.constraints import Effect
from mooring.services.submission.placement_constraints import check_own_taints, taints_of
from mooring.store.commit import transitions
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.locked_workloads import lock_workloads
from mooring.store.commit.status_changes import Applied
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import (
    desired_tasks,
    drains,
    nodes,
    pools,
    quarantine,
    suspicion,
    taints,
)
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.workloads import stopping
from mooring.wire.cluster.nodes import DrainRequest, NodeChange, NodeRequest, TaintsChange
from mooring.wire.cluster.quarantine import QuarantineEnd
from mooring.wire.fields import MAX_LABELS

SIMULATED_POOL = "simulated"
_RUNTIMES = ("container",)


class NodeAdmin:
    def __init__(self, database: Database, *, simulation_allowed: bool) -> None:
        self._database = database
        self._simulation_allowed = simulation_allowed

    async def add_simulated(self, principal: Principal, request: NodeRequest) -> UUID:
        if not self._simulation_allowed:
            raise Conflict(
                "this server accepts no simulated nodes, because it uses PostgreSQL or listens beyond loopback; "
                "start it with --demo to allow them",
                code="simulation-refused",
            )
        capacity = parse_amounts(request.resources)

        async def work(connection: Connection) -> UUID:
            at = now()
            pool = await _simulated_pool(connection, request.pool, at)
            new = nodes.NewNode(
                name=request.name,
                pool_id=pool.id,
                capacity=capacity,
                architecture=request.architecture,
                runtimes=sorted(pool.runtimes),
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
            await admin_actions.record(connection, Actor.of(principal), "add", "node", new.name, now=at, after=after)
            return node_id

        return await self._database.write(work)

    async def drain(self, principal: Principal, name: str, request: DrainRequest) -> None:
        """Drain a node; again, to change the reason or the deadline."""
        actor = str(principal.user_id)

        async def work(connection: Connection) -> None:
            node = await nodes.by_name(connection, name)
            at = now()
            seconds, reason = request.timeout_seconds, request.reason
            until = None if seconds is None else at + timedelta(seconds=seconds)
            await nodes.set_draining(connection, node.id, True, actor=actor, now=at, reason=reason, until=until)
            if until is not None:
                await drains.warn_sessions(connection, node.id, until, reason, actor=actor, now=at)
            after = request.model_dump(mode="json", exclude_unset=True)
            await admin_actions.record(connection, Actor.of(principal), "drain", "node", name, now=at, after=after)

        await self._database.write(work)

    async def resume(self, principal: Principal, name: str) -> None:
        """Make a node schedulable again, and clear its failure history."""

        async def work(connection: Connection) -> None:
            node = await nodes.by_name(connection, name)
            at = now()
            await nodes.set_draining(connection, node.id, False, actor=str(principal.user_id), now=at)
            await suspicion.trust(connection, node.id, at)
            await admin_actions.record(connection, Actor.of(principal), "resume", "node", name, now=at)

        await self._database.write(work)

    async def change(self, principal: Principal, name: str, request: NodeChange) -> None:
        """Set labels and the region of a node; placement sees them from the next pass on."""

        async def work(connection: Connection) -> None:
            node = await nodes.by_name(connection, name)
            at = now()
            changed = await nodes.relabel(connection, node.id, request.labels, request.region, now=at)
            if changed is not None:
                before, after = changed
                if len(after["labels"]) > MAX_LABELS:
                    raise InvalidInput(f"a node has at most {MAX_LABELS} labels", code="too-many-labels")
                await admin_actions.record(
                    connection, Actor.of(principal), "change", "node", name, now=at, before=before, after=after
                )

        await self._database.write(work)

    async def change_taints(self, principal: Principal, name: str, request: TaintsChange) -> None:
        """Change the taints of a node, except those that Mooring sets."""
        add = taints_of(request.add)
        remove = [(each.key, Effect(each.effect) if each.effect else None) for each in request.remove]
        check_own_taints(key for key, _ in remove)

        async def work(connection: Connection) -> None:
            node = await nodes.by_name(connection, name)
            at = now()
            new = [taints.TimedTaint(taint, at) for taint in add]
            if await taints.change(connection, node.id, add=new, remove=remove, now=at):
                after = request.model_dump(mode="json", exclude_unset=True)
                await admin_actions.record(connection, Actor.of(principal), "taint", "node", name, now=at, after=after)

        await self._database.write(work)

    async def remove(self, principal: Principal, name: str, force: bool) -> None:
        """Remove a node. `force`: the machine is gone for good, so none of its tasks can be running."""

        async def work(connection: Connection) -> Applied:
            at = now()
            node = await nodes.by_name(connection, name)
            applied = Applied()
            if force:
                rows = await desired_tasks.desired(connection, node.id)
                await lock_workloads(connection, {row.workload_id for row in rows})
                await nodes.lock(connection, node.id)
                charged = [row.id for row in rows]
                reason = Reason("node-removed", f"Node {node.name} was removed", "user", "change")
                changes = [stopping.mark_lost(row.id, TaskStatus(row.status), reason, freed=True) for row in rows]
                applied = await transitions.apply(connection, changes, actor=str(principal.user_id), now=at)
                await transitions.free_lost(connection, charged, at)
            await nodes.remove(connection, node.id, force=force, actor=str(principal.user_id), now=at)
            before = {"force": force}
            await admin_actions.record(connection, Actor.of(principal), "remove", "node", name, now=at, before=before)
            return applied

        log_applied(await self._database.write(work))

    async def end_quarantined(self, principal: Principal, asked: QuarantineEnd) -> None:
        """End quarantined tasks, which the database does not know."""

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
            await admin_actions.record(connection, Actor.of(principal), "end", "quarantine", named, now=at, after=after)

        await self._database.write(work)


async def _simulated_pool(connection: Connection, name: str, at: datetime) -> pools.Pool:
    if name == SIMULATED_POOL:
        return await pools.ensure(connection, name, runtimes=_RUNTIMES, simulated=True, now=at)
    pool = await pools.by_name(connection, name)
    if pool is None:
        raise NotFound(f"there is no pool {name!r}; `mooring pool create {name} --simulated` creates one")
    if not pool.simulated:
        raise Conflict(
            f"pool {name!r} has real nodes; add simulated nodes to a pool created with --simulated",
            code="pool-not-simulated",
        )
    return pool


def simulated_request(number: int, region: str) -> NodeRequest:
    """Return one of the nodes that `--simulate` adds; sizes differ, so that scores do."""
    if number < 1:
        raise InvalidInput("nodes are numbered from 1")
    cores = (8, 16, 32)[number % 3]
    return NodeRequest(
        name=f"sim-{number:02d}" if number < 100 else f"sim-{number}",
        simulated=True,
        resources={"cpu": cores, "memory": f"{cores * 4}Gi", "storage": "1Ti", "gpu": 4 if number % 5 == 0 else 0},
        region=region,
    )
