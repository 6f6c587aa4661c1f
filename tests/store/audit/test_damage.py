"""One kind of damage per test: the audit finds it, and the repair restores the previous state or changes nothing."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update

from mooring.model.lifecycle import TaskStatus
from mooring.services.administration.audit import Auditor
from mooring.store.tables import (
    admin_actions,
    device_allocations,
    events,
    holds,
    node_devices,
    node_resources,
    nodes,
    port_allocations,
    resource_allocations,
    status_history,
    tasks,
    tenant_resources,
    workloads,
)
from tests.store.audit.damage import Busy, busy
from tests.store.databases import on_sqlite, slow_on_postgresql
from tests.store.harness import LONG_AGO, Harness

Damage = Callable[[Busy], Awaitable[Any]]
_ledger, _given, _port = resource_allocations.c, device_allocations.c, port_allocations.c


@pytest.fixture
async def cluster(harness: Harness) -> Busy:
    return await busy(harness)


def ledger_of(name: str, **values: Any) -> Damage:
    async def damage(cluster: Busy) -> Any:
        own = _ledger.task_id == (await cluster.task(name)).id
        return update(resource_allocations).where(own).values(values)

    return damage


def lost_ledger_of(name: str, slot: str | None = None) -> Damage:
    async def damage(cluster: Busy) -> Any:
        own = delete(resource_allocations).where(_ledger.task_id == (await cluster.task(name)).id)
        return own if slot is None else own.where(_ledger.slot_name == slot)

    return damage


def invented_ledger_of(name: str) -> Damage:
    async def damage(cluster: Busy) -> Any:
        task = await cluster.task(name)
        return insert(resource_allocations).values(
            task_id=task.id, slot_name="tpu", requested=5, used=5, created_at=task.created_at
        )

    return damage


def task_of(name: str, **values: Any) -> Damage:
    async def damage(cluster: Busy) -> Any:
        own = (await cluster.task(name)).id
        given = {column: value(cluster) if callable(value) else value for column, value in values.items()}
        return update(tasks).where(tasks.c.id == own).values(given)

    return damage


def workload_of(name: str, **values: Any) -> Damage:
    async def damage(cluster: Busy) -> Any:
        return update(workloads).where(workloads.c.id == cluster.workloads[name]).values(values)

    return damage


def plain(statement: Any) -> Damage:
    async def damage(_cluster: Busy) -> Any:
        return statement

    return damage


async def port_of_another(cluster: Busy) -> Any:
    return update(port_allocations).values(task_id=(await cluster.task("web")).id)


async def invented_port(cluster: Busy) -> Any:
    task = await cluster.task("listening")
    return insert(port_allocations).values(node_id=task.node_id, protocol="TCP", port=4444, task_id=task.id)


async def port_of_an_ended_task(cluster: Busy) -> Any:
    task = await cluster.task("done")
    return insert(port_allocations).values(node_id=task.node_id, protocol="TCP", port=4444, task_id=task.id)


async def invented_hold(cluster: Busy) -> Any:
    return update(holds).values(task_id=(await cluster.task("web")).id)


async def hold_elsewhere(cluster: Busy) -> Any:
    return update(holds).values(node_id=cluster.nodes[1])


async def invented_device(cluster: Busy) -> Any:
    task = await cluster.task("web")
    row = {"task_id": task.id, "slot_name": "gpu", "device_index": 0, "node_id": task.node_id, "amount": 1000}
    return insert(device_allocations).values(row)


def devices_of(name: str, **values: Any) -> Damage:
    async def damage(cluster: Busy) -> Any:
        given = {column: value(cluster) if callable(value) else value for column, value in values.items()}
        return update(device_allocations).where(_given.task_id == (await cluster.task(name)).id).values(given)

    return damage


def lost_devices_of(name: str) -> Damage:
    async def damage(cluster: Busy) -> Any:
        return delete(device_allocations).where(_given.task_id == (await cluster.task(name)).id)

    return damage


def second_node(cluster: Busy) -> Any:
    return cluster.nodes[1]


MENDED: dict[str, dict[str, Damage]] = {
    "ledger": {
        "ledger of a running task deleted": lost_ledger_of("web"),
        "ledger row of one slot deleted": lost_ledger_of("gpu", "gpu"),
        "ledger of a held task deleted": lost_ledger_of("held"),
        "ledger of a pending task deleted": lost_ledger_of("waiting"),
        "ledger row invented": invented_ledger_of("web"),
        "freed_at removed from an ended task": ledger_of("done", freed_at=None),
        "freed_at removed from a lost task": ledger_of("gone", freed_at=None),
        "running task freed": ledger_of("web", freed_at=LONG_AGO),
        "requested changed": ledger_of("web", requested=1),
        "used of a running task changed": ledger_of("web", used=7),
        "amounts in the wrong column": ledger_of("web", reserved=_ledger.used, used=0),
        "amounts in two columns": ledger_of("scheduled", used=_ledger.requested),
        "amounts of a pending task": ledger_of("waiting", held=_ledger.requested),
        "amounts of a terminating task": ledger_of("leaving", used=0),
        "amounts of an ended task": ledger_of("done", used=0),
    },
    "timestamps": {
        "used_at removed": ledger_of("web", used_at=None),
        "reserved_at removed": ledger_of("scheduled", reserved_at=None),
        "held_at removed": ledger_of("held", held_at=None),
        "held_at invented": ledger_of("web", held_at=_ledger.created_at),
        "created_at moved": task_of("web", created_at=LONG_AGO),
        "started_at removed": task_of("web", started_at=None),
        "scheduled_at removed": task_of("scheduled", scheduled_at=None),
        "ended_at removed": task_of("done", ended_at=None),
        "freed_at of the task removed": task_of("done", freed_at=None),
        "freed_at of a running task invented": task_of("web", freed_at=LONG_AGO),
    },
    "nodes, statuses and copies": {
        "node_name wrong": task_of("web", node_name="n2"),
        "node_name of a removed node": task_of("web", node_name="nowhere"),
        "node_id wrong": task_of("web", node_id=second_node),
        "node_id removed": task_of("leaving", node_id=None),
        "node of a pending task": task_of("waiting", node_id=second_node, node_name="n2"),
        "status of a running task": task_of("web", status=TaskStatus.TERMINATING),
        "status that ended": task_of("web", status=TaskStatus.FAILED),
        "status of an ended task": task_of("done", status=TaskStatus.RUNNING),
        "requested_slots wrong": task_of("web", requested_slots={"cpu": 1}),
        "requested_slots no object": task_of("web", requested_slots=[1]),
        "occupied_slots empty": task_of("web", occupied_slots={}),
        "occupied_slots of an ended task": task_of("done", occupied_slots={"cpu": 1000}),
    },
    "ports": {
        "ports removed from the task": task_of("listening", ports=None),
        "ports of the task wrong": task_of("listening", ports=[["TCP", 1]]),
        "ports of a task without any": task_of("web", ports=[["TCP", 99]]),
        "ports of an ended task": task_of("done", ports=[["TCP", 99]]),
        "port rows deleted": plain(delete(port_allocations)),
        "one port row deleted": plain(delete(port_allocations).where(_port.port == 8080)),
        "port row invented": invented_port,
        "port row of an ended task": port_of_an_ended_task,
        "port rows of another task": port_of_another,
    },
    "devices": {
        "devices of the task removed": task_of("gpu", devices=None),
        "devices of the task wrong": task_of("gpu", devices={"gpu": [[0, 1000]]}),
        "device row deleted": lost_devices_of("gpu"),
        "device row of a held task deleted": lost_devices_of("held"),
        "device row freed": devices_of("gpu", freed_at=LONG_AGO),
        "device row of an ended task unfreed": devices_of("trained", freed_at=None),
        "device row of another amount": devices_of("gpu", amount=500),
        "device row of another amount, ended": devices_of("trained", amount=500),
        "device row of another index": devices_of("gpu", device_index=0),
        "device row of another node": devices_of("gpu", node_id=second_node),
        "device row invented": invented_device,
    },
    "holds": {
        "hold deleted": plain(delete(holds)),
        "hold of another task": invented_hold,
        "hold of another node": hold_elsewhere,
    },
    "workloads": {
        "workload status of the past": workload_of("web", status="PENDING"),
        "workload status of an end": workload_of("web", status="FAILED"),
        "workload status after its end": workload_of("done", status="RUNNING"),
        "workload ended otherwise": workload_of("done", status="CANCELLED"),
        "workload without an end": workload_of("done", ended_at=None),
        "workload with an end": workload_of("web", ended_at=LONG_AGO),
        "workload request wrong": workload_of("web", requested_slots={"cpu": 1}),
        "workload request of a pending one": workload_of("waiting", requested_slots={}),
    },
    "counters": {
        "node counter deleted": plain(delete(node_resources).where(node_resources.c.slot_name == "cpu")),
        "all node counters deleted": plain(delete(node_resources)),
        "capacity wrong": plain(update(node_resources).values(capacity=5)),
        "allocatable wrong": plain(update(node_resources).values(allocatable=10**12)),
        "node counters wrong": plain(update(node_resources).values(used=5, held=5, reserved=5, leaving=5)),
        "device counter wrong": plain(update(node_devices).values(taken=5)),
        "device counter deleted": plain(delete(node_devices).where(node_devices.c.device_index == 1)),
        "tenant counters wrong": plain(update(tenant_resources).values(used=5, reserved=5)),
        "tenant counters deleted": plain(delete(tenant_resources)),
    },
}


@slow_on_postgresql
@pytest.mark.parametrize("group", MENDED)
async def test_damage_is_found_reported_and_repaired_to_the_previous_state(cluster: Busy, group: str):
    for kind, damage in MENDED[group].items():
        await _is_mended(cluster, kind, damage)


async def _is_mended(cluster: Busy, kind: str, damage: Damage) -> None:
    harness, before = cluster.harness, await cluster.state()
    statement = await damage(cluster)
    await harness.execute(statement)
    damaged = await cluster.state()
    assert damaged != before, kind
    auditor = Auditor(harness.database)
    found = await auditor.audit()
    assert found.findings, kind
    assert not [finding for finding in found.findings if finding.ambiguous], kind

    planned = await auditor.repair(harness.principal, dry_run=True)
    assert planned.changes, kind
    assert (planned.clean, planned.repaired) == (False, 0)
    assert await cluster.state() == damaged

    repaired = await auditor.repair(harness.principal)
    assert (repaired.clean, repaired.findings) == (True, []), kind
    unstable = {"holds"} if "hold" in kind else set[str]()
    assert [change for change in repaired.changes if change.table not in unstable] == [
        change for change in planned.changes if change.table not in unstable
    ]
    after = await cluster.state()
    if kind == "device counter deleted" or kind == "tenant counters deleted":
        # Rows that nothing was taken from leave no trace: an agent names its devices again when it connects.
        before, after = ({name: _in_use(rows) for name, rows in state.items()} for state in (before, after))
    assert after == before, kind
    assert (await auditor.repair(harness.principal)).changes == []


def _in_use(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    counted = {"taken", "used", "reserved"}
    return [row for row in rows if not counted & row.keys() or any(row[name] for name in counted & row.keys())]


AMBIGUOUS: dict[str, Damage] = {
    "a picked port that rows and task name differently": task_of("listening", ports=[["TCP", 8080], ["TCP", 7]]),
    "timestamps of a task that only it and the ledger have": task_of("waiting", created_at=LONG_AGO),
}


@pytest.mark.parametrize("kind", AMBIGUOUS)
async def test_a_contradiction_without_a_majority_is_reported_and_left_unchanged(cluster: Busy, kind: str):
    harness = cluster.harness
    task = await cluster.task("waiting")
    # The workload is no source of tasks that were made later.
    later = (
        update(workloads).where(workloads.c.id == task.workload_id).values(created_at=task.created_at + timedelta(1))
    )
    await harness.execute(later)
    statement = await AMBIGUOUS[kind](cluster)
    await harness.execute(statement)
    damaged = await cluster.state()
    repaired = await Auditor(harness.database).repair(harness.principal)
    assert (repaired.clean, repaired.changes) == (False, [])
    assert [finding.ambiguous for finding in repaired.findings] == [True]
    assert await cluster.state() == damaged


async def test_counters_of_an_unresolved_task_are_left_unchanged(cluster: Busy):
    harness, task = cluster.harness, await cluster.task("scheduled")
    for statement in (
        delete(events).where(events.c.object_id == task.id),
        update(tasks).where(tasks.c.id == task.id).values(node_name="n1"),
        update(node_resources).values(reserved=node_resources.c.reserved + 7),
    ):
        await harness.execute(statement)
    damaged = await cluster.state()
    report = await Auditor(harness.database).repair(harness.principal)
    assert any(finding.ambiguous for finding in report.findings)
    assert await cluster.state() == damaged


@on_sqlite
async def test_a_deleted_ledger_of_a_running_task_never_frees_its_node(cluster: Busy):
    harness, task = cluster.harness, await cluster.task("web")
    before = await harness.counters(task.node_id)
    statement = await lost_ledger_of("web")(cluster)
    await harness.execute(statement)
    await harness.repair()
    assert await harness.counters(task.node_id) == before
    assert (await harness.ledger(task.id))["cpu"].used == 1000


@on_sqlite
async def test_every_correction_is_recorded_with_its_reason(cluster: Busy):
    harness, task = cluster.harness, await cluster.task("web")
    statement = await task_of("web", status=TaskStatus.TERMINATING, started_at=None)(cluster)
    await harness.execute(statement)
    await Auditor(harness.database).repair(harness.principal)
    actions = await harness.rows(select(admin_actions).where(admin_actions.c.action == "repair"))
    recorded = {(row.object, *sorted(row.before)): row for row in actions}
    status = recorded[f"tasks {task.id}", "status"]
    assert (status.username, status.before, status.after["status"]) == (
        harness.principal.username,
        {"status": "TERMINATING"},
        "RUNNING",
    )
    assert "status_history" in status.after["why"]
    assert (f"tasks {task.id}", "started_at") in recorded
    noted = await harness.rows(select(status_history).where(status_history.c.actor.like("repair:%")))
    assert [(row.object_id, row.old_status, row.new_status) for row in noted] == [(task.id, "TERMINATING", "RUNNING")]
    assert [event.kind for event in await harness.feed(task.id)][-1] == "repaired"


@on_sqlite
async def test_the_capacity_of_a_node_without_any_source_is_left_unchanged(cluster: Busy):
    """The node gets no more tasks until its agent connects again."""
    harness = cluster.harness
    for statement in (update(nodes).values(capacity=None), delete(node_resources)):
        await harness.execute(statement)
    report = await Auditor(harness.database).repair(harness.principal)
    assert report.clean
    rows = await harness.rows(select(node_resources))
    assert rows
    assert all(row.allocatable == row.held + row.reserved + row.used for row in rows)
