"""Two-phase binding: capacity is held while agents prepare; then all tasks start, or all are pending again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from mooring.binding import preparing
from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.nodes.simulation import SimulationLoop
from mooring.controllers.scheduling.holds import HoldsLoop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.mirror.mirror import Mirror
from mooring.model.errors import Conflict
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.workloads.workload import Kind
from mooring.services.administration.pools import PoolAdmin
from mooring.store.commit import holds
from mooring.store.commit.status_changes import Applied
from mooring.store.core.engine import Connection
from mooring.store.nodes import desired_tasks
from mooring.store.tables import attempts
from mooring.store.tables import holds as holds_table
from mooring.store.tables import tasks as tasks_table
from mooring.wire.cluster.pools import PoolChange
from tests.store.harness import Harness

T = TaskStatus
REFUSED = Reason("image-missing", "no such image", "agent", "change")


class Leader:
    """The loops that a two-phase bind takes, turn by turn."""

    def __init__(self, harness: Harness, nodes: Sequence[UUID] = ()) -> None:
        self.harness = harness
        self.nodes = nodes
        self.scheduling = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
        self.holds = HoldsLoop(harness.fenced)
        self.simulation = SimulationLoop(harness.fenced)

    async def hold(self, name: str = "gang", *, replicas: int = 2) -> UUID:
        """A gang over several nodes with a hold."""
        workload_id = await self.harness.submit(name, replicas=replicas, gang=True, max_per_node=1)
        await self.scheduling.once()
        return workload_id

    async def prepared(self, *task_ids: UUID) -> None:
        await self.harness.database.write(lambda c: holds.mark_prepared(c, task_ids, now()))

    async def refused(self, task_id: UUID, reason: Reason = REFUSED) -> None:
        await self.harness.database.write(
            lambda c: preparing.take_reports(c, [], {task_id: reason}, actor="agent:a", now=now())
        )

    async def expire(self) -> None:
        """The time of every hold is over."""
        past = update(holds_table).values(expires_at=now() - timedelta(seconds=1))
        await self.harness.database.write(lambda c: c.execute(past))

    async def forgive(self) -> None:
        """Nobody backs off any more."""
        await self.harness.database.write(lambda c: c.execute(update(tasks_table).values(not_before=None)))
        self.scheduling = SchedulingLoop(
            Mirror(self.harness.database), Binder(self.harness.database), self.harness.leadership
        )


@pytest.fixture
async def leader(harness: Harness) -> AsyncIterator[Leader]:
    await PoolAdmin(harness.database).change("default", PoolChange(binding="two_phase"))
    made = Leader(harness, [await harness.node(name, cpu=4) for name in ("a", "b")])
    yield made
    made.scheduling.close()


async def test_an_expired_hold_names_the_unfinished_preparation(leader: Leader):
    harness = leader.harness
    gang = await leader.hold()
    first, second = [task.id for task in await harness.tasks(gang)]
    news = {first: Reason("agent", "pulling a: 8 of 9 MB", "agent"), second: Reason("agent", "pulling b", "agent")}
    await harness.database.write(lambda c: desired_tasks.note_progress(c, news))
    await leader.prepared(first)
    await leader.expire()
    await leader.holds.once()
    reason = (await harness.workload(gang)).reason
    assert reason["message"].endswith(", and the agents were not ready (pulling b) by then")


async def test_a_gang_starts_when_all_its_agents_are_ready(leader: Leader):
    harness = leader.harness
    gang = await leader.hold()
    first, second = [task.id for task in await harness.tasks(gang)]
    assert await harness.statuses(gang) == ["RESERVED", "RESERVED"]
    assert await harness.counters(leader.nodes[0]) == (1000, 0, 0)
    await leader.prepared(first)
    await leader.holds.once()
    assert await harness.statuses(gang) == ["RESERVED", "RESERVED"]
    await leader.prepared(second, second)
    await leader.holds.once()
    assert await harness.statuses(gang) == ["SCHEDULED", "SCHEDULED"]
    assert await harness.counters(leader.nodes[0]) == (0, 1000, 0)
    assert await harness.findings() == []


async def test_an_expired_hold_is_released_as_a_whole(leader: Leader):
    harness = leader.harness
    gang = await leader.hold()
    await leader.prepared((await harness.tasks(gang))[0].id)
    await leader.expire()
    await leader.holds.once()
    assert await harness.statuses(gang) == ["PENDING", "PENDING"]
    assert await harness.counters(leader.nodes[0]) == (0, 0, 0)
    assert all(task.prepared_at is None and task.node_id is None for task in await harness.tasks(gang))
    assert (await harness.workload(gang)).reason["code"] == "hold-expired"
    assert await harness.findings() == []


async def test_a_hold_is_extended_while_an_agent_makes_progress_but_not_indefinitely(leader: Leader):
    harness = leader.harness
    await harness.set_options(hold_max_seconds=90)
    gang = await leader.hold()
    one, _ = await harness.tasks(gang)
    async with harness.database.read() as connection:
        since = (await holds.by_workload(connection, gang))[0].created_at

    async def ends(after_seconds: int) -> set[float]:
        at = since + timedelta(seconds=after_seconds)
        await harness.database.write(lambda c: holds.extend(c, [one.id], at))
        async with harness.database.read() as connection:
            return {(each.expires_at - since).total_seconds() for each in await holds.by_workload(connection, gang)}

    assert await ends(0) == {60}
    assert await ends(20) == {80}
    assert await ends(10) == {80}
    assert await ends(50) == {90}
    assert await ends(200) == {90}
    assert await harness.findings() == []


async def test_one_agent_that_cannot_sends_the_whole_gang_back_and_later_each_time(leader: Leader):
    harness = leader.harness
    gang = await leader.hold()
    [one, _] = await harness.tasks(gang)
    before = now()
    await leader.refused(one.id)
    await leader.refused(one.id)
    tasks = await harness.tasks(gang)
    assert [task.status for task in tasks] == ["PENDING", "PENDING"]
    assert all(task.not_before > before for task in tasks)
    assert (await harness.workload(gang)).reason["code"] == "image-missing"
    assert await harness.findings() == []


async def test_a_session_is_not_prepared_again_for_an_image_that_is_not_there(leader: Leader):
    harness = leader.harness
    gang = await harness.set(await leader.hold(), kind=Kind.SESSION)
    [one, _] = await harness.tasks(gang)
    await leader.refused(one.id, Reason("image-not-found", "registry r has no image x", "agent", "change"))
    workload = await harness.workload(gang)
    assert (workload.status, workload.reason["code"]) == ("FAILED", "image-not-found")
    assert await harness.findings() == []


async def test_a_hold_with_a_port_in_use_is_given_up_without_an_attempt_or_a_backoff(leader: Leader):
    harness = leader.harness
    gang = await leader.hold()
    await leader.refused((await harness.tasks(gang))[0].id, Reason("port-in-use", "port 80/TCP", "agent", "change"))
    tasks = await harness.tasks(gang)
    assert [(task.status, task.attempt, task.not_before) for task in tasks] == [("PENDING", 1, None)] * 2
    assert (await harness.workload(gang)).reason["code"] == "port-in-use"
    async with harness.database.read() as connection:
        assert (await connection.execute(select(attempts))).all() == []
    assert await harness.findings() == []


async def test_a_task_that_cannot_be_prepared_is_given_up_after_five_attempts(leader: Leader):
    harness = leader.harness
    gang = await leader.hold()
    for _ in range(5):
        assert await harness.statuses(gang) == ["RESERVED", "RESERVED"]
        await leader.refused((await harness.tasks(gang))[0].id)
        await leader.forgive()
        await leader.scheduling.once()
    assert await harness.statuses(gang) == ["FAILED", "FAILED"]
    assert (await harness.workload(gang)).status == "FAILED"
    async with harness.database.read() as connection:
        rows = (await connection.execute(select(attempts).order_by(attempts.c.first_at, attempts.c.id))).all()
    assert [(row.phase, row.result, row.number) for row in rows] == [("prepare", "retry", 4), ("prepare", "give_up", 1)]
    assert await harness.findings() == []


async def test_a_task_that_cannot_be_prepared_is_requeued_at_lower_priority_if_the_pool_says_so(leader: Leader):
    harness = leader.harness
    await harness.set_options(deprioritise=4)
    gang = await leader.hold()
    for _ in range(5):
        await leader.refused((await harness.tasks(gang))[0].id)
        await leader.forgive()
        await leader.scheduling.once()
    assert await harness.statuses(gang) == ["RESERVED", "RESERVED"]
    assert (await harness.workload(gang)).priority == 6
    received = [row.reason for row in await harness.history(gang) if row.reason and "priority 6" in row.reason]
    assert received == ["no such image; it is requeued with priority 6"]
    assert await harness.findings() == []


async def test_failures_to_prepare_are_reset_by_a_success(leader: Leader):
    harness = leader.harness
    service = await harness.submit("service")
    await leader.scheduling.once()
    for _ in range(4):
        await leader.refused((await harness.tasks(service))[0].id)
        await leader.forgive()
        await leader.scheduling.once()
    [task] = await harness.tasks(service)
    await leader.prepared(task.id)
    await leader.holds.once()
    await harness.move(task, T.RUNNING, T.FAILED)
    await harness.replace_ended()
    await leader.forgive()
    await leader.scheduling.once()
    [replacement] = await harness.tasks(service)
    assert replacement.status == "RESERVED"
    await leader.refused(replacement.id)
    assert await harness.statuses(service) == ["PENDING"]


async def test_a_new_hold_of_the_same_workload_has_its_own_expiry(leader: Leader):
    harness = leader.harness
    gang = await leader.hold()
    first, second = await harness.tasks(gang)
    await leader.prepared(first.id, second.id)

    async with harness.database.read() as connection:
        [seen] = await holds.held_workloads(connection)
    # What was read is over before anybody acts on it.
    await leader.refused(first.id)
    await leader.forgive()
    await leader.scheduling.once()
    assert seen.ready
    term = harness.leadership.term
    await harness.database.write(lambda c: preparing.settle(c, seen.workload_id, term=term, now=now()))
    assert await harness.statuses(gang) == ["RESERVED", "RESERVED"]


async def test_a_hold_that_the_database_rejects_does_not_block_others(leader: Leader, monkeypatch: pytest.MonkeyPatch):
    harness = leader.harness
    bad, good = await leader.hold("bad"), await leader.hold("good")
    await leader.prepared(*(task.id for task in await harness.tasks(bad) + await harness.tasks(good)))
    settle = preparing.settle

    async def refuse_the_first(connection: Connection, workload_id: UUID, **more: Any) -> Applied | None:
        if workload_id == bad:
            raise IntegrityError("INSERT", {}, Exception("no"))
        return await settle(connection, workload_id, **more)

    monkeypatch.setattr(preparing, "settle", refuse_the_first)
    await leader.holds.once()
    assert (await harness.statuses(bad), await harness.statuses(good)) == (["RESERVED"] * 2, ["SCHEDULED"] * 2)


async def test_a_node_that_closes_meanwhile_sends_the_gang_back(leader: Leader):
    harness = leader.harness
    gang = await leader.hold()
    tasks = await harness.tasks(gang)
    await harness.drain(tasks[0].node_id)
    await leader.prepared(*(task.id for task in tasks))
    await leader.holds.once()
    assert await harness.statuses(gang) == ["PENDING", "PENDING"]
    assert (await harness.workload(gang)).reason["code"] == "hold-broken"


async def test_a_lost_node_releases_the_holds_of_the_whole_gang(leader: Leader):
    harness = leader.harness
    gang = await leader.hold()
    [one, _] = await harness.tasks(gang)
    await harness.drain(one.node_id)
    await harness.draining_loop().once()
    assert await harness.statuses(gang) == ["PENDING", "PENDING"]
    assert [await harness.counters(node) for node in leader.nodes] == [(0, 0, 0), (0, 0, 0)]
    assert await harness.findings() == []


async def test_a_workload_that_is_stopped_while_it_is_held_leaves_nothing_behind(leader: Leader):
    harness = leader.harness
    gang = await leader.hold()
    await harness.stop(gang)
    await leader.prepared(*(task.id for task in await harness.tasks(gang)))
    await leader.holds.once()
    assert await harness.statuses(gang) == ["CANCELLED", "CANCELLED"]
    assert await harness.counters(leader.nodes[0]) == (0, 0, 0)
    assert await harness.findings() == []


async def test_a_bind_without_its_hold_is_refused_with_a_code_of_its_own(leader: Leader):
    harness = leader.harness
    gang = await leader.hold()

    async def admit() -> None:
        await harness.database.write(lambda c: holds.admit(c, gang, actor="test", now=now(), term=None))

    await leader.expire()
    with pytest.raises(Conflict) as expired:
        await admit()
    await leader.holds.once()
    with pytest.raises(Conflict) as unknown:
        await admit()
    assert (expired.value.code, unknown.value.code) == ("hold-expired", "hold-unknown")


async def test_a_new_leader_continues_with_the_holds(leader: Leader):
    harness = leader.harness
    gang = await leader.hold()
    await leader.prepared(*(task.id for task in await harness.tasks(gang)))
    successor = Leader(harness)
    try:
        await successor.holds.once()
    finally:
        successor.scheduling.close()
    assert await harness.statuses(gang) == ["SCHEDULED", "SCHEDULED"]


async def test_simulated_nodes_are_always_ready(harness: Harness):
    await PoolAdmin(harness.database).change("default", PoolChange(binding="two_phase"))
    await harness.node("sim", cpu=4, simulated=True)
    leader = Leader(harness)
    try:
        workload = await harness.submit("one")
        for loop in (leader.scheduling, leader.simulation, leader.holds, leader.simulation):
            await loop.once()
    finally:
        leader.scheduling.close()
    assert await harness.statuses(workload) == ["RUNNING"]
