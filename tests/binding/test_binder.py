"""Binding: one fenced transaction per batch, and no circle of waiting writers."""

import asyncio

import pytest

from mooring.binding import binder
from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.store import transitions
from mooring.store.changes import Change
from mooring.store.engine import Connection
from mooring.store.loading import lock_workloads
from tests.store.databases import on_postgresql, on_sqlite
from tests.store.harbour import Harbour, someone_waits_for_a_lock


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
    locked, reported = asyncio.Event(), asyncio.Event()

    async def agent(connection: Connection) -> None:
        await lock_workloads(connection, [half])
        locked.set()
        await reported.wait()
        await transitions.apply(connection, [Change(placed.id, TaskStatus.RUNNING)], actor="agent", now=now())

    reporting = asyncio.create_task(harbour.database.write(agent))
    await locked.wait()
    binding = asyncio.create_task(harbour.bind(decisions))
    while not await someone_waits_for_a_lock(harbour.database):
        assert not binding.done()
    reported.set()
    # With a circle PostgreSQL would end one of the two, and the retry would hide it.
    await reporting
    await binding
    assert retried == []
    assert await harbour.findings() == []
