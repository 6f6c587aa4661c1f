"""Nodes: what raises the generation, and how they are lost, drained, resumed and removed."""

from datetime import timedelta

import pytest

from mooring.clock import now
from mooring.model.errors import Conflict, NotFound
from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.resources.slots import parse_amounts
from mooring.store.nodes import desired_tasks, nodes
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

pytestmark = on_sqlite


async def test_heartbeats_alone_change_nothing_that_placement_depends_on(harness: Harness):
    node_id = await harness.node("n1")
    before, received = await harness.node_row(node_id), await harness.feed(node_id)
    await harness.beat(node_id, now(), cpu_percent=50)
    after = await harness.node_row(node_id)
    assert (after.generation, after.cpu_percent) == (before.generation, 50)
    assert await harness.feed(node_id) == received


async def test_a_problem_takes_a_node_out_until_it_is_gone(harness: Harness):
    node_id = await harness.node("n1")
    generation = (await harness.node_row(node_id)).generation
    await harness.beat(node_id, now(), problem="disk full")
    row = await harness.node_row(node_id)
    assert (row.schedulable, row.reason, row.generation) == (False, "disk full", generation + 1)
    await harness.beat(node_id, now(), problem="disk full")
    assert (await harness.node_row(node_id)).generation == generation + 1
    await harness.beat(node_id, now())
    row = await harness.node_row(node_id)
    assert (row.schedulable, row.reason, row.generation) == (True, None, generation + 2)


async def test_facts_that_did_not_change_do_not_raise_the_generation(harness: Harness):
    node_id = await harness.node("n1", cpu=4)
    before = await harness.node_row(node_id)
    await harness.connect(node_id, parse_amounts({"cpu": 4, "memory": "16Gi"}), now())
    assert (await harness.node_row(node_id)).generation == before.generation
    await harness.connect(node_id, parse_amounts({"cpu": 8, "memory": "16Gi"}), now())
    assert (await harness.node_row(node_id)).generation == before.generation + 1


async def test_a_slot_that_vanished_keeps_its_counters(harness: Harness):
    node_id = await harness.node("n1", slots={"gpu": 1})
    await harness.run(await harness.submit("w", slots={"gpu": 1}))
    await harness.connect(node_id, parse_amounts({"cpu": 8, "memory": "16Gi"}), now())
    assert await harness.counters(node_id, "gpu") == (0, 0, 1000)


async def test_the_wish_to_drain_outlives_a_loss(harness: Harness):
    node_id = await harness.node("n1")
    await harness.drain(node_id)
    assert (await harness.node_row(node_id)).status == NodeStatus.DRAINING
    later = now() + timedelta(hours=1)
    assert await harness.fall_silent(node_id, later)
    await harness.beat(node_id, later)
    assert (await harness.node_row(node_id)).status == NodeStatus.DRAINING
    await harness.drain(node_id, False)
    assert (await harness.node_row(node_id)).status == NodeStatus.READY
    changes = [(h.old_status, h.new_status) for h in await harness.history(node_id)]
    assert changes[2:] == [("READY", "DRAINING"), ("DRAINING", "LOST"), ("LOST", "DRAINING"), ("DRAINING", "READY")]


async def test_a_node_that_was_heard_of_meanwhile_is_not_lost(harness: Harness):
    node_id = await harness.node("n1")
    seen = (await harness.node_row(node_id)).last_seen_at
    assert not await harness.fall_silent(node_id, seen)
    assert (await harness.node_row(node_id)).status == NodeStatus.READY


async def test_a_node_with_tasks_is_not_removed(harness: Harness):
    node_id = await harness.node("n1")
    [task] = await harness.run(await harness.submit("w"))

    async def remove() -> None:
        await harness.database.write(lambda c: nodes.remove(c, node_id, force=False, actor="test", now=now()))

    with pytest.raises(Conflict, match="still has 1 task") as refused:
        await remove()
    assert refused.value.code == "node-occupied"
    # Lost tasks are charged as well: silence is not proof.
    await harness.move(task, TaskStatus.LOST, freed=False)
    with pytest.raises(Conflict):
        await remove()
    await harness.free_lost(task.id)
    await remove()
    assert (await harness.task(task.id)).node_name == "n1"
    assert await harness.findings() == []
    with pytest.raises(NotFound):
        await remove()


async def test_two_nodes_cannot_have_one_name(harness: Harness):
    await harness.node("n1")
    with pytest.raises(Conflict, match="'n1' already"):
        await harness.node("n1")


async def test_an_agent_receives_every_task_that_is_charged_to_its_node(harness: Harness):
    node_id, other_id = await harness.node("n1", cpu=3), await harness.node("n2", cpu=1)
    running, stopping, lost, elsewhere = await harness.run(await harness.submit("w", replicas=4))
    ids = {t.id for t in (running, stopping, lost, elsewhere) if t.node_id == node_id}
    assert len(ids) == 3
    await harness.move(stopping, TaskStatus.TERMINATING)
    await harness.move(lost, TaskStatus.LOST, freed=False)
    async with harness.database.read() as connection:
        assert {row.id for row in await desired_tasks.desired(connection, node_id)} == ids
        everything = [running.id, stopping.id, lost.id, elsewhere.id]
        assert (await desired_tasks.owned(connection, node_id, everything)).keys() == ids
        assert (await desired_tasks.owned(connection, other_id, everything)).keys() == set(everything) - ids
