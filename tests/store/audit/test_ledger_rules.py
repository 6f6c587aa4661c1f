"""The audit: it finds what was planted, says nothing of what is right, and repairs counters."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import delete, select, update

from mooring.clock import now
from mooring.model.devices import DeviceShare
from mooring.model.lifecycle import TaskStatus
from mooring.model.pools import Binding
from mooring.model.timeslots import TimeslotKind, TimeslotStatus
from mooring.store import timeslots
from mooring.store.changes import Change
from mooring.store.ids import new_id
from mooring.store.ledger import Finding
from mooring.store.repair import repair
from mooring.store.tables import (
    events,
    holds,
    node_devices,
    node_resources,
    resource_allocations,
    tasks,
    tenant_resources,
    workloads,
)
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour, decision_on
from tests.store.test_timeslots import HOUR, slot


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

    async def repair_all() -> list[Finding]:
        return await cluster.harbour.database.write(lambda c: repair(c, now()))

    assert await repair_all() == [finding]
    assert await cluster.harbour.findings() == []
    assert await cluster.harbour.counters(cluster.node_id) == (0, 0, 2000)
    assert [e.kind for e in await cluster.harbour.feed(cluster.node_id)][-1] == "repaired"
    events_before = await cluster.harbour.rows(select(events.c.revision))
    assert await repair_all() == []
    assert await cluster.harbour.rows(select(events.c.revision)) == events_before


@on_sqlite
async def test_a_wrong_ledger_row_is_found(cluster: Cluster):
    row = update(resource_allocations).where(
        resource_allocations.c.task_id == cluster.task_id, resource_allocations.c.slot_name == "cpu"
    )
    assert await cluster.plant(row.values(used=999)) == [
        "JSON = ledger, occupied",
        "ledger = counters",
        "ledger = tenants",
        "occupies what it requested",
    ]


@on_sqlite
async def test_a_row_that_was_freed_too_early_is_found(cluster: Cluster):
    row = update(resource_allocations).where(resource_allocations.c.task_id == cluster.task_id)
    assert await cluster.plant(row.values(freed_at=now())) == [
        "JSON = ledger, occupied",
        "ledger = counters",
        "ledger = tenants",
    ]


@on_sqlite
@pytest.mark.parametrize(
    ("column", "rule"),
    [("occupied_slots", "JSON = ledger, occupied"), ("requested_slots", "JSON = ledger, requested")],
)
async def test_a_wrong_copy_in_json_is_found(cluster: Cluster, column: str, rule: str):
    task = update(tasks).where(tasks.c.id == cluster.task_id)
    assert await cluster.plant(task.values({column: {"cpu": 1}})) == [rule]


async def test_wrong_sums_of_tenants_are_found_and_repaired_from_the_ledger(cluster: Cluster):
    harbour = cluster.harbour
    sessions = update(tenant_resources).where(
        tenant_resources.c.scope == "user", tenant_resources.c.slot_name == "sessions", tenant_resources.c.pool == ""
    )
    assert await cluster.plant(sessions.values(used=5)) == ["ledger = tenants"]
    [finding] = await harbour.findings()
    assert finding.subject == f"user {harbour.principal.user_id}, sessions"
    assert (finding.expected, finding.found) == ("reserved 0 used 1", "reserved 0 used 5")
    assert await cluster.plant(delete(tenant_resources).where(tenant_resources.c.pool == "default")) == [
        "ledger = tenants"
    ]
    assert f"project {harbour.principal.project_id}, cpu in pool default" in {
        finding.subject for finding in await harbour.findings()
    }
    wrong = await harbour.findings()
    assert await harbour.database.write(lambda c: repair(c, now())) == wrong
    assert await harbour.findings() == []


async def test_wrong_copies_are_repaired_from_the_ledger(cluster: Cluster):
    harbour = cluster.harbour
    before = await harbour.task(cluster.task_id)
    copies = {"requested_slots": {"cpu": 1, "gpu": 7}, "occupied_slots": {}, "devices": {"gpu": [[0, 5]]}}
    await cluster.plant(update(tasks).where(tasks.c.id == cluster.task_id).values(copies))
    assert len(await harbour.database.write(lambda c: repair(c, now()))) == 3
    assert await harbour.findings() == []
    after = await harbour.task(cluster.task_id)
    assert after.requested_slots == before.requested_slots
    assert after.occupied_slots == before.occupied_slots
    assert after.devices is None


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
    assert len(await harbour.database.write(lambda c: repair(c, now()))) == 5
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


async def test_timeslots_that_together_have_more_than_a_node_are_found(harbour: Harbour):
    node_id = await harbour.node("n1", cpu=8)
    first = slot(harbour, "first", status=TimeslotStatus.CONFIRMED, request={"cpu": 5000}, count=1, places={node_id: 1})
    after = replace(first, id=new_id(), starts_at=first.ends_at, ends_at=first.ends_at + HOUR, lead_seconds=0)
    at_risk = replace(first, id=new_id(), status=TimeslotStatus.AT_RISK)
    upkeep = replace(first, id=new_id(), kind=TimeslotKind.MAINTENANCE)
    await harbour.database.write(lambda c: timeslots.insert(c, [first, after, at_risk, upkeep], now()))
    assert await harbour.findings() == []
    beside = replace(first, id=new_id(), starts_at=first.ends_at, ends_at=first.ends_at + HOUR, lead_seconds=1)
    await harbour.database.write(lambda c: timeslots.insert(c, [beside], now()))
    (finding,) = await harbour.findings()
    assert finding == Finding("timeslots within capacity", "node n1, cpu", "at most 8000", "10000")
