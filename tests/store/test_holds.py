"""Places that are kept, for agents to prepare or victims to leave: they become placements, or go without a trace."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, update

from mooring.clock import now
from mooring.intake.nodes import NodeAdmin
from mooring.model.constraints import Constraints, HostPort
from mooring.model.devices import DeviceShare
from mooring.model.errors import Conflict
from mooring.model.holds import Hold, Purpose
from mooring.model.lifecycle import TaskStatus
from mooring.model.pools import Binding
from mooring.model.preemption import Preemption, PreemptionMode
from mooring.model.reasons import Reason
from mooring.model.workloads import Kind
from mooring.store import holds
from mooring.store.changes import Applied
from mooring.store.tables import device_allocations, port_allocations, tasks, users, workloads
from tests.store.databases import on_sqlite
from tests.store.harbour import LONG_AGO, Harbour, decision_on

T = TaskStatus
PREEMPTION = Preemption()


async def admit(harbour: Harbour, workload_id: UUID, *, after: float = 0) -> Applied | None:
    at = now() + timedelta(seconds=after)
    return await harbour.database.write(lambda c: holds.admit(c, workload_id, actor="test", now=at))


async def release(harbour: Harbour, workload_id: UUID) -> Applied:
    reason = Reason("hold-expired", "Its place was kept for too long")
    return await harbour.database.write(lambda c: holds.release(c, workload_id, reason, actor="test", now=now()))


async def kept(harbour: Harbour, workload_id: UUID) -> list[Hold]:
    async with harbour.database.read() as connection:
        return await holds.by_workload(connection, workload_id)


async def contents(harbour: Harbour, task_id: UUID) -> tuple[Any, ...]:
    """What is kept about a task beside its version and why it waits."""
    task = dict((await harbour.task(task_id))._mapping)
    ledger = [tuple(row) for row in (await harbour.ledger(task_id)).values()]
    return ({name: value for name, value in task.items() if name not in ("version", "reason")}, ledger)


# --- two phases ---


async def test_a_place_is_kept_and_then_becomes_a_placement(harbour: Harbour):
    node_id = await harbour.node("n1", slots={"gpu": 2})
    workload_id = await harbour.submit("w", slots={"gpu": 1}, constraints=Constraints(host_ports=(HostPort(8080),)))
    wish = await decision_on(harbour, workload_id, [node_id], devices=[DeviceShare("gpu", 1, 1000)])
    result = await harbour.commit(wish, mode=Binding.TWO_PHASE)
    assert [d.workload.id for d in result.bound] == [workload_id]
    [task] = await harbour.tasks(workload_id)
    [hold] = await kept(harbour, workload_id)
    assert (task.status, task.devices, task.ports) == ("RESERVED", {"gpu": [[1, 1000]]}, [["TCP", 8080]])
    assert (hold.purpose, hold.node_id, hold.task_id) == (Purpose.PREPARE, node_id, task.id)
    assert await harbour.counters(node_id) == (1000, 0, 0)
    assert await harbour.taken(node_id) == {0: 0, 1: 1000}
    assert await harbour.findings() == []

    assert await admit(harbour, workload_id) is not None
    assert await harbour.statuses(workload_id) == ["SCHEDULED"]
    assert (await harbour.workload(workload_id)).status == "SCHEDULED"
    assert await kept(harbour, workload_id) == []
    assert await harbour.counters(node_id) == (0, 1000, 0)
    assert await harbour.taken(node_id) == {0: 0, 1: 1000}
    assert await harbour.findings() == []


async def test_a_hold_that_is_given_up_leaves_the_task_as_it_was(harbour: Harbour):
    node_id = await harbour.node("n1", slots={"gpu": 1})
    workload_id = await harbour.submit("w", slots={"gpu": 1}, constraints=Constraints(host_ports=(HostPort(8080),)))
    [task] = await harbour.tasks(workload_id)
    before = await contents(harbour, task.id)
    wish = await decision_on(harbour, workload_id, [node_id], devices=[DeviceShare("gpu", 0, 1000)])
    await harbour.commit(wish, mode=Binding.TWO_PHASE)

    await release(harbour, workload_id)
    assert await contents(harbour, task.id) == before
    assert await harbour.counters(node_id) == (0, 0, 0)
    assert await harbour.taken(node_id) == {0: 0}
    for table in (device_allocations, port_allocations):
        assert await harbour.rows(select(table)) == []
    assert (await harbour.workload(workload_id)).reason["code"] == "hold-expired"
    assert await harbour.findings() == []
    # The same place can be had again.
    again = await decision_on(harbour, workload_id, [node_id], devices=[DeviceShare("gpu", 0, 1000)])
    assert len((await harbour.commit(again)).bound) == 1
    assert await harbour.findings() == []


@on_sqlite
async def test_giving_up_twice_changes_nothing(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("w")
    await harbour.commit(await decision_on(harbour, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    assert len((await release(harbour, workload_id)).tasks) == 1
    assert (await release(harbour, workload_id)).tasks == []


@on_sqlite
async def test_an_unknown_and_an_expired_hold_are_refused_each_with_its_code(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("w")
    with pytest.raises(Conflict) as unknown:
        await admit(harbour, workload_id)
    await harbour.commit(await decision_on(harbour, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    with pytest.raises(Conflict) as expired:
        await admit(harbour, workload_id, after=60)
    assert (unknown.value.code, expired.value.code) == ("hold-unknown", "hold-expired")
    assert await harbour.statuses(workload_id) == ["RESERVED"]


@on_sqlite
async def test_holds_whose_time_is_over_are_found(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("w", replicas=2)
    await harbour.commit(await decision_on(harbour, workload_id, [node_id, node_id]), mode=Binding.TWO_PHASE)
    async with harbour.database.read() as connection:
        held = await holds.by_workload(connection, workload_id)
        [waiting] = await holds.waiting(connection)
    assert [hold.is_expired(now()) for hold in held] == [False, False]
    assert all(hold.is_expired(hold.expires_at) for hold in held)
    assert (waiting.workload_id, waiting.expires_at) == (workload_id, held[0].expires_at)


@on_sqlite
async def test_a_node_that_takes_nothing_more_breaks_the_hold(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("w")
    await harbour.commit(await decision_on(harbour, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    await harbour.drain(node_id)
    with pytest.raises(Conflict) as broken:
        await admit(harbour, workload_id)
    assert broken.value.code == "hold-broken"


@on_sqlite
async def test_a_workload_that_is_stopped_gives_its_place_back(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("w")
    await harbour.commit(await decision_on(harbour, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    await harbour.stop(workload_id)
    assert await harbour.statuses(workload_id) == ["CANCELLED"]
    assert await kept(harbour, workload_id) == []
    assert await harbour.counters(node_id) == (0, 0, 0)
    assert await harbour.findings() == []


@on_sqlite
@pytest.mark.parametrize("end", ["lost", "removed", "drained"])
async def test_a_task_whose_place_was_only_kept_waits_again_when_the_node_goes(harbour: Harbour, end: str):
    node_id = await harbour.node("n1", seen_at=LONG_AGO)
    workload_id = await harbour.submit("w")
    await harbour.commit(await decision_on(harbour, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    [task] = await harbour.tasks(workload_id)
    if end == "removed":
        await NodeAdmin(harbour.database, simulation_allowed=False).remove(harbour.principal, "n1", True)
    elif end == "drained":
        await harbour.drain(node_id)
        await harbour.draining_loop().once()
    else:
        loop = harbour.nodes_loop()
        loop._began_at = LONG_AGO
        await loop.once()
    [again] = await harbour.tasks(workload_id)
    assert (again.id, again.status, again.node_id) == (task.id, "PENDING", None)
    assert await harbour.findings() == []


# --- preemption ---


async def full_node(harbour: Harbour, name: str = "n1", **more: Any) -> tuple[UUID, Any]:
    """A node of 4 cores that a running job has wholly."""
    node_id = await harbour.node(name, cpu=4, **more)
    victim_id = await harbour.submit(f"victim-{name}", kind=Kind.SESSION, cpu=4)
    await harbour.commit(await decision_on(harbour, victim_id, [node_id]))
    [task] = await harbour.tasks(victim_id)
    await harbour.move(task, T.RUNNING)
    return node_id, (await harbour.tasks(victim_id))[0]


@pytest.mark.parametrize("mode", list(PreemptionMode))
async def test_victims_leave_and_the_preemptor_has_their_place_when_they_are_gone(
    harbour: Harbour, mode: PreemptionMode
):
    node_id, victim = await full_node(harbour)
    urgent = await harbour.submit("urgent", cpu=3)
    wish = await decision_on(harbour, urgent, [node_id], victims=[victim])
    result = await harbour.commit(wish, preemption=Preemption(mode=mode))
    assert [d.workload.id for d in result.bound] == [urgent]
    left = await harbour.task(victim.id)
    requeue = mode is PreemptionMode.REQUEUE
    assert (left.status, left.preempted_by, left.requeue) == ("TERMINATING", urgent, requeue)
    assert (left.reason["code"], left.reason["message"]) == (
        "preempted",
        "Makes room for workload 'urgent' of priority 10",
    )
    assert [hold.purpose for hold in await kept(harbour, urgent)] == [Purpose.PREEMPT]
    assert await harbour.counters(node_id) == (3000, 0, 4000)
    assert await harbour.leaving(node_id) == 4000
    assert await harbour.findings() == []

    # Not before the victim is gone.
    assert await admit(harbour, urgent) is None
    await harbour.move(victim, T.CANCELLED)
    assert await harbour.leaving(node_id) == 0
    assert await harbour.counters(node_id) == (3000, 0, 0)
    assert await admit(harbour, urgent) is not None
    assert await harbour.counters(node_id) == (0, 3000, 0)
    workload = await harbour.workload(victim.workload_id)
    assert (workload.status, workload.reason["code"]) == ("PENDING" if requeue else "CANCELLED", "preempted")
    assert await harbour.findings() == []


@on_sqlite
async def test_a_victim_of_another_user_is_not_told_whose_workload_it_was(harbour: Harbour):
    node_id, victim = await full_node(harbour)
    [admin] = await harbour.rows(select(users))
    other = dict(admin._mapping) | {"id": UUID(int=7), "name": "other"}
    await harbour.database.write(lambda c: c.execute(users.insert().values(other)))
    owned = update(workloads).where(workloads.c.id == victim.workload_id).values(user_id=UUID(int=7))
    await harbour.database.write(lambda c: c.execute(owned))
    urgent = await harbour.submit("urgent", cpu=3)
    await harbour.commit(await decision_on(harbour, urgent, [node_id], victims=[victim]), preemption=PREEMPTION)
    assert (await harbour.task(victim.id)).reason["message"] == "Makes room for a workload of priority 10"


@on_sqlite
async def test_a_victim_that_is_gone_makes_the_whole_decision_a_conflict(harbour: Harbour):
    node_id, victim = await full_node(harbour)
    other_id, other = await full_node(harbour, "n2")
    urgent = await harbour.submit("urgent", cpu=3, replicas=2, gang=True)
    wish = await decision_on(harbour, urgent, [node_id, other_id], victims=[victim, other])
    await harbour.move(victim, T.SUCCEEDED)
    result = await harbour.commit(wish, preemption=PREEMPTION)
    assert [why for _, why in result.conflicts] == ["a task that was to make room is gone or has changed"]
    assert (await harbour.task(other.id)).status == "RUNNING"
    assert await harbour.statuses(urgent) == ["PENDING", "PENDING"]


@on_sqlite
async def test_a_victim_makes_room_for_one_only(harbour: Harbour):
    node_id, victim = await full_node(harbour)
    first, second = await harbour.submit("first", cpu=2), await harbour.submit("second", cpu=2)
    wishes = [await decision_on(harbour, workload, [node_id], victims=[victim]) for workload in (first, second)]
    result = await harbour.commit(*wishes, preemption=PREEMPTION)
    assert [d.workload.id for d in result.bound] == [first]
    assert [why for _, why in result.conflicts] == ["a task that was to make room makes room for another"]


@on_sqlite
async def test_only_a_preemptor_counts_on_what_leaves(harbour: Harbour):
    node_id, victim = await full_node(harbour)
    urgent, plain = await harbour.submit("urgent", cpu=3), await harbour.submit("plain", cpu=1)
    await harbour.commit(await decision_on(harbour, urgent, [node_id], victims=[victim]), preemption=PREEMPTION)
    result = await harbour.commit(await decision_on(harbour, plain, [node_id]))
    assert [why for _, why in result.conflicts] == ["node n1 has too little cpu left"]
    await harbour.move(victim, T.CANCELLED)
    assert len((await harbour.commit(await decision_on(harbour, plain, [node_id]))).bound) == 1
    assert await harbour.findings() == []


@on_sqlite
async def test_without_the_pools_leave_nobody_has_to_go(harbour: Harbour):
    node_id, victim = await full_node(harbour)
    urgent = await harbour.submit("urgent", cpu=3)
    result = await harbour.commit(await decision_on(harbour, urgent, [node_id], victims=[victim]))
    assert [why for _, why in result.conflicts] == ["pool default allows no preemption"]


@on_sqlite
async def test_who_came_first_is_admitted_first(harbour: Harbour):
    """Two preemptors of 2 cores each on 4; when one victim of 2 is gone there is room for the first alone."""
    node_id = await harbour.node("n1", cpu=4)
    victims = []
    for name in ("one", "two"):
        workload_id = await harbour.submit(name, kind=Kind.SESSION, cpu=2)
        await harbour.commit(await decision_on(harbour, workload_id, [node_id]))
        victims += await harbour.tasks(workload_id)
    first, second = await harbour.submit("first", cpu=2), await harbour.submit("second", cpu=2)
    for workload, victim in zip((first, second), victims, strict=True):
        await harbour.commit(await decision_on(harbour, workload, [node_id], victims=[victim]), preemption=PREEMPTION)
    await harbour.move(victims[1], T.CANCELLED)
    assert await admit(harbour, second) is None
    assert await admit(harbour, first) is not None
    assert await admit(harbour, second) is None
    await harbour.move(victims[0], T.CANCELLED)
    assert await admit(harbour, second) is not None
    assert await harbour.findings() == []


async def test_devices_and_ports_of_a_victim_are_the_preemptors_when_it_is_gone(harbour: Harbour):
    node_id = await harbour.node("n1", slots={"gpu": 1})
    wants: dict[str, Any] = {"slots": {"gpu": 1}, "constraints": Constraints(host_ports=(HostPort(8080),))}
    share = [DeviceShare("gpu", 0, 1000)]
    victim_id = await harbour.submit("victim", kind=Kind.SESSION, **wants)
    await harbour.commit(await decision_on(harbour, victim_id, [node_id], devices=share))
    [victim] = await harbour.tasks(victim_id)
    plain = await harbour.submit("plain", slots={"gpu": 0})
    refused = await harbour.commit(await decision_on(harbour, plain, [node_id], devices=share))
    assert [why for _, why in refused.conflicts] == ["device 0 of node n1 has too little gpu left"]

    urgent = await harbour.submit("urgent", **wants)
    wish = await decision_on(harbour, urgent, [node_id], devices=share, victims=[victim])
    assert len((await harbour.commit(wish, preemption=PREEMPTION)).bound) == 1
    assert await harbour.taken(node_id) == {0: 2000}
    assert [row.task_id for row in await harbour.rows(select(port_allocations))] == [victim.id]
    assert await harbour.findings() == []
    assert await admit(harbour, urgent) is None

    await harbour.move(victim, T.CANCELLED)
    assert await admit(harbour, urgent) is not None
    assert await harbour.taken(node_id) == {0: 1000}
    [task] = await harbour.tasks(urgent)
    assert [row.task_id for row in await harbour.rows(select(port_allocations))] == [task.id]
    freed = await harbour.rows(select(device_allocations).where(device_allocations.c.freed_at.is_not(None)))
    assert [row.task_id for row in freed] == [victim.id]
    assert (await harbour.rows(select(tasks.c.devices).where(tasks.c.id == victim.id)))[0].devices is None
    assert await harbour.findings() == []


@on_sqlite
async def test_a_victim_whose_place_is_only_kept_waits_again(harbour: Harbour):
    node_id = await harbour.node("n1", cpu=4)
    held, urgent = await harbour.submit("held", cpu=4), await harbour.submit("urgent", cpu=4)
    await harbour.commit(await decision_on(harbour, held, [node_id]), mode=Binding.TWO_PHASE)
    [victim] = await harbour.tasks(held)
    await harbour.commit(await decision_on(harbour, urgent, [node_id], victims=[victim]), preemption=PREEMPTION)
    assert await harbour.statuses(held) == ["PENDING"]
    assert await harbour.counters(node_id) == (4000, 0, 0)
    assert await admit(harbour, urgent) is not None
    assert await harbour.findings() == []
