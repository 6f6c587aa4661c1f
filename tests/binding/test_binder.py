"""Binding: one fenced transaction per batch, and no circle of waiting writers."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.hub import AgentHub
from mooring.binding import binder
from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.coordination.signals import Signal
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.pools import Binding
from mooring.model.policy.preemption import Preemption
from mooring.store.commit import transitions
from mooring.store.commit.locked_workloads import lock_workloads
from mooring.store.commit.status_changes import Change
from mooring.store.core.engine import Connection
from mooring.wire.agents.agent_protocol import FromServer, Report, TaskReport
from tests.store.databases import on_postgresql, on_sqlite
from tests.store.harness import Harness, decision_on, someone_waits_for_a_lock


@on_sqlite
async def test_more_decisions_than_one_batch_are_all_committed(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(binder, "_BATCH", 2)
    await harness.node("n1", cpu=4)
    workloads = [await harness.submit(f"w{number}") for number in range(5)]
    result = await harness.place()
    assert len(result.bound) == 4
    assert len(result.applied.tasks) == 4
    statuses = [(await harness.workload(workload)).status for workload in workloads]
    assert sorted(statuses) == ["PENDING", *["SCHEDULED"] * 4]
    assert await harness.findings() == []


@on_sqlite
async def test_a_workload_that_is_placed_in_part_says_why_the_rest_waits(harness: Harness):
    await harness.node("n1", cpu=2)
    workload_id = await harness.submit("w", replicas=3)
    await harness.place()
    workload = await harness.workload(workload_id)
    assert workload.status == "PENDING"
    assert workload.placed_before
    assert workload.reason["message"].startswith("2 of 3 tasks placed")


@on_sqlite
async def test_a_gang_is_bound_wholly_or_not_at_all(harness: Harness):
    await harness.node("n1", cpu=2)
    gang = await harness.submit("gang", replicas=3, gang=True)
    pair = await harness.submit("pair", replicas=2, gang=True)
    await harness.place()
    assert await harness.statuses(gang) == ["PENDING"] * 3
    assert await harness.statuses(pair) == ["SCHEDULED"] * 2


@on_postgresql
async def test_a_reason_to_wait_is_written_under_a_lock_that_was_taken_before_the_nodes(
    harness: Harness, retried: list[Exception]
):
    """One workload fits; another is half placed, waits for the rest, and its running half reports at that moment."""
    await harness.node("n1", cpu="3500m")
    half = await harness.submit("half", replicas=4)
    await harness.place()
    placed = next(task for task in await harness.tasks(half) if task.status == TaskStatus.SCHEDULED)
    await harness.node("n2", cpu="50m")
    small = await harness.submit("small", cpu="100m")
    decisions = await harness.propose()
    assert {d.workload.id: [p.node_name for p in d.placements] for d in decisions} == {half: [], small: ["n1"]}

    async def report(connection: Connection) -> None:
        await transitions.apply(connection, [Change(placed.id, TaskStatus.RUNNING)], actor="agent", now=now())

    await beside_a_writer(harness, [half], report, harness.bind(decisions))
    assert retried == []
    assert await harness.findings() == []


@on_postgresql
async def test_the_workloads_of_victims_are_locked_with_those_of_their_preemptors(
    harness: Harness, retried: list[Exception]
):
    node_id = await harness.node("n1", cpu=1)
    low = await harness.submit("low")
    victims = await harness.run(low)
    urgent = await harness.submit("urgent", priority=90)
    decision = await decision_on(harness, urgent, [node_id], victims=victims)
    preempting = replace(harness.pool, policy=replace(harness.pool.policy, preemption=Preemption()))

    async def lock_both(connection: Connection) -> None:
        await lock_workloads(connection, [low, urgent])

    binding = Binder(harness.database).bind([decision], harness.leadership.term, pools={"default": preempting})
    await beside_a_writer(harness, [low], lock_both, binding)
    assert retried == []
    assert await harness.statuses(urgent) == ["RESERVED"]


@on_postgresql
async def test_a_report_locks_all_workloads_that_it_is_about_before_it_changes_any(
    harness: Harness, retried: list[Exception]
):
    node_id = await harness.node("n1")
    ready, broken = await harness.submit("ready"), await harness.submit("broken")
    for workload_id in (ready, broken):
        await harness.commit(await decision_on(harness, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    [one], [other] = await harness.tasks(ready), await harness.tasks(broken)

    async def cancel(connection: Connection) -> None:
        await transitions.apply(connection, [Change(one.id, TaskStatus.CANCELLED)], actor="user", now=now())

    async def send(_message: FromServer) -> None:
        pass

    reports = [
        TaskReport(task_id=one.id, status="PREPARED"),
        TaskReport(task_id=other.id, status="FAILED", gone=True, code="image-missing", reason="no such image"),
    ]
    hub = AgentHub(harness.database, Signal())
    reporting = hub.report(AgentSession(node_id, "n1", harness.pool.id, "", send), Report(number=1, tasks=reports))
    await beside_a_writer(harness, [ready, broken], cancel, reporting)
    assert retried == []
    assert (await harness.statuses(broken), await harness.findings()) == (["PENDING"], [])


async def beside_a_writer(
    harness: Harness,
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

    writing = asyncio.create_task(harness.database.write(write))
    await locked.wait()
    working = asyncio.create_task(work)
    while not await someone_waits_for_a_lock(harness.database):
        assert not working.done()
    waits.set()
    await writing
    await working
