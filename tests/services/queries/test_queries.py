"""Questions are answered from a mirror of their own, by the rules of the real pass."""

import asyncio
import threading
from typing import Any

import pytest

from mooring.intake import questions as questions_module
from mooring.intake.questions import Questions
from mooring.mirror.mirror import Mirror
from mooring.model.errors import NotFound
from mooring.scheduling.scheduler import Scheduler
from mooring.store.ids import new_id
from mooring.wire.api import WorkloadRequest
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour


def request(**more: Any) -> WorkloadRequest:
    containers = [{"command": ["true"], "resources": {"cpu": 1}}]
    return WorkloadRequest.model_validate({"containers": containers, **more})


async def test_a_dry_run_names_the_nodes_that_the_pass_then_chooses(harbour: Harbour):
    for name, cpu in (("n1", 4), ("n2", 8), ("n3", 6)):
        await harbour.node(name, cpu=cpu)
    questions = Questions(harbour.database)
    for number in range(3):
        # The same again after each commit: the mirror follows.
        would = await questions.dry_run(harbour.principal, request(name=f"w{number}", replicas=3))
        workload_id = await harbour.submit(f"w{number}", replicas=3, memory=0)
        await harbour.place()
        assert [task.node for task in would.tasks] == [task.node_name for task in await harbour.tasks(workload_id)]
        assert [task.score for task in would.tasks] == [
            task.score / 1_000_000 for task in await harbour.tasks(workload_id)
        ]


async def test_the_reason_is_the_one_that_the_pass_stores(harbour: Harbour):
    await harbour.node("n1", cpu=4)
    workload_id = await harbour.submit("large", cpu=16)
    await harbour.place()
    record = await Questions(harbour.database).explain(workload_id)
    stored = (await harbour.workload(workload_id)).reason
    assert record.reason == stored
    assert stored["message"] == "0 of 1 node: 1 lacks 16 cpu (best has 4)"


async def test_a_workload_whose_tasks_are_partly_placed_says_why_the_rest_waits(harbour: Harbour):
    await harbour.node("n1", cpu=4)
    workload_id = await harbour.submit("web", replicas=3, cpu=2)
    await harbour.place()
    record = await Questions(harbour.database).explain(workload_id)
    assert (record.outcome, record.summary) == ("waiting", "0 of 1 node: 1 lacks 2 cpu (best has 0)")
    assert [task.node for task in record.tasks] == ["n1", "n1", None]


async def test_a_node_that_would_not_be_chosen_again_has_no_score(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("web")
    await harbour.run(workload_id)
    await harbour.drain(node_id)
    record = await Questions(harbour.database).explain(workload_id)
    assert (record.outcome, record.winner, record.placed_on) == ("placed", None, [])
    assert record.summary == "0 of 1 node: 1 not ready"


@on_sqlite
async def test_devices_are_told_of_a_dry_run_and_of_what_is_placed_and_a_full_node_would_take_its_own_again(
    harbour: Harbour,
):
    await harbour.node("n1", slots={"gpu": 2})
    questions = Questions(harbour.database)
    containers = [{"command": ["true"], "resources": {"gpu": "0.6"}}]
    would = await questions.dry_run(harbour.principal, request(name="w", replicas=2, containers=containers))
    assert [task.devices for task in would.tasks] == [{"gpu": [(0, 600)]}, {"gpu": [(1, 600)]}]
    workload_id = await harbour.submit("w", replicas=2, slots={"gpu": "0.6"})
    await harbour.place()
    placed = await questions.explain(workload_id)
    assert [task.devices for task in placed.tasks] == [task.devices for task in would.tasks]
    assert [node.node for node in placed.placed_on] == ["n1"]


async def test_a_workload_that_is_gone_is_not_found(harbour: Harbour):
    with pytest.raises(NotFound):
        await Questions(harbour.database).explain(new_id())


@on_sqlite
async def test_a_question_does_not_hold_up_the_event_loop_and_they_take_turns(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
):
    await harbour.node("n1")
    inside, most, go_on = [0], [0], threading.Event()
    explain = Scheduler.explain

    def slow(self: Scheduler, *arguments: Any, **more: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        assert go_on.wait(20)
        inside[0] -= 1
        return explain(self, *arguments, **more)

    monkeypatch.setattr(Scheduler, "explain", slow)
    questions = Questions(harbour.database)
    asked = [asyncio.create_task(questions.dry_run(harbour.principal, request())) for _ in range(3)]
    while not inside[0]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    # The loop is free while the thread waits.
    go_on.set()
    answers = await asyncio.gather(*asked)
    assert [answer.outcome for answer in answers] == ["placed"] * 3
    assert most == [1]


@on_sqlite
async def test_columns_that_a_cancelled_question_still_works_on_are_left_to_it(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
):
    await harbour.node("n1")
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
    questions = Questions(harbour.database)
    asked = asyncio.create_task(questions.dry_run(harbour.principal, request()))
    await asyncio.to_thread(started.wait, 20)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (await questions.dry_run(harbour.principal, request())).outcome == "placed"
    go_on.set()
    assert clusters[0] is not clusters[1]


@on_sqlite
async def test_after_a_long_silence_everything_is_read_anew(harbour: Harbour, monkeypatch: pytest.MonkeyPatch):
    loads = []
    load = Mirror.load

    async def counted(self: Mirror) -> None:
        loads.append(self)
        await load(self)

    monkeypatch.setattr(Mirror, "load", counted)
    questions = Questions(harbour.database)
    for _ in range(2):
        await questions.dry_run(harbour.principal, request())
    assert len(loads) == 1
    monkeypatch.setattr(questions_module, "_IDLE_SECONDS", -1.0)
    await questions.dry_run(harbour.principal, request())
    assert len(loads) == 2
