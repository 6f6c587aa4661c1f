"""Queries are answered from a mirror of their own, by the rules of the real pass."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from mooring.clock import now
from mooring.mirror.mirror import Mirror
from mooring.model.errors import NotFound
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.scheduling.scheduler import Scheduler
from mooring.services.queries import queries as queries_module
from mooring.services.queries.queries import Queries
from mooring.store.core.ids import new_id
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.store.databases import on_sqlite
from tests.store.harness import Harness


def request(**more: Any) -> WorkloadRequest:
    containers = [{"command": ["true"], "resources": {"cpu": 1, "memory": 0}}]
    return WorkloadRequest.model_validate({"containers": containers, **more})


async def test_a_dry_run_names_the_nodes_that_the_pass_then_chooses(harness: Harness):
    for name, cpu in (("n1", 4), ("n2", 8), ("n3", 6)):
        await harness.node(name, cpu=cpu)
    queries = Queries(harness.database)
    for number in range(3):
        # The same again after each commit: the mirror follows.
        would = await queries.dry_run(harness.principal, request(name=f"w{number}", replicas=3))
        workload_id = await harness.submit(f"w{number}", replicas=3, memory=0)
        await harness.place()
        assert [task.node for task in would.tasks] == [task.node_name for task in await harness.tasks(workload_id)]
        assert [task.score for task in would.tasks] == [
            task.score / 1_000_000 for task in await harness.tasks(workload_id)
        ]


async def test_a_dry_run_of_work_that_would_wait_says_when_it_would_start(harness: Harness):
    await harness.node("n1", cpu=4)
    first = await harness.submit("first", cpu=3, schedule=ScheduleOptions(time_limit_seconds=3600))
    await harness.place()
    await harness.run(first)
    await harness.submit("second", cpu=3, schedule=ScheduleOptions(time_limit_seconds=3600))
    await harness.place()
    queries = Queries(harness.database)
    containers = [{"command": ["true"], "resources": {"cpu": 3, "memory": 0}}]
    would = await queries.dry_run(harness.principal, request(name="third", containers=containers))
    assert (would.outcome, would.ahead) == ("waiting", 1)
    assert would.estimated_start is not None
    assert would.estimated_start > now() + timedelta(minutes=100)
    containers = [{"command": ["true"], "resources": {"cpu": 300, "memory": 0}}]
    never = await queries.dry_run(harness.principal, request(name="large", containers=containers))
    assert (never.ahead, never.estimated_start) == (None, None)


async def test_the_reason_is_the_one_that_the_pass_stores(harness: Harness):
    await harness.node("n1", cpu=4)
    workload_id = await harness.submit("large", cpu=16)
    await harness.place()
    record = await Queries(harness.database).explain(workload_id)
    stored = (await harness.workload(workload_id)).reason
    assert record.reason == stored
    assert stored["message"] == "0 of 1 node: 1 lacks 16 cpu (best has 4)"


async def test_a_workload_whose_tasks_are_partly_placed_says_why_the_rest_waits(harness: Harness):
    await harness.node("n1", cpu=4)
    workload_id = await harness.submit("web", replicas=3, cpu=2)
    await harness.place()
    record = await Queries(harness.database).explain(workload_id)
    assert (record.outcome, record.summary) == ("waiting", "0 of 1 node: 1 lacks 2 cpu (best has 0)")
    assert [task.node for task in record.tasks] == ["n1", "n1", None]


async def test_a_node_that_would_not_be_chosen_again_has_no_score(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("web")
    await harness.run(workload_id)
    await harness.drain(node_id)
    record = await Queries(harness.database).explain(workload_id)
    assert (record.outcome, record.winner, record.placed_on) == ("placed", None, [])
    assert record.summary == "0 of 1 node: 1 draining"


@on_sqlite
async def test_explanations_name_devices_and_a_full_node_still_fits_its_own_tasks(
    harness: Harness,
):
    await harness.node("n1", slots={"gpu": 2})
    queries = Queries(harness.database)
    containers = [{"command": ["true"], "resources": {"gpu": "0.6"}}]
    would = await queries.dry_run(harness.principal, request(name="w", replicas=2, containers=containers))
    assert [task.devices for task in would.tasks] == [{"gpu": [(0, 600)]}, {"gpu": [(1, 600)]}]
    workload_id = await harness.submit("w", replicas=2, slots={"gpu": "0.6"})
    await harness.place()
    placed = await queries.explain(workload_id)
    assert [task.devices for task in placed.tasks] == [task.devices for task in would.tasks]
    assert [node.node for node in placed.placed_on] == ["n1"]


async def test_a_workload_that_is_gone_is_not_found(harness: Harness):
    with pytest.raises(NotFound):
        await Queries(harness.database).explain(new_id())


@on_sqlite
async def test_dry_runs_do_not_block_the_event_loop_and_run_one_at_a_time(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    await harness.node("n1")
    inside, most, go_on = [0], [0], threading.Event()
    explain = Scheduler.explain

    def slow(self: Scheduler, *arguments: Any, **more: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        assert go_on.wait(20)
        inside[0] -= 1
        return explain(self, *arguments, **more)

    monkeypatch.setattr(Scheduler, "explain", slow)
    queries = Queries(harness.database)
    asked = [asyncio.create_task(queries.dry_run(harness.principal, request())) for _ in range(3)]
    while not inside[0]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    # The loop is free while the thread waits.
    go_on.set()
    answers = await asyncio.gather(*asked)
    assert [answer.outcome for answer in answers] == ["placed"] * 3
    assert most == [1]


@on_sqlite
async def test_columns_in_use_by_a_cancelled_dry_run_are_not_reused(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    await harness.node("n1")
    started, go_on = threading.Event(), threading.Event()
    explain = Scheduler.explain
    clusters = []

    def slow(self: Scheduler, *arguments: Any, **more: Any) -> Any:
        clusters.append(self.cluster)
        if len(clusters) == 1:
            started.set()
            assert go_on.wait(20)
        return explain(self, *arguments, **more)

    monkeypatch.setattr(Scheduler, "explain", slow)
    queries = Queries(harness.database)
    asked = asyncio.create_task(queries.dry_run(harness.principal, request()))
    await asyncio.to_thread(started.wait, 20)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (await queries.dry_run(harness.principal, request())).outcome == "placed"
    go_on.set()
    assert clusters[0] is not clusters[1]


@on_sqlite
async def test_after_a_long_silence_everything_is_read_again(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    loads = []
    load = Mirror.load

    async def counted(self: Mirror) -> None:
        loads.append(self)
        await load(self)

    monkeypatch.setattr(Mirror, "load", counted)
    queries = Queries(harness.database)
    for _ in range(2):
        await queries.dry_run(harness.principal, request())
    assert len(loads) == 1
    monkeypatch.setattr(queries_module, "_IDLE_SECONDS", -1.0)
    await queries.dry_run(harness.principal, request())
    assert len(loads) == 2
