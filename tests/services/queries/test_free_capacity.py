"""Free capacity: the answer and the scheduler agree."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.clock import now
from mooring.model.errors import NotFound
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import PoolPolicy
from mooring.model.resources.devices import Device
from mooring.model.resources.slots import parse_amounts, slot_type
from mooring.model.tenancy.quotas import SESSIONS, Scope
from mooring.model.tenancy.tenants import Principal, Role
from mooring.model.workloads.constraints import Effect, Taint
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Scheduler
from mooring.services.queries.free_capacity import QuotaHeadroom, free_in_pool
from mooring.services.queries.queries import Queries
from mooring.store.core.engine import Connection
from mooring.store.tenancy import quotas
from mooring.store.tenancy.quotas import QuotaChange
from tests.scheduling.builders import NOW, NodeBuilder, id_of, node
from tests.selection import examples
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

ADA = Principal(id_of("ada"), "ada", Role.USER, UUID(int=1), UUID(int=2), "key")
POLICY = PoolPolicy("balanced")


def build(*builders: NodeBuilder) -> list[Node]:
    return [builder.node for builder in builders]


def starts(nodes: list[Node], request: dict[str, int]) -> bool:
    [decision] = (
        Scheduler(nodes, compiled=False).run([Workload(name="w", request=request, user_id=ADA.user_id)], NOW).decisions
    )
    return len(decision.placements) == 1


def test_boxes_are_the_largest_requests_of_which_none_is_a_part_of_another():
    nodes = build(
        node("a").cpu(8).memory("4Gi"),
        node("b").cpu(4).memory("16Gi").used(cpu=1),
        node("c").cpu(2).memory("4Gi"),
        node("d").cpu(8).memory("4Gi"),
    )
    capacity = free_in_pool("default", POLICY, nodes, ADA, QuotaHeadroom())
    assert (capacity.pool, capacity.nodes) == ("default", 4)
    assert capacity.free == {"cpu": "21", "memory": "28Gi"}
    assert capacity.largest == {"cpu": "8", "memory": "16Gi"}
    assert capacity.boxes == [{"cpu": "3", "memory": "16Gi"}, {"cpu": "8", "memory": "4Gi"}]


def test_nodes_that_accept_no_work_of_the_user_have_no_free_capacity():
    nodes = build(
        node("owned").cpu(1).owner("ada"),
        node("foreign").cpu(64).owner("ben"),
        node("full").cpu(64).tasks(3, at_most=3),
        node("elsewhere").cpu(64).pool("other"),
    )
    tainted = replace(node("tainted").cpu(64).node, taints=(Taint("lab"),))
    disliked = replace(node("disliked").cpu(2).node, taints=(Taint("lab", effect=Effect.PREFER_NO_SCHEDULE),))
    closed = replace(node("closed").cpu(64).node, schedulable=False)
    capacity = free_in_pool("default", POLICY, [*nodes, tainted, disliked, closed], ADA, QuotaHeadroom())
    assert (capacity.nodes, capacity.largest) == (2, {"cpu": "2"})
    crowded = build(node("busy").cpu(8).tasks(2))
    assert free_in_pool("default", replace(POLICY, max_tasks_per_node=2), crowded, ADA, QuotaHeadroom()).boxes == []


def test_quota_headroom_bounds_the_largest_requests():
    nodes = build(node("a").cpu(8).memory("4Gi"), node("b").cpu(4).memory("16Gi"))
    left = QuotaHeadroom(
        ((Scope.USER, "ada", {"cpu": 6000}), (Scope.PROJECT, "vision", {"cpu": 2000, "memory": 8 << 30}))
    )
    capacity = free_in_pool("default", POLICY, nodes, ADA, left)
    assert capacity.free == {"cpu": "12", "memory": "20Gi"}
    assert capacity.boxes == [{"cpu": "2", "memory": "8Gi"}]
    no_session = QuotaHeadroom(((Scope.DOMAIN, "lab", {SESSIONS: 0}),))
    assert free_in_pool("default", POLICY, nodes, ADA, no_session).boxes == []


def gpu_node(name: str, *free: int) -> Node:
    devices = tuple(Device(index, taken=1000 - left) for index, left in enumerate(free))
    taken = sum(device.taken for device in devices)
    return replace(node(name).cpu(8).slot("gpu", len(free)).node, used={"gpu": taken}, devices={"gpu": devices})


@pytest.mark.parametrize(
    ("free", "apart", "split"),
    [
        ((1000, 1000, 500), "2", "2"),
        ((400, 300), "0.4", "0.601"),
        ((600, 600, 600), "1.2", "1.8"),
        ((0, 0), "0", "0"),
    ],
)
def test_free_device_shares_are_what_one_task_can_get(free: tuple[int, ...], apart: str, split: str):
    nodes = [gpu_node("g", *free)]
    assert free_in_pool("default", POLICY, nodes, ADA, QuotaHeadroom()).largest["gpu"] == apart
    assert (
        free_in_pool("default", replace(POLICY, fragmentation=True), nodes, ADA, QuotaHeadroom()).largest["gpu"]
        == split
    )


amount = st.integers(0, 4)


@given(st.lists(st.tuples(amount, amount, amount, st.lists(st.integers(0, 1000), max_size=3)), min_size=1, max_size=4))
@settings(max_examples=examples(30), deadline=None)
def test_every_box_starts_and_nothing_larger_does(rows: list[tuple[int, int, int, list[int]]]):
    nodes = []
    for number, (cpu, memory, used, devices) in enumerate(rows):
        found = gpu_node(f"n{number}", *devices)
        allocatable = {**found.allocatable, "cpu": cpu * 1000, "memory": memory << 30}
        used_slots = {**found.used, "cpu": min(used, cpu) * 1000}
        nodes.append(replace(found, allocatable=allocatable, used=used_slots))
    capacity = free_in_pool("default", POLICY, nodes, ADA, QuotaHeadroom())
    for box in capacity.boxes:
        assert starts(nodes, parse_amounts(box))
    for slot, largest in capacity.largest.items():
        units = slot_type(slot).parse(largest)
        assert not units or starts(nodes, {slot: units})
        assert not starts(nodes, {slot: units + 1})


@on_sqlite
async def test_free_capacity_comes_from_the_store_within_the_quotas_of_the_user(harness: Harness):
    await harness.node("n1", cpu=8, memory="16Gi")
    await harness.run(await harness.submit("job", cpu=3, memory="1Gi"))

    async def limit(connection: Connection) -> None:
        found = await quotas.find(connection, Scope.PROJECT, str(harness.principal.project_id))
        await quotas.set_quota(connection, found, QuotaChange(limits=parse_amounts({"memory": "5Gi"})), now())

    await harness.database.write(limit)
    queries = Queries(harness.database)
    capacity = await queries.free(harness.principal, None)
    assert [found.pool for found in capacity.pools] == ["default", "simulated"]
    assert capacity.pools[0].boxes == [{"cpu": "5", "memory": "4Gi"}]
    assert capacity.pools[0].free == {"cpu": "5", "memory": "15Gi"}
    assert [(quota.scope, quota.name, quota.left) for quota in capacity.quotas] == [
        ("project", "default", {"memory": "4Gi"})
    ]
    assert (await queries.free(harness.principal, "simulated")).pools[0].boxes == []
    with pytest.raises(NotFound, match="no pool 'nowhere' that you may use"):
        await queries.free(harness.principal, "nowhere")
