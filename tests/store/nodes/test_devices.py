"""Devices of nodes: numbered if they are not named, and recorded while any part of them is allocated."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.model.resources.devices import Device, DeviceShare
from mooring.model.resources.slots import parse_amounts
from mooring.store.nodes import devices, nodes
from tests.store.databases import on_sqlite
from tests.store.harness import Harness, decision_on

CAPACITY = parse_amounts({"cpu": 8, "memory": "16Gi"})


async def load(harness: Harness, node_id: UUID) -> Mapping[str, tuple[Device, ...]]:
    async with harness.database.read() as connection:
        [node] = await nodes.load(connection, [node_id])
    return node.devices


async def set_devices(harness: Harness, node_id: UUID, *gpus: Device) -> bool:
    named: dict[str, Sequence[Device]] = {"gpu": gpus}
    return await harness.database.write(lambda c: devices.set_devices(c, node_id, named))


async def test_a_slot_of_devices_has_whole_ones_where_none_are_named(harness: Harness):
    node_id = await harness.node("n1", slots={"gpu": 2})
    assert await load(harness, node_id) == {"gpu": (Device(0), Device(1))}
    workload_id = await harness.submit("w", slots={"gpu": "500m"})
    wish = await decision_on(harness, workload_id, [node_id], devices=[DeviceShare("gpu", 1, 500)])
    await harness.commit(wish)
    assert await load(harness, node_id) == {"gpu": (Device(0), Device(1, taken=500))}


@on_sqlite
async def test_an_agent_names_the_devices_of_its_machine(harness: Harness):
    node_id = await harness.node("n1", slots={"gpu": 2})
    before = (await harness.node_row(node_id)).generation
    named = [Device(3, model="A100", memory=2**36), Device(4, model="T4")]
    facts: dict[str, Any] = {"architecture": "x86_64", "runtimes": ["process"], "boot_id": "boot", "agent_version": "1"}
    await harness.database.write(
        lambda c: nodes.connected(
            c,
            node_id,
            capacity=CAPACITY | {"gpu": 2000},
            enforces={},
            multi_tenant=True,
            now=now(),
            named_devices={"gpu": named},
            **facts,
        )
    )
    assert await load(harness, node_id) == {"gpu": tuple(named)}
    assert (await harness.node_row(node_id)).generation == before + 1


async def test_a_device_that_vanished_stays_without_capacity_while_something_of_it_is_taken(harness: Harness):
    node_id = await harness.node("n1", slots={"gpu": 2})
    workload_id = await harness.submit("w", slots={"gpu": "500m"})
    wish = await decision_on(harness, workload_id, [node_id], devices=[DeviceShare("gpu", 1, 500)])
    await harness.commit(wish)
    assert await set_devices(harness, node_id)
    assert await load(harness, node_id) == {"gpu": (Device(1, capacity=0, taken=500),)}
    assert not await set_devices(harness, node_id)
    assert await harness.findings() == []
    await harness.stop(workload_id)
    [task] = await harness.tasks(workload_id)
    await harness.move(task, TaskStatus.CANCELLED)
    await set_devices(harness, node_id)
    assert await load(harness, node_id) == {}
