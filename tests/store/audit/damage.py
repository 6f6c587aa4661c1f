"""A database with every kind of record that a task can have, and its state for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select

from mooring.model.decisions import Decision
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.pools import Binding
from mooring.model.resources.devices import DeviceShare
from mooring.model.workloads.constraints import Constraints, HostPort
from mooring.model.workloads.workload import Kind
from mooring.store.core.types import AnyRow
from mooring.store.tables import (
    device_allocations,
    holds,
    node_devices,
    node_resources,
    nodes,
    port_allocations,
    resource_allocations,
    tasks,
    tenant_resources,
    workloads,
)
from tests.store.harness import Harness, decision_on

TABLES = (
    tasks,
    workloads,
    resource_allocations,
    device_allocations,
    port_allocations,
    holds,
    node_resources,
    node_devices,
    nodes,
    tenant_resources,
)
# A repair leaves its mark in these, and a hold that was lost comes back under another id.
_NOT_COMPARED = {"version", "updated_at", "generation"}
GPU = {"gpu": 1}


@dataclass
class Busy:
    """Nodes with tasks of every status, in a consistent state."""

    harness: Harness
    nodes: list[UUID]
    workloads: dict[str, UUID]

    async def task(self, name: str) -> AnyRow:
        return (await self.harness.tasks(self.workloads[name]))[0]

    async def state(self) -> dict[str, list[dict[str, Any]]]:
        """All rows that the audit is about."""
        found: dict[str, list[dict[str, Any]]] = {}
        for table in TABLES:
            left_out = _NOT_COMPARED | ({"id"} if table is holds else set())
            rows = await self.harness.rows(select(table))
            shown = [{k: v for k, v in row._mapping.items() if k not in left_out} for row in rows]
            found[table.name] = sorted(shown, key=str)
        return found


async def busy(harness: Harness) -> Busy:
    ids = [await harness.node(name, cpu=32, memory="64Gi", slots={"gpu": 4}) for name in ("n1", "n2")]
    owned: dict[str, UUID] = {}
    for name in ("web", "done", "failed", "lost", "leaving", "gone"):
        owned[name] = await harness.submit(name, kind=Kind.SESSION, replicas=2 if name == "web" else 1)
        await harness.commit(await decision_on(harness, owned[name], ids if name == "web" else ids[:1]))
    for name in ("web", "done", "lost", "leaving", "gone"):
        for task in await harness.tasks(owned[name]):
            await harness.move(task, TaskStatus.PREPARING, TaskStatus.RUNNING)
    await _move(harness, owned["done"], TaskStatus.SUCCEEDED)
    await _move(harness, owned["failed"], TaskStatus.FAILED)
    await _move(harness, owned["lost"], TaskStatus.LOST, freed=False)
    await _move(harness, owned["gone"], TaskStatus.LOST, freed=False)
    await harness.free_lost((await harness.tasks(owned["gone"]))[0].id)
    await _move(harness, owned["leaving"], TaskStatus.TERMINATING)
    owned["scheduled"] = await harness.submit("scheduled", kind=Kind.SESSION)
    await harness.commit(await decision_on(harness, owned["scheduled"], ids[1:]))
    owned["gpu"] = await harness.submit("gpu", kind=Kind.SESSION, slots=GPU)
    await harness.commit(await _with_device(harness, owned["gpu"], ids[0], 1))
    await _move(harness, owned["gpu"], TaskStatus.RUNNING)
    owned["trained"] = await harness.submit("trained", kind=Kind.SESSION, slots=GPU)
    await harness.commit(await _with_device(harness, owned["trained"], ids[0], 3))
    await _move(harness, owned["trained"], TaskStatus.RUNNING, TaskStatus.SUCCEEDED)
    ports = Constraints(host_ports=(HostPort(8080),), ports_wanted=1)
    owned["listening"] = await harness.submit("listening", kind=Kind.SESSION, constraints=ports)
    await harness.bind(await harness.propose([owned["listening"]]))
    await _move(harness, owned["listening"], TaskStatus.RUNNING)
    owned["held"] = await harness.submit("held", kind=Kind.SESSION, slots=GPU)
    await harness.commit(await _with_device(harness, owned["held"], ids[0], 2), mode=Binding.TWO_PHASE)
    owned["waiting"] = await harness.submit("waiting", kind=Kind.SESSION, cpu=1000)
    assert await harness.findings() == []
    return Busy(harness, ids, owned)


async def _move(harness: Harness, workload_id: UUID, *statuses: TaskStatus, **more: Any) -> None:
    for task in await harness.tasks(workload_id):
        await harness.move(task, *statuses, **more)


async def _with_device(harness: Harness, workload_id: UUID, node_id: UUID, index: int) -> Decision:
    return await decision_on(harness, workload_id, [node_id], devices=[DeviceShare("gpu", index, 1000)])
