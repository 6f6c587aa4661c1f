"""The tasks on nodes, read from the store into the cluster: constraints, host ports and expected ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from mooring.clock import now
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.constraints import Constraints, HostPort
from mooring.model.workloads.workload import NO_CONSTRAINTS
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.cluster.host_ports import with_host_ports
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.preemption.running_tasks import RunningTasks
from mooring.store.core.engine import Connection
from mooring.store.nodes import nodes, running_tasks
from mooring.store.workloads import expected_ends, pending
from mooring.store.workloads.expected_ends import Predict
from mooring.store.workloads.run_times import RunTimes

_MAX_CACHED_CONSTRAINTS = 100_000
_ALMOST_A_SECOND = timedelta(microseconds=999_999)
"""Rounds ends up to whole seconds: a task occupies its node for the whole second."""


class NodeTasks:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.running_tasks = RunningTasks()
        """Running tasks by node, maintained while some pool allows preemption."""
        self._constraints: dict[UUID, Constraints] = {}
        """Constraints of workloads that have, or had, tasks on nodes."""

    async def update_tasks(self, connection: Connection, ids: set[UUID], *, preempts: bool) -> None:
        """Pass the tasks on nodes to the cluster, for affinity, spread and host ports."""
        rows = await nodes.tasks_on(connection, sorted(ids))
        if len(self._constraints) > _MAX_CACHED_CONSTRAINTS:
            self._constraints = {}
        await self._read_constraints(connection, {row.workload_id for row in rows})
        staying: dict[UUID, list[tuple[Constraints, int]]] = {node_id: [] for node_id in ids}
        leaving: dict[UUID, list[tuple[Constraints, int]]] = {}
        for row in rows:
            by_node = leaving if row.leaving else staying
            ports = (HostPort(port, protocol) for protocol, port in row.ports or ())
            known = NO_CONSTRAINTS if row.lost else self._constraints[row.workload_id]
            constraints = with_host_ports(known, ports)
            by_node.setdefault(row.node_id, []).append((constraints, row.number))
        for node_id in {**staying, **leaving}:
            self._cluster.set_tasks(node_id, staying.get(node_id, ()), leaving=leaving.get(node_id, ()))
        if preempts:
            here = await running_tasks.on_nodes(connection, sorted(ids), self._constraints)
            for node_id, own in here.items():
                self.running_tasks.update(node_id, own)

    async def update_ends(
        self,
        connection: Connection,
        ids: set[UUID],
        run_times: Mapping[UUID, RunTimes],
        predicted: Mapping[UUID, Predict],
    ) -> None:
        """Pass the expected ends of the tasks on nodes to the cluster, by the usual or predicted run times of pools."""
        ends: dict[UUID, dict[UUID, tuple[int, Amounts]]] = {node_id: {} for node_id in ids}
        guessed: dict[UUID, dict[UUID, tuple[int, Amounts]]] = {node_id: {} for node_id in ids}
        footprints: dict[UUID, dict[UUID, Footprint]] = {node_id: {} for node_id in ids}
        expected = await expected_ends.on_nodes(connection, sorted(ids), now(), run_times, predicted)
        await self._read_constraints(connection, {task.workload_id for task in expected})
        for task in expected:
            for found, at in ((ends, task.ends_at), (guessed, task.usually_at)):
                if at is not None:
                    found[task.node_id][task.task_id] = (seconds_of(at + _ALMOST_A_SECOND), task.request)
            ports = (HostPort(port, protocol) for protocol, port in task.ports)
            shown = with_host_ports(self._constraints[task.workload_id], ports)
            footprints[task.node_id][task.task_id] = Footprint(shown, task.devices, task.leaving, task.grace_seconds)
        for node_id in ids:
            self._cluster.set_expected_ends(node_id, ends[node_id], guessed[node_id], footprints[node_id])

    async def _read_constraints(self, connection: Connection, workload_ids: set[UUID]) -> None:
        unknown = workload_ids - self._constraints.keys()
        self._constraints |= await pending.constraints_of(connection, sorted(unknown))
