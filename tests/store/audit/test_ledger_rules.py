"""The audit finds planted errors, reports nothing in a consistent database, and repairs counters."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import delete, select, update

from mooring.clock import now
from mooring.model.calendar.timeslots import TimeslotKind, TimeslotStatus
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.pools import Binding
from mooring.model.resources.devices import DeviceShare
from mooring.store.audit.ledger_rules import Finding
from mooring.store.commit.status_changes import Change
from mooring.store.core.ids import new_id
from mooring.store.reservations import timeslots
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
from tests.store.harness import Harness, decision_on
from tests.store.reservations.test_timeslots import HOUR, slot


class Cluster:
    def __init__(self, harness: Harness, node_id: UUID, workload_id: UUID, task_id: UUID) -> None:
        self.harness = harness
        self.node_id, self.workload_id, self.task_id = node_id, workload_id, task_id

    async def plant(self, statement: Any) -> list[str]:
        """Change a row behind the store's back; the rules that the audit finds broken."""
        await self.harness.database.write(lambda c: c.execute(statement))
        return sorted({finding.rule for finding in await self.harness.findings()})


@pytest.fixture
async def cluster(harness: Harness) -> Cluster:
    node_id = await harness.node("n1")
    workload_id = await harness.submit("web", replicas=2)
    first, _ = await harness.run(workload_id)
    assert await harness.findings() == []
    return Cluster(harness, node_id, workload_id, first.id)


async def test_a_wrong_counter_is_found_and_repaired_from_the_ledger(cluster: Cluster):
    counter = update(node_resources).where(node_resources.c.slot_name == "cpu")
    assert await cluster.plant(counter.values(used=node_resources.c.used + 500, reserved=7)) == ["ledger = counters"]
    [finding] = await cluster.harness.findings()
    assert finding.subject == "node n1, cpu"
    assert finding.expected == "held 0 reserved 0 used 2000 leaving 0"
    assert finding.found == "held 0 reserved 7 used 2500 leaving 0"

    async def repair_all() -> list[str]:
        return [each.subject for each in (await cluster.harness.repair()).corrections]

    assert await repair_all() == ["node n1, cpu"]
    assert await cluster.harness.findings() == []
    assert await cluster.harness.counters(cluster.node_id) == (0, 0, 2000)
    assert [e.kind for e in await cluster.harness.feed(cluster.node_id)][-1] == "repaired"
    events_before = await cluster.harness.rows(select(events.c.revision))
    assert await repair_all() == []
    assert await cluster.harness.rows(select(events.c.revision)) == events_before


@on_sqlite
async def test_a_wrong_ledger_row_is_found_and_its_sums_are_not_reported(cluster: Cluster):
    row = update(resource_allocations).where(
        resource_allocations.c.task_id == cluster.task_id, resource_allocations.c.slot_name == "cpu"
    )
    assert await cluster.plant(row.values(used=999)) == ["ledger agrees with the task"]


@on_sqlite
async def test_a_row_that_was_freed_too_early_is_found(cluster: Cluster):
    row = update(resource_allocations).where(resource_allocations.c.task_id == cluster.task_id)
    assert await cluster.plant(row.values(freed_at=now())) == ["timestamps agree"]


@on_sqlite
@pytest.mark.parametrize(
    ("column", "rule"),
    [("occupied_slots", "JSON = ledger, occupied"), ("requested_slots", "JSON = ledger, requested")],
)
async def test_a_wrong_copy_in_json_is_found(cluster: Cluster, column: str, rule: str):
    task = update(tasks).where(tasks.c.id == cluster.task_id)
    assert await cluster.plant(task.values({column: {"cpu": 1}})) == [rule]


async def test_wrong_tenant_counters_are_found_and_repaired_from_the_ledger(cluster: Cluster):
    harness = cluster.harness
    sessions = update(tenant_resources).where(
        tenant_resources.c.scope == "user", tenant_resources.c.slot_name == "sessions", tenant_resources.c.pool == ""
    )
    assert await cluster.plant(sessions.values(used=5)) == ["ledger = tenants"]
    [finding] = await harness.findings()
    assert finding.subject == f"user {harness.principal.user_id}, sessions"
    assert (finding.expected, finding.found) == ("reserved 0 used 1", "reserved 0 used 5")
    assert await cluster.plant(delete(tenant_resources).where(tenant_resources.c.pool == "default")) == [
        "ledger = tenants"
    ]
    assert f"project {harness.principal.project_id}, cpu in pool default" in {
        finding.subject for finding in await harness.findings()
    }
    wrong = {finding.subject for finding in await harness.findings()}
    assert {each.subject for each in (await harness.repair()).corrections} == wrong
    assert await harness.findings() == []


async def test_wrong_copies_are_repaired(cluster: Cluster):
    harness = cluster.harness
    before = await harness.task(cluster.task_id)
    copies = {"requested_slots": {"cpu": 1, "gpu": 7}, "occupied_slots": {}, "devices": {"gpu": [[0, 5]]}}
    await cluster.plant(update(tasks).where(tasks.c.id == cluster.task_id).values(copies))
    assert len((await harness.repair()).corrections) == 3
    assert await harness.findings() == []
    after = await harness.task(cluster.task_id)
    assert after.requested_slots == before.requested_slots
    assert after.occupied_slots == before.occupied_slots
    assert after.devices is None


