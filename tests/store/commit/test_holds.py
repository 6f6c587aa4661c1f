"""Holds, while agents prepare or victims leave: they become placements, or are released without a trace."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, update

from mooring.clock import now
from mooring.model.errors import Conflict
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.holds import Hold, Purpose
from mooring.model.policy.pools import Binding
from mooring.model.policy.preemption import Preemption, PreemptionMode
from mooring.model.reasons import Reason
from mooring.model.resources.devices import DeviceShare
from mooring.model.workloads.constraints import Constraints, HostPort
from mooring.model.workloads.workload import Kind
from mooring.services.administration.nodes import NodeAdmin
from mooring.store.commit import holds
from mooring.store.commit.status_changes import Applied
from mooring.store.tables import device_allocations, port_allocations, tasks, users, workloads
from tests.store.databases import on_sqlite
from tests.store.harness import LONG_AGO, Harness, decision_on

T = TaskStatus
PREEMPTION = Preemption()


async def admit(harness: Harness, workload_id: UUID, *, after: float = 0) -> Applied | None:
    at = now() + timedelta(seconds=after)
    return await harness.database.write(lambda c: holds.admit(c, workload_id, actor="test", now=at))


async def release(harness: Harness, workload_id: UUID) -> Applied:
    reason = Reason("hold-expired", "Its capacity was held for too long")
    return await harness.database.write(lambda c: holds.release(c, workload_id, reason, actor="test", now=now()))


async def stored(harness: Harness, workload_id: UUID) -> list[Hold]:
    async with harness.database.read() as connection:
        return await holds.by_workload(connection, workload_id)


async def contents(harness: Harness, task_id: UUID) -> tuple[Any, ...]:
    """Return all records of a task except its version and its reason."""
    task = dict((await harness.task(task_id))._mapping)
    ledger = [tuple(row) for row in (await harness.ledger(task_id)).values()]
    return ({name: value for name, value in task.items() if name not in ("version", "reason")}, ledger)


# --- two phases ---


async def test_a_hold_becomes_a_placement_when_it_is_admitted(harness: Harness):
    node_id = await harness.node("n1", slots={"gpu": 2})
    workload_id = await harness.submit("w", slots={"gpu": 1}, constraints=Constraints(host_ports=(HostPort(8080),)))
    wish = await decision_on(harness, workload_id, [node_id], devices=[DeviceShare("gpu", 1, 1000)])
    result = await harness.commit(wish, mode=Binding.TWO_PHASE)
    assert [d.workload.id for d in result.bound] == [workload_id]
    [task] = await harness.tasks(workload_id)
    [hold] = await stored(harness, workload_id)
    assert (task.status, task.devices, task.ports) == ("RESERVED", {"gpu": [[1, 1000]]}, [["TCP", 8080]])
    assert (hold.purpose, hold.node_id, hold.task_id) == (Purpose.PREPARE, node_id, task.id)
    assert await harness.counters(node_id) == (1000, 0, 0)
    assert await harness.taken(node_id) == {0: 0, 1: 1000}
    assert await harness.findings() == []

    assert await admit(harness, workload_id) is not None
    assert await harness.statuses(workload_id) == ["SCHEDULED"]
    assert (await harness.workload(workload_id)).status == "SCHEDULED"
    assert await stored(harness, workload_id) == []
    assert await harness.counters(node_id) == (0, 1000, 0)
    assert await harness.taken(node_id) == {0: 0, 1: 1000}
    assert await harness.findings() == []


async def test_releasing_a_hold_restores_the_task(harness: Harness):
    node_id = await harness.node("n1", slots={"gpu": 1})
    workload_id = await harness.submit("w", slots={"gpu": 1}, constraints=Constraints(host_ports=(HostPort(8080),)))
    [task] = await harness.tasks(workload_id)
    before = await contents(harness, task.id)
    wish = await decision_on(harness, workload_id, [node_id], devices=[DeviceShare("gpu", 0, 1000)])
    await harness.commit(wish, mode=Binding.TWO_PHASE)

    await release(harness, workload_id)
    assert await contents(harness, task.id) == before
    assert await harness.counters(node_id) == (0, 0, 0)
    assert await harness.taken(node_id) == {0: 0}
    for table in (device_allocations, port_allocations):
        assert await harness.rows(select(table)) == []
    assert (await harness.workload(workload_id)).reason["code"] == "hold-expired"
    assert await harness.findings() == []
    # The same place can be had again.
    again = await decision_on(harness, workload_id, [node_id], devices=[DeviceShare("gpu", 0, 1000)])
    assert len((await harness.commit(again)).bound) == 1
    assert await harness.findings() == []


@on_sqlite
async def test_releasing_a_hold_twice_changes_nothing(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("w")
    await harness.commit(await decision_on(harness, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    assert len((await release(harness, workload_id)).tasks) == 1
    assert (await release(harness, workload_id)).tasks == []


@on_sqlite
async def test_unknown_and_expired_holds_are_refused_with_their_own_codes(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("w")
    with pytest.raises(Conflict) as unknown:
        await admit(harness, workload_id)
    await harness.commit(await decision_on(harness, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    with pytest.raises(Conflict) as expired:
        await admit(harness, workload_id, after=60)
    assert (unknown.value.code, expired.value.code) == ("hold-unknown", "hold-expired")
    assert await harness.statuses(workload_id) == ["RESERVED"]


@on_sqlite
async def test_expired_holds_are_listed(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("w", replicas=2)
    await harness.commit(await decision_on(harness, workload_id, [node_id, node_id]), mode=Binding.TWO_PHASE)
    async with harness.database.read() as connection:
        held = await holds.by_workload(connection, workload_id)
        [waiting] = await holds.held_workloads(connection)
    assert [hold.is_expired(now()) for hold in held] == [False, False]
    assert all(hold.is_expired(hold.expires_at) for hold in held)
    assert (waiting.workload_id, waiting.expires_at) == (workload_id, held[0].expires_at)


@on_sqlite
async def test_a_node_that_accepts_no_more_tasks_breaks_the_hold(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("w")
    await harness.commit(await decision_on(harness, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    await harness.drain(node_id)
    with pytest.raises(Conflict) as broken:
        await admit(harness, workload_id)
    assert broken.value.code == "hold-broken"


@on_sqlite
async def test_stopping_a_workload_releases_its_hold(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("w")
    await harness.commit(await decision_on(harness, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    await harness.stop(workload_id)
    assert await harness.statuses(workload_id) == ["CANCELLED"]
    assert await stored(harness, workload_id) == []
    assert await harness.counters(node_id) == (0, 0, 0)
    assert await harness.findings() == []


@on_sqlite
@pytest.mark.parametrize("end", ["lost", "removed", "drained"])
async def test_a_held_task_is_pending_again_when_its_node_is_lost(harness: Harness, end: str):
    node_id = await harness.node("n1", seen_at=LONG_AGO)
    workload_id = await harness.submit("w")
    await harness.commit(await decision_on(harness, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    [task] = await harness.tasks(workload_id)
    if end == "removed":
        await NodeAdmin(harness.database, simulation_allowed=False).remove(harness.principal, "n1", True)
    elif end == "drained":
        await harness.drain(node_id)
        await harness.draining_loop().once()
    else:
        loop = harness.nodes_loop()
        loop._began_at = LONG_AGO
        await loop.once()
    [again] = await harness.tasks(workload_id)
    assert (again.id, again.status, again.node_id) == (task.id, "PENDING", None)
    assert await harness.findings() == []


# --- preemption ---


async def full_node(harness: Harness, name: str = "n1", **more: Any) -> tuple[UUID, Any]:
    """A node of 4 cores, all used by a running job."""
    node_id = await harness.node(name, cpu=4, **more)
    victim_id = await harness.submit(f"victim-{name}", kind=Kind.SESSION, cpu=4)
    await harness.commit(await decision_on(harness, victim_id, [node_id]))
    [task] = await harness.tasks(victim_id)
    await harness.move(task, T.RUNNING)
    return node_id, (await harness.tasks(victim_id))[0]


@pytest.mark.parametrize("mode", list(PreemptionMode))
async def test_a_preemptor_is_admitted_when_its_victims_have_left(harness: Harness, mode: PreemptionMode):
    node_id, victim = await full_node(harness)
    urgent = await harness.submit("urgent", cpu=3)
    wish = await decision_on(harness, urgent, [node_id], victims=[victim])
    result = await harness.commit(wish, preemption=Preemption(mode=mode))
    assert [d.workload.id for d in result.bound] == [urgent]
    left = await harness.task(victim.id)
    requeue = mode is PreemptionMode.REQUEUE
    assert (left.status, left.preempted_by, left.requeue) == ("TERMINATING", urgent, requeue)
    assert (left.reason["code"], left.reason["message"]) == (
        "preempted",
        "Preempted by workload 'urgent' with priority 10",
    )
    assert [hold.purpose for hold in await stored(harness, urgent)] == [Purpose.PREEMPT]
    assert await harness.counters(node_id) == (3000, 0, 4000)
    assert await harness.leaving(node_id) == 4000
    assert await harness.findings() == []

    # Not before the victim is gone.
    assert await admit(harness, urgent) is None
    await harness.move(victim, T.CANCELLED)
    assert await harness.leaving(node_id) == 0
    assert await harness.counters(node_id) == (3000, 0, 0)
    assert await admit(harness, urgent) is not None
    assert await harness.counters(node_id) == (0, 3000, 0)
    workload = await harness.workload(victim.workload_id)
    assert (workload.status, workload.reason["code"]) == ("PENDING" if requeue else "CANCELLED", "preempted")
    assert await harness.findings() == []


@on_sqlite
async def test_the_reason_of_a_victim_does_not_name_the_workload_of_another_user(harness: Harness):
    node_id, victim = await full_node(harness)
    [admin] = await harness.rows(select(users))
    other = dict(admin._mapping) | {"id": UUID(int=7), "name": "other"}
    await harness.database.write(lambda c: c.execute(users.insert().values(other)))
    owned = update(workloads).where(workloads.c.id == victim.workload_id).values(user_id=UUID(int=7))
    await harness.database.write(lambda c: c.execute(owned))
    urgent = await harness.submit("urgent", cpu=3)
    await harness.commit(await decision_on(harness, urgent, [node_id], victims=[victim]), preemption=PREEMPTION)
    assert (await harness.task(victim.id)).reason["message"] == "Preempted by a workload with priority 10"


@on_sqlite
async def test_a_victim_that_is_gone_makes_the_whole_decision_a_conflict(harness: Harness):
    node_id, victim = await full_node(harness)
    other_id, other = await full_node(harness, "n2")
    urgent = await harness.submit("urgent", cpu=3, replicas=2, gang=True)
    wish = await decision_on(harness, urgent, [node_id, other_id], victims=[victim, other])
    await harness.move(victim, T.SUCCEEDED)
    result = await harness.commit(wish, preemption=PREEMPTION)
    assert [why for _, why in result.conflicts] == ["a victim has ended or changed"]
    assert (await harness.task(other.id)).status == "RUNNING"
    assert await harness.statuses(urgent) == ["PENDING", "PENDING"]


@on_sqlite
async def test_a_victim_has_only_one_preemptor(harness: Harness):
    node_id, victim = await full_node(harness)
    first, second = await harness.submit("first", cpu=2), await harness.submit("second", cpu=2)
    wishes = [await decision_on(harness, workload, [node_id], victims=[victim]) for workload in (first, second)]
    result = await harness.commit(*wishes, preemption=PREEMPTION)
    assert [d.workload.id for d in result.bound] == [first]
    assert [why for _, why in result.conflicts] == ["a victim is preempted by another workload"]


@on_sqlite
async def test_only_a_preemptor_may_count_on_leaving_capacity(harness: Harness):
    node_id, victim = await full_node(harness)
    urgent, plain = await harness.submit("urgent", cpu=3), await harness.submit("plain", cpu=1)
    await harness.commit(await decision_on(harness, urgent, [node_id], victims=[victim]), preemption=PREEMPTION)
    result = await harness.commit(await decision_on(harness, plain, [node_id]))
    assert [why for _, why in result.conflicts] == ["node n1 has too little cpu left"]
    await harness.move(victim, T.CANCELLED)
    assert len((await harness.commit(await decision_on(harness, plain, [node_id]))).bound) == 1
    assert await harness.findings() == []


@on_sqlite
async def test_nothing_is_preempted_in_a_pool_without_preemption(harness: Harness):
    node_id, victim = await full_node(harness)
    urgent = await harness.submit("urgent", cpu=3)
    result = await harness.commit(await decision_on(harness, urgent, [node_id], victims=[victim]))
    assert [why for _, why in result.conflicts] == ["pool default allows no preemption"]


@on_sqlite
async def test_the_earliest_preemptor_is_admitted_first(harness: Harness):
    """Two preemptors of 2 cores each on 4 cores: when one victim of 2 has left, only the first fits."""
    node_id = await harness.node("n1", cpu=4)
    victims = []
    for name in ("one", "two"):
        workload_id = await harness.submit(name, kind=Kind.SESSION, cpu=2)
        await harness.commit(await decision_on(harness, workload_id, [node_id]))
        victims += await harness.tasks(workload_id)
    first, second = await harness.submit("first", cpu=2), await harness.submit("second", cpu=2)
    for workload, victim in zip((first, second), victims, strict=True):
        await harness.commit(await decision_on(harness, workload, [node_id], victims=[victim]), preemption=PREEMPTION)
    await harness.move(victims[1], T.CANCELLED)
    assert await admit(harness, second) is None
    assert await admit(harness, first) is not None
    assert await admit(harness, second) is None
    await harness.move(victims[0], T.CANCELLED)
    assert await admit(harness, second) is not None
    assert await harness.findings() == []


async def test_a_preemptor_gets_the_devices_and_ports_of_its_victim_when_it_has_left(harness: Harness):
    node_id = await harness.node("n1", slots={"gpu": 1})
    wants: dict[str, Any] = {"slots": {"gpu": 1}, "constraints": Constraints(host_ports=(HostPort(8080),))}
    share = [DeviceShare("gpu", 0, 1000)]
    victim_id = await harness.submit("victim", kind=Kind.SESSION, **wants)
    await harness.commit(await decision_on(harness, victim_id, [node_id], devices=share))
    [victim] = await harness.tasks(victim_id)
    plain = await harness.submit("plain", slots={"gpu": 0})
    refused = await harness.commit(await decision_on(harness, plain, [node_id], devices=share))
    assert [why for _, why in refused.conflicts] == ["device 0 of node n1 has too little gpu left"]

    urgent = await harness.submit("urgent", **wants)
    wish = await decision_on(harness, urgent, [node_id], devices=share, victims=[victim])
    assert len((await harness.commit(wish, preemption=PREEMPTION)).bound) == 1
    assert await harness.taken(node_id) == {0: 2000}
    assert [row.task_id for row in await harness.rows(select(port_allocations))] == [victim.id]
    assert await harness.findings() == []
    assert await admit(harness, urgent) is None

    await harness.move(victim, T.CANCELLED)
    assert await admit(harness, urgent) is not None
    assert await harness.taken(node_id) == {0: 1000}
    [task] = await harness.tasks(urgent)
    assert [row.task_id for row in await harness.rows(select(port_allocations))] == [task.id]
    freed = await harness.rows(select(device_allocations).where(device_allocations.c.freed_at.is_not(None)))
    assert [row.task_id for row in freed] == [victim.id]
    assert (await harness.rows(select(tasks.c.devices).where(tasks.c.id == victim.id)))[0].devices is None
    assert await harness.findings() == []


@on_sqlite
async def test_a_held_victim_is_pending_again(harness: Harness):
    node_id = await harness.node("n1", cpu=4)
    held, urgent = await harness.submit("held", cpu=4), await harness.submit("urgent", cpu=4)
    await harness.commit(await decision_on(harness, held, [node_id]), mode=Binding.TWO_PHASE)
    [victim] = await harness.tasks(held)
    await harness.commit(await decision_on(harness, urgent, [node_id], victims=[victim]), preemption=PREEMPTION)
    assert await harness.statuses(held) == ["PENDING"]
    assert await harness.counters(node_id) == (4000, 0, 0)
    assert await admit(harness, urgent) is not None
    assert await harness.findings() == []
