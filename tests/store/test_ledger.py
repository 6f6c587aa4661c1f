"""The audit: it finds what was planted, says nothing of what is right, and repairs counters."""

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import update

from mooring.clock import now
from mooring.model.devices import DeviceShare
from mooring.model.lifecycle import TaskStatus
from mooring.model.pools import Binding
from mooring.store import ledger
from mooring.store.changes import Change
from mooring.store.tables import holds, node_devices, node_resources, resource_allocations, tasks, workloads
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour, decision_on


class Cluster:
    def __init__(self, harbour: Harbour, node_id: UUID, workload_id: UUID, task_id: UUID) -> None:
        self.harbour = harbour
        self.node_id, self.workload_id, self.task_id = node_id, workload_id, task_id

    async def plant(self, statement: Any) -> list[str]:
        """Change a row behind the store's back; the rules that the audit finds broken."""
        await self.harbour.database.write(lambda c: c.execute(statement))
        return sorted({finding.rule for finding in await self.harbour.findings()})


@pytest.fixture
async def cluster(harbour: Harbour) -> Cluster:
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("web", replicas=2)
    first, _ = await harbour.run(workload_id)
    assert await harbour.findings() == []
    return Cluster(harbour, node_id, workload_id, first.id)


async def test_a_wrong_counter_is_found_and_repaired_from_the_ledger(cluster: Cluster):
    counter = update(node_resources).where(node_resources.c.slot_name == "cpu")
    assert await cluster.plant(counter.values(used=node_resources.c.used + 500, reserved=7)) == ["ledger = counters"]
    [finding] = await cluster.harbour.findings()
    assert finding.subject == "node n1, cpu"
    assert finding.expected == "held 0 reserved 0 used 2000 leaving 0"
    assert finding.found == "held 0 reserved 7 used 2500 leaving 0"

    async def repair() -> int:
        return await cluster.harbour.database.write(lambda c: ledger.repair_counters(c, now()))

    assert await repair() == 1
    assert await cluster.harbour.findings() == []
    assert await cluster.harbour.counters(cluster.node_id) == (0, 0, 2000)
    assert [e.kind for e in await cluster.harbour.feed(cluster.node_id)][-1] == "repaired"
    assert await repair() == 0


@on_sqlite
async def test_a_wrong_ledger_row_is_found(cluster: Cluster):
    row = update(resource_allocations).where(
        resource_allocations.c.task_id == cluster.task_id, resource_allocations.c.slot_name == "cpu"
    )
    assert await cluster.plant(row.values(used=999)) == [
        "JSON = ledger, occupied",
        "ledger = counters",
        "occupies what it requested",
    ]


@on_sqlite
async def test_a_row_that_was_freed_too_early_is_found(cluster: Cluster):
    row = update(resource_allocations).where(resource_allocations.c.task_id == cluster.task_id)
    assert await cluster.plant(row.values(freed_at=now())) == ["JSON = ledger, occupied", "ledger = counters"]


@on_sqlite
@pytest.mark.parametrize(
    ("column", "rule"),
    [("occupied_slots", "JSON = ledger, occupied"), ("requested_slots", "JSON = ledger, requested")],
)
async def test_a_wrong_copy_in_json_is_found(cluster: Cluster, column: str, rule: str):
    task = update(tasks).where(tasks.c.id == cluster.task_id)
    assert await cluster.plant(task.values({column: {"cpu": 1}})) == [rule]


@on_sqlite
async def test_more_than_a_node_has_is_found(cluster: Cluster):
    counter = update(node_resources).where(node_resources.c.slot_name == "cpu")
    assert await cluster.plant(counter.values(allocatable=1999)) == ["within capacity"]


@on_sqlite
async def test_an_ended_task_that_is_still_charged_is_found(cluster: Cluster):
    task = update(tasks).where(tasks.c.id == cluster.task_id)
    assert "ended tasks are freed" in await cluster.plant(task.values(status=TaskStatus.FAILED))


@on_sqlite
async def test_an_occupying_task_without_a_node_is_found(cluster: Cluster):
    task = update(tasks).where(tasks.c.id == cluster.task_id)
    assert "occupying tasks have a node" in await cluster.plant(task.values(node_id=None))


@on_sqlite
@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"status": "PENDING"}, "status follows from tasks"),
        ({"status": "FAILED"}, "status follows from tasks"),
        ({"replicas": 3}, "as many tasks as wanted"),
    ],
)
async def test_a_workload_that_its_tasks_do_not_make_is_found(cluster: Cluster, values: dict[str, Any], rule: str):
    assert await cluster.plant(update(workloads).values(values)) == [rule]


@on_sqlite
async def test_two_current_attempts_at_one_task_are_found(cluster: Cluster):
    task = update(tasks).where(tasks.c.id == cluster.task_id)
    assert await cluster.plant(task.values(task_index=1, attempt=2)) == ["one current attempt per task"]


@on_sqlite
async def test_an_empty_database_is_clean(harbour: Harbour):
    assert await harbour.findings() == []


async def test_wrong_books_of_devices_holds_and_victims_are_found_and_counters_repaired(harbour: Harbour):
    node_id = await harbour.node("n1", slots={"gpu": 2})
    held, running = await harbour.submit("held", slots={"gpu": 1}), await harbour.submit("running", slots={"gpu": 1})
    first = await decision_on(harbour, held, [node_id], devices=[DeviceShare("gpu", 0, 1000)])
    second = await decision_on(harbour, running, [node_id], devices=[DeviceShare("gpu", 1, 1000)])
    await harbour.commit(first, mode=Binding.TWO_PHASE)
    await harbour.commit(second)
    [task] = await harbour.tasks(running)
    await harbour.apply(Change(task.id, TaskStatus.TERMINATING, preempted_by=held))
    assert await harbour.findings() == []
    cluster = Cluster(harbour, node_id, running, task.id)

    assert await cluster.plant(update(node_resources).values(leaving=7)) == ["ledger = counters"]
    assert await cluster.plant(update(node_devices).values(taken=5)) == ["allocations = devices", "ledger = counters"]
    assert await harbour.database.write(lambda c: ledger.repair_counters(c, now())) == 5
    assert await harbour.findings() == []
    assert await harbour.leaving(node_id) == 1000
    assert await harbour.taken(node_id) == {0: 1000, 1: 1000}

    copy = update(tasks).where(tasks.c.id == task.id)
    assert await cluster.plant(copy.values(devices={"gpu": [[0, 1000]]})) == ["JSON = devices"]
    assert await cluster.plant(copy.values(devices={"gpu": [[1, 1000]]})) == []
    assert await cluster.plant(update(holds).values(task_id=task.id)) == ["reserved = held"]


@on_sqlite
async def test_a_device_above_its_capacity_is_found_unless_the_surplus_leaves(harbour: Harbour):
    node_id = await harbour.node("n1", slots={"gpu": 1})
    workload_id = await harbour.submit("w", slots={"gpu": 1})
    wish = await decision_on(harbour, workload_id, [node_id], devices=[DeviceShare("gpu", 0, 1000)])
    await harbour.commit(wish)
    [task] = await harbour.tasks(workload_id)
    cluster = Cluster(harbour, node_id, workload_id, task.id)
    assert await cluster.plant(update(node_devices).values(capacity=500)) == ["device within capacity"]
    await harbour.apply(Change(task.id, TaskStatus.TERMINATING, preempted_by=workload_id))
    assert await harbour.findings() == []