@on_sqlite
async def test_a_node_above_its_capacity_is_found(cluster: Cluster):
    counter = update(node_resources).where(node_resources.c.slot_name == "cpu")
    assert await cluster.plant(counter.values(allocatable=1999, capacity=1999)) == [
        "counters = capacity of the node",
        "within capacity",
    ]


@on_sqlite
async def test_an_ended_task_that_is_still_charged_is_found(cluster: Cluster):
    task = update(tasks).where(tasks.c.id == cluster.task_id)
    assert "status agrees with history" in await cluster.plant(task.values(status=TaskStatus.FAILED))


@on_sqlite
async def test_an_occupying_task_without_a_node_is_found(cluster: Cluster):
    task = update(tasks).where(tasks.c.id == cluster.task_id)
    assert await cluster.plant(task.values(node_id=None)) == ["records of a task name one node"]


@on_sqlite
@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"status": "PENDING"}, "status follows from tasks"),
        ({"status": "FAILED"}, "status follows from tasks"),
        ({"replicas": 3}, "as many tasks as wanted"),
    ],
)
async def test_a_workload_status_that_does_not_follow_from_its_tasks_is_found(
    cluster: Cluster, values: dict[str, Any], rule: str
):
    assert await cluster.plant(update(workloads).values(values)) == [rule]


@on_sqlite
async def test_two_current_attempts_of_one_task_are_found(cluster: Cluster):
    task = update(tasks).where(tasks.c.id == cluster.task_id)
    assert await cluster.plant(task.values(task_index=1, attempt=2)) == ["one current attempt per task"]


@on_sqlite
async def test_an_empty_database_is_clean(harness: Harness):
    assert await harness.findings() == []


async def test_wrong_records_of_devices_holds_and_victims_are_found_and_counters_repaired(harness: Harness):
    node_id = await harness.node("n1", slots={"gpu": 2})
    held, running = await harness.submit("held", slots={"gpu": 1}), await harness.submit("running", slots={"gpu": 1})
    first = await decision_on(harness, held, [node_id], devices=[DeviceShare("gpu", 0, 1000)])
    second = await decision_on(harness, running, [node_id], devices=[DeviceShare("gpu", 1, 1000)])
    await harness.commit(first, mode=Binding.TWO_PHASE)
    await harness.commit(second)
    [task] = await harness.tasks(running)
    await harness.apply(Change(task.id, TaskStatus.TERMINATING, preempted_by=held))
    assert await harness.findings() == []
    cluster = Cluster(harness, node_id, running, task.id)

    assert await cluster.plant(update(node_resources).values(leaving=7)) == ["ledger = counters"]
    assert await cluster.plant(update(node_devices).values(taken=5)) == ["allocations = devices", "ledger = counters"]
    assert len((await harness.repair()).corrections) == 5
    assert await harness.findings() == []
    assert await harness.leaving(node_id) == 1000
    assert await harness.taken(node_id) == {0: 1000, 1: 1000}

    copy = update(tasks).where(tasks.c.id == task.id)
    assert await cluster.plant(copy.values(devices={"gpu": [[0, 1000]]})) == ["JSON = devices"]
    assert await cluster.plant(copy.values(devices={"gpu": [[1, 1000]]})) == []
    assert await cluster.plant(update(holds).values(task_id=task.id)) == ["reserved = held"]


@on_sqlite
async def test_a_device_above_its_capacity_is_found_unless_the_surplus_is_leaving(harness: Harness):
    node_id = await harness.node("n1", slots={"gpu": 1})
    workload_id = await harness.submit("w", slots={"gpu": 1})
    wish = await decision_on(harness, workload_id, [node_id], devices=[DeviceShare("gpu", 0, 1000)])
    await harness.commit(wish)
    [task] = await harness.tasks(workload_id)
    cluster = Cluster(harness, node_id, workload_id, task.id)
    assert await cluster.plant(update(node_devices).values(capacity=500)) == ["device within capacity"]
    await harness.apply(Change(task.id, TaskStatus.TERMINATING, preempted_by=workload_id))
    assert await harness.findings() == []


async def test_timeslots_that_overbook_a_node_are_found(harness: Harness):
    node_id = await harness.node("n1", cpu=8)
    first = slot(
        harness, "first", status=TimeslotStatus.CONFIRMED, request={"cpu": 5000}, count=1, placements={node_id: 1}
    )
    after = replace(first, id=new_id(), starts_at=first.ends_at, ends_at=first.ends_at + HOUR, lead_seconds=0)
    at_risk = replace(first, id=new_id(), status=TimeslotStatus.AT_RISK)
    upkeep = replace(first, id=new_id(), kind=TimeslotKind.MAINTENANCE)
    await harness.database.write(lambda c: timeslots.insert(c, [first, after, at_risk, upkeep], now()))
    assert await harness.findings() == []
    beside = replace(first, id=new_id(), starts_at=first.ends_at, ends_at=first.ends_at + HOUR, lead_seconds=1)
    await harness.database.write(lambda c: timeslots.insert(c, [beside], now()))
    (finding,) = await harness.findings()
    assert finding == Finding("bookings within capacity", "node n1, cpu", "at most 8000", "10000")
