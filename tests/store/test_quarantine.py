"""Tasks that the database does not know: kept, listed, and ended only when somebody says so or their grace is over."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from mooring.clock import now
from mooring.controllers.quarantine import QuarantineLoop
from mooring.store import nodes, quarantine
from tests.store.harbour import Harbour

HOUR = timedelta(hours=1)


async def take(harbour: Harbour, node_id: UUID, *task_ids: UUID, grace: timedelta = HOUR) -> list[UUID]:
    living = dict.fromkeys(task_ids, "web")
    return await harbour.database.write(lambda c: quarantine.take(c, node_id, living, grace=grace, now=now()))


async def to_end(harbour: Harbour, node_id: UUID, *strays: UUID) -> list[UUID]:
    async with harbour.database.read() as connection:
        return await quarantine.to_end(connection, node_id, strays)


async def kept(harbour: Harbour) -> list[UUID]:
    async with harbour.database.read() as connection:
        return [task.task_id for task in await quarantine.all_tasks(connection)]


async def test_what_is_not_known_is_kept_once_and_forgotten_when_it_is_gone(harbour: Harbour):
    node_id = await harbour.node("n1")
    first, second = sorted((uuid4(), uuid4()))
    assert await take(harbour, node_id, first) == [first]
    assert await take(harbour, node_id, first, second) == [second]
    assert await to_end(harbour, node_id, first, second) == []
    assert await take(harbour, node_id, second) == []
    assert await kept(harbour) == [second]
    await take(harbour, node_id)
    assert await kept(harbour) == []


async def test_what_the_database_knows_to_be_over_or_elsewhere_is_ended_and_not_kept(harbour: Harbour):
    there = await harbour.node("there")
    (task,) = await harbour.run(await harbour.submit("web"))
    here = await harbour.node("here")
    assert await take(harbour, here, task.id) == []
    assert await to_end(harbour, here, task.id) == [task.id]
    assert await to_end(harbour, there, task.id) == []


async def test_what_still_waits_by_the_database_goes_on_where_it_runs_until_it_is_over(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("web")
    (task,) = await harbour.tasks(workload_id)
    assert await take(harbour, node_id, task.id) == []
    assert await to_end(harbour, node_id, task.id) == []
    await harbour.stop(workload_id)
    assert await to_end(harbour, node_id, task.id) == [task.id]


async def test_any_number_of_tasks_may_live_on_a_node(harbour: Harbour):
    node_id = await harbour.node("n1")
    (task,) = await harbour.run(await harbour.submit("web"))
    many = [uuid4() for _ in range(40_000)]
    assert await to_end(harbour, node_id, task.id, *many) == []


async def test_an_admin_lets_one_or_those_of_a_node_be_ended(harbour: Harbour):
    node_id, other_id = await harbour.node("n1"), await harbour.node("n2")
    first, second, third = sorted(uuid4() for _ in range(3))
    await take(harbour, node_id, first, second)
    await take(harbour, other_id, third)

    async def confirm(**chosen: Any) -> list[UUID]:
        return await harbour.database.write(lambda c: quarantine.confirm(c, "ada", now=now(), **chosen))

    assert await confirm(task_id=first) == [first]
    assert await to_end(harbour, node_id) == [first]
    assert await confirm(node_id=node_id) == [second]
    assert await to_end(harbour, node_id) == [first, second]
    assert await confirm() == [third]
    assert await confirm() == []


async def test_a_node_with_such_tasks_takes_nothing_new_whatever_its_heartbeats_say(harbour: Harbour):
    node_id = await harbour.node("n1")
    task_id = uuid4()
    await take(harbour, node_id, task_id)
    await harbour.database.write(lambda c: nodes.close(c, node_id, quarantine.REASON, now=now()))

    async def after_a_beat() -> tuple[bool, str | None]:
        await harbour.beat(node_id, now())
        node = await harbour.node_row(node_id)
        return node.schedulable, node.reason

    assert await after_a_beat() == (False, quarantine.REASON)
    await harbour.submit("web")
    assert [decision.placements for decision in await harbour.propose()] == [()]
    await take(harbour, node_id)
    assert await after_a_beat() == (True, None)


async def test_a_grace_that_is_over_is_as_good_as_a_word(harbour: Harbour):
    node_id = await harbour.node("n1")
    over, later = uuid4(), uuid4()
    await take(harbour, node_id, over, grace=timedelta())
    await take(harbour, node_id, over, later)
    loop = QuarantineLoop(harbour.database, harbour.office)
    assert await loop.once()
    assert await to_end(harbour, node_id) == [over]
    assert not await loop.once()
    assert 3000 < loop.alarm.wait_seconds(5000) <= 3600
