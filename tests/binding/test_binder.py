"""Binding: one fenced transaction per batch, and no circle of waiting writers."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mooring.api.agent_session import AgentSession
from mooring.api.hub import AgentHub
from mooring.binding import binder
from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.coordination.signals import Signal
from mooring.model.lifecycle import TaskStatus
from mooring.model.pools import Binding
from mooring.model.preemption import Preemption
from mooring.store import transitions
from mooring.store.changes import Change
from mooring.store.engine import Connection
from mooring.store.loading import lock_workloads
from mooring.wire.agent import FromServer, Report, TaskReport
from tests.store.databases import on_postgresql, on_sqlite
from tests.store.harbour import Harbour, decision_on, someone_waits_for_a_lock


@on_sqlite
async def test_more_decisions_than_one_batch_are_all_committed(harbour: Harbour, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(binder, "_BATCH", 2)
    await harbour.node("n1", cpu=4)
    workloads = [await harbour.submit(f"w{number}") for number in range(5)]
    result = await harbour.place()
    assert len(result.bound) == 4
    assert len(result.applied.tasks) == 4
    statuses = [(await harbour.workload(workload)).status for workload in workloads]
    assert sorted(statuses) == ["PENDING", *["SCHEDULED"] * 4]
    assert await harbour.findings() == []


@on_sqlite
async def test_a_workload_that_is_placed_in_part_says_why_the_rest_waits(harbour: Harbour):
    await harbour.node("n1", cpu=2)
    workload_id = await harbour.submit("w", replicas=3)
    await harbour.place()
    workload = await harbour.workload(workload_id)
    assert workload.status == "PENDING"
    assert workload.placed_before
    assert workload.reason["message"].startswith("2 of 3 tasks placed")


@on_sqlite
async def test_a_gang_is_bound_wholly_or_not_at_all(harbour: Harbour):
    await harbour.node("n1", cpu=2)
    gang = await harbour.submit("gang", replicas=3, gang=True)
    pair = await harbour.submit("pair", replicas=2, gang=True)
    await harbour.place()
    assert await harbour.statuses(gang) == ["PENDING"] * 3
    assert await harbour.statuses(pair) == ["SCHEDULED"] * 2


@on_postgresql
async def test_a_reason_to_wait_is_written_under_a_lock_that_was_taken_before_the_nodes(
    harbour: Harbour, retried: list[Exception]
):
    """One workload fits; another is half placed, waits for the rest, and its running half reports at that moment."""
    await harbour.node("n1", cpu="3500m")
    half = await harbour.submit("half", replicas=4)
    await harbour.place()
    placed = next(task for task in await harbour.tasks(half) if task.status == TaskStatus.SCHEDULED)
    await harbour.node("n2", cpu="50m")
    small = await harbour.submit("small", cpu="100m")
    decisions = await harbour.propose()
    assert {d.workload.id: [p.node_name for p in d.placements] for d in decisions} == {half: [], small: ["n1"]}

    async def report(connection: Connection) -> None:
        await transitions.apply(connection, [Change(placed.id, TaskStatus.RUNNING)], actor="agent", now=now())

    await beside_a_writer(harbour, [half], report, harbour.bind(decisions))
    assert retried == []
    assert await harbour.findings() == []


@on_postgresql
async def test_the_workloads_of_victims_are_locked_with_those_of_their_preemptors(
    harbour: Harbour, retried: list[Exception]
):
    node_id = await harbour.node("n1", cpu=1)
    low = await harbour.submit("low")
    victims = await harbour.run(low)
    urgent = await harbour.submit("urgent", priority=90)
    decision = await decision_on(harbour, urgent, [node_id], victims=victims)
    preempting = replace(harbour.pool, policy=replace(harbour.pool.policy, preemption=Preemption()))

    async def lock_both(connection: Connection) -> None:
        await lock_workloads(connection, [low, urgent])

    binding = Binder(harbour.database).bind([decision], harbour.office.term, pools={"default": preempting})
    await beside_a_writer(harbour, [low], lock_both, binding)
    assert retried == []
    assert await harbour.statuses(urgent) == ["RESERVED"]


@on_postgresql
async def test_a_report_locks_all_workloads_that_it_is_about_before_it_changes_any(
    harbour: Harbour, retried: list[Exception]
):
    node_id = await harbour.node("n1")
    ready, broken = await harbour.submit("ready"), await harbour.submit("broken")
    for workload_id in (ready, broken):
        await harbour.commit(await decision_on(harbour, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    [one], [other] = await harbour.tasks(ready), await harbour.tasks(broken)

    async def cancel(connection: Connection) -> None:
        await transitions.apply(connection, [Change(one.id, TaskStatus.CANCELLED)], actor="user", now=now())

    async def send(_message: FromServer) -> None:
        pass

    reports = [
        TaskReport(task_id=one.id, status="PREPARED"),
        TaskReport(task_id=other.id, status="FAILED", gone=True, code="image-missing", reason="no such image"),
    ]
    hub = AgentHub(harbour.database, Signal())
    reporting = hub.report(AgentSession(node_id, "n1", harbour.pool.id, "", send), Report(number=1, tasks=reports))
    await beside_a_writer(harbour, [ready, broken], cancel, reporting)
    assert retried == []
    assert (await harbour.statuses(broken), await harbour.findings()) == (["PENDING"], [])


async def beside_a_writer(
    harbour: Harbour,
    workload_ids: Sequence[UUID],
    change: Callable[[Connection], Awaitable[None]],
    work: Coroutine[Any, Any, object],
) -> None:
    """Somebody has locked these workloads, and goes on with a change once the work waits for the locks.

    With a circle PostgreSQL would end one of the two, and the retry would hide it.
    """
    locked, waits = asyncio.Event(), asyncio.Event()

    async def write(connection: Connection) -> None:
        await lock_workloads(connection, workload_ids)
        locked.set()
        await waits.wait()
        await change(connection)

    writing = asyncio.create_task(harbour.database.write(write))
    await locked.wait()
    working = asyncio.create_task(work)
    while not await someone_waits_for_a_lock(harbour.database):
        assert not working.done()
    waits.set()
    await writing
    await working
