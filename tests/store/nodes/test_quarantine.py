"""Tasks unknown to the database: quarantined, listed, and ended only on request or after their grace period."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from mooring.clock import now
from mooring.controllers.nodes.quarantine import QuarantineLoop
from mooring.store.nodes import nodes, quarantine
from tests.store.harness import Harness

HOUR = timedelta(hours=1)


async def take(harness: Harness, node_id: UUID, *task_ids: UUID, grace: timedelta = HOUR) -> list[UUID]:
    living = dict.fromkeys(task_ids, "web")
    return await harness.database.write(lambda c: quarantine.take(c, node_id, living, grace=grace, now=now()))


async def to_end(harness: Harness, node_id: UUID, *strays: UUID) -> list[UUID]:
    async with harness.database.read() as connection:
        return await quarantine.to_end(connection, node_id, strays)


async def stored(harness: Harness) -> list[UUID]:
    async with harness.database.read() as connection:
        return [task.task_id for task in await quarantine.all_tasks(connection)]


async def test_an_unknown_task_is_quarantined_once_and_forgotten_when_it_is_gone(harness: Harness):
    node_id = await harness.node("n1")
    first, second = sorted((uuid4(), uuid4()))
    assert await take(harness, node_id, first) == [first]
    assert await take(harness, node_id, first, second) == [second]
    assert await to_end(harness, node_id, first, second) == []
    assert await take(harness, node_id, second) == []
    assert await stored(harness) == [second]
    await take(harness, node_id)
    assert await stored(harness) == []


async def test_a_task_that_has_ended_or_runs_elsewhere_is_stopped_and_not_quarantined(harness: Harness):
    there = await harness.node("there")
    (task,) = await harness.run(await harness.submit("web"))
    here = await harness.node("here")
    assert await take(harness, here, task.id) == []
    assert await to_end(harness, here, task.id) == [task.id]
    assert await to_end(harness, there, task.id) == []


async def test_a_running_task_that_the_database_has_as_pending_continues_until_its_end(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("web")
    (task,) = await harness.tasks(workload_id)
    assert await take(harness, node_id, task.id) == []
    assert await to_end(harness, node_id, task.id) == []
    await harness.stop(workload_id)
    assert await to_end(harness, node_id, task.id) == [task.id]


async def test_any_number_of_tasks_may_live_on_a_node(harness: Harness):
    node_id = await harness.node("n1")
    (task,) = await harness.run(await harness.submit("web"))
    many = [uuid4() for _ in range(40_000)]
    assert await to_end(harness, node_id, task.id, *many) == []


async def test_an_admin_lets_one_or_those_of_a_node_be_ended(harness: Harness):
    node_id, other_id = await harness.node("n1"), await harness.node("n2")
    first, second, third = sorted(uuid4() for _ in range(3))
    await take(harness, node_id, first, second)
    await take(harness, other_id, third)

    async def confirm(**chosen: Any) -> list[UUID]:
        return await harness.database.write(lambda c: quarantine.confirm(c, "ada", now=now(), **chosen))

    assert await confirm(task_id=first) == [first]
    assert await to_end(harness, node_id) == [first]
    assert await confirm(node_id=node_id) == [second]
    assert await to_end(harness, node_id) == [first, second]
    assert await confirm() == [third]
    assert await confirm() == []


async def test_a_node_with_such_tasks_takes_nothing_new_whatever_its_heartbeats_say(harness: Harness):
    node_id = await harness.node("n1")
    task_id = uuid4()
    await take(harness, node_id, task_id)
    await harness.database.write(lambda c: nodes.close(c, node_id, quarantine.REASON, now=now()))

    async def after_a_beat() -> tuple[bool, str | None]:
        await harness.beat(node_id, now())
        node = await harness.node_row(node_id)
        return node.schedulable, node.reason

    assert await after_a_beat() == (False, quarantine.REASON)
    await harness.submit("web")
    assert [decision.placements for decision in await harness.propose()] == [()]
    await take(harness, node_id)
    assert await after_a_beat() == (True, None)


async def test_an_expired_grace_period_ends_quarantined_tasks(harness: Harness):
    node_id = await harness.node("n1")
    over, later = uuid4(), uuid4()
    await take(harness, node_id, over, grace=timedelta())
    await take(harness, node_id, over, later)
    loop = QuarantineLoop(harness.fenced)
    assert await loop.once()
    assert await to_end(harness, node_id) == [over]
    assert not await loop.once()
    assert 3000 < loop.alarm.wait_seconds(5000) <= 3600
