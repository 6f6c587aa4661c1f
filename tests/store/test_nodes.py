"""Nodes: what raises the generation, and how they are lost, drained, resumed and removed."""

from datetime import timedelta

import pytest

from mooring.clock import now
from mooring.model.errors import Conflict, NotFound
from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.slots import parse_amounts
from mooring.store import agents, nodes
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

pytestmark = on_sqlite


async def test_heartbeats_alone_change_nothing_that_placement_depends_on(harbour: Harbour):
    node_id = await harbour.node("n1")
    before, told = await harbour.node_row(node_id), await harbour.feed(node_id)
    await harbour.beat(node_id, now(), cpu_percent=50)
    after = await harbour.node_row(node_id)
    assert (after.generation, after.cpu_percent) == (before.generation, 50)
    assert await harbour.feed(node_id) == told


async def test_a_problem_takes_a_node_out_until_it_is_gone(harbour: Harbour):
    node_id = await harbour.node("n1")
    generation = (await harbour.node_row(node_id)).generation
    await harbour.beat(node_id, now(), problem="disk full")
    row = await harbour.node_row(node_id)
    assert (row.schedulable, row.reason, row.generation) == (False, "disk full", generation + 1)
    await harbour.beat(node_id, now(), problem="disk full")
    assert (await harbour.node_row(node_id)).generation == generation + 1
    await harbour.beat(node_id, now())
    row = await harbour.node_row(node_id)
    assert (row.schedulable, row.reason, row.generation) == (True, None, generation + 2)


async def test_facts_that_did_not_change_do_not_raise_the_generation(harbour: Harbour):
    node_id = await harbour.node("n1", cpu=4)
    before = await harbour.node_row(node_id)
    await harbour.connect(node_id, parse_amounts({"cpu": 4, "memory": "16Gi"}), now())
    assert (await harbour.node_row(node_id)).generation == before.generation
    await harbour.connect(node_id, parse_amounts({"cpu": 8, "memory": "16Gi"}), now())
    assert (await harbour.node_row(node_id)).generation == before.generation + 1


async def test_a_slot_that_vanished_keeps_its_counters(harbour: Harbour):
    node_id = await harbour.node("n1", slots={"gpu": 1})
    await harbour.run(await harbour.submit("w", slots={"gpu": 1}))
    await harbour.connect(node_id, parse_amounts({"cpu": 8, "memory": "16Gi"}), now())
    assert await harbour.counters(node_id, "gpu") == (0, 0, 1000)


async def test_the_wish_to_drain_outlives_a_loss(harbour: Harbour):
    node_id = await harbour.node("n1")
    await harbour.drain(node_id)
    assert (await harbour.node_row(node_id)).status == NodeStatus.DRAINING
    later = now() + timedelta(hours=1)
    assert await harbour.fall_silent(node_id, later)
    await harbour.beat(node_id, later)
    assert (await harbour.node_row(node_id)).status == NodeStatus.DRAINING
    await harbour.drain(node_id, False)
    assert (await harbour.node_row(node_id)).status == NodeStatus.READY
    changes = [(h.old_status, h.new_status) for h in await harbour.history(node_id)]
    assert changes[2:] == [("READY", "DRAINING"), ("DRAINING", "LOST"), ("LOST", "DRAINING"), ("DRAINING", "READY")]


async def test_a_node_that_was_heard_of_meanwhile_is_not_lost(harbour: Harbour):
    node_id = await harbour.node("n1")
    seen = (await harbour.node_row(node_id)).last_seen_at
    assert not await harbour.fall_silent(node_id, seen)
    assert (await harbour.node_row(node_id)).status == NodeStatus.READY


async def test_a_node_with_tasks_is_not_removed(harbour: Harbour):
    node_id = await harbour.node("n1")
    [task] = await harbour.run(await harbour.submit("w"))

    async def remove() -> None:
        await harbour.database.write(lambda c: nodes.remove(c, node_id, force=False, actor="test", now=now()))

    with pytest.raises(Conflict, match="still has 1 task") as refused:
        await remove()
    assert refused.value.code == "node-occupied"
    # Lost tasks are charged as well: silence is not proof.
    await harbour.move(task, TaskStatus.LOST, freed=False)
    with pytest.raises(Conflict):
        await remove()
    await harbour.free_lost(task.id)
    await remove()
    assert (await harbour.task(task.id)).node_name == "n1"
    assert await harbour.findings() == []
    with pytest.raises(NotFound):
        await remove()


async def test_two_nodes_cannot_have_one_name(harbour: Harbour):
    await harbour.node("n1")
    with pytest.raises(Conflict, match="'n1' already"):
        await harbour.node("n1")


async def test_an_agent_is_told_of_everything_that_is_charged_to_its_node(harbour: Harbour):
    node_id, other_id = await harbour.node("n1", cpu=3), await harbour.node("n2", cpu=1)
    running, stopping, lost, elsewhere = await harbour.run(await harbour.submit("w", replicas=4))
    ids = {t.id for t in (running, stopping, lost, elsewhere) if t.node_id == node_id}
    assert len(ids) == 3
    await harbour.move(stopping, TaskStatus.TERMINATING)
    await harbour.move(lost, TaskStatus.LOST, freed=False)
    async with harbour.database.read() as connection:
        assert {row.id for row in await agents.desired(connection, node_id)} == ids
        everything = [running.id, stopping.id, lost.id, elsewhere.id]
        assert await agents.owned(connection, node_id, everything) == ids
        assert await agents.owned(connection, other_id, everything) == set(everything) - ids
