"""Preemption as a whole: victims and the hold commit together, and the preemptor starts when the room is real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import select, update

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.holds import HoldsLoop
from mooring.controllers.lifecycle import LifecycleLoop
from mooring.controllers.scheduling import SchedulingLoop
from mooring.intake.pools import PoolAdmin
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus
from mooring.model.quotas import Scope
from mooring.model.tenants import Principal
from mooring.model.workloads import Kind, OnInsufficient
from mooring.store import projects, quotas
from mooring.store.engine import Connection
from mooring.store.quotas import QuotaChange
from mooring.store.tables import attempts
from mooring.store.tables import holds as holds_table
from mooring.wire.pools import PoolChange
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

T = TaskStatus
URGENT = 90


class Cluster:
    """Two full nodes, and the loops of a leader turn by turn."""

    def __init__(self, harbour: Harbour, nodes: Sequence[UUID]) -> None:
        self.harbour = harbour
        self.nodes = nodes
        self.scheduling = SchedulingLoop(Mirror(harbour.database), Binder(harbour.database), harbour.office)
        self.holds = HoldsLoop(harbour.database, harbour.office)
        self.lifecycle = LifecycleLoop(harbour.database, harbour.office)

    async def allow(self, **rules: object) -> None:
        change = PoolChange.model_validate({"preemption": rules})
        await PoolAdmin(self.harbour.database).change("default", change)

    async def occupy(self, name: str, **more: object) -> UUID:
        """A workload that runs."""
        workload_id = await self.harbour.submit(name, **{"kind": Kind.SESSION, "cpu": 4, **more})  # type: ignore[arg-type]
        await self.scheduling.once()
        for task in await self.harbour.tasks(workload_id):
            await self.harbour.move(task, T.RUNNING)
        return workload_id

    async def ask(self, name: str = "urgent", **more: object) -> UUID:
        """A workload of high priority, and a pass."""
        asked = {"kind": Kind.SESSION, "cpu": 4, "priority": URGENT, **more}
        workload_id = await self.harbour.submit(name, **asked)  # type: ignore[arg-type]
        await self.scheduling.once()
        return workload_id

    async def leave(self, workload_id: UUID) -> None:
        """The agents report that nothing is left of what was asked to stop."""
        for task in await self.harbour.tasks(workload_id, current=False):
            if task.status == T.TERMINATING:
                await self.harbour.move(task, T.CANCELLED)
        await self.holds.once()
        await self.lifecycle.once()


@pytest.fixture
async def cluster(harbour: Harbour) -> AsyncIterator[Cluster]:
    made = Cluster(harbour, [await harbour.node(name, cpu=4) for name in ("a", "b")])
    yield made
    made.scheduling.close()


async def test_nobody_leaves_where_the_pool_does_not_allow_it(cluster: Cluster):
    low = await cluster.occupy("low", replicas=2)
    urgent = await cluster.ask()
    assert await cluster.harbour.statuses(urgent) == ["PENDING"]
    assert await cluster.harbour.statuses(low) == ["RUNNING", "RUNNING"]


async def test_a_victim_leaves_and_the_preemptor_starts_when_the_room_is_real(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow()
    first, second = await cluster.occupy("first"), await cluster.occupy("second")
    urgent = await cluster.ask()
    assert await harbour.statuses(urgent) == ["RESERVED"]
    [held] = await harbour.tasks(urgent)
    [victim] = [w for w in (first, second) if (await harbour.tasks(w))[0].node_id == held.node_id]
    [leaving] = await harbour.tasks(victim)
    assert (leaving.status, leaving.preempted_by, leaving.requeue) == ("TERMINATING", urgent, True)
    assert leaving.reason["code"] == "preempted"
    assert "priority 90" in leaving.reason["message"]
    assert (await harbour.counters(held.node_id), await harbour.leaving(held.node_id)) == ((4000, 0, 4000), 4000)
    # The victim's workload waits again, and the place is kept: nobody else gets it.
    assert (await harbour.workload(victim)).status == "PENDING"
    other = await harbour.submit("other", cpu=1)
    await cluster.scheduling.once()
    await cluster.holds.once()
    assert (await harbour.statuses(urgent), await harbour.statuses(other)) == (["RESERVED"], ["PENDING"])
    await cluster.leave(victim)
    assert await harbour.statuses(urgent) == ["SCHEDULED"]
    [again] = await harbour.tasks(victim)
    assert (again.status, again.attempt) == ("PENDING", 2)
    assert await harbour.findings() == []


async def test_who_finds_room_in_a_pass_keeps_it_beside_who_makes_room(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow()
    await cluster.occupy("fixed", preemptible=False)
    await cluster.occupy("low", cpu=3)
    small = await harbour.submit("small", kind=Kind.SESSION, cpu=1)
    urgent = await cluster.ask(cpu=3)
    assert (await harbour.statuses(small), await harbour.statuses(urgent)) == (["SCHEDULED"], ["RESERVED"])
    assert await harbour.findings() == []


async def test_in_the_mode_terminate_victims_end_for_good(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow(mode="terminate")
    low = await cluster.occupy("low")
    await cluster.occupy("also-low")
    urgent = await cluster.ask(cpu=4, replicas=2, gang=True)
    assert await harbour.statuses(urgent) == ["RESERVED", "RESERVED"]
    await cluster.leave(low)
    assert (await harbour.workload(low)).status == "CANCELLED"
    assert await harbour.statuses(urgent) == ["RESERVED", "RESERVED"]


async def test_a_whole_gang_leaves_with_the_one_that_has_to(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow()
    gang = await cluster.occupy("gang", replicas=2, gang=True)
    await cluster.ask()
    assert await harbour.statuses(gang) == ["TERMINATING", "TERMINATING"]
    await cluster.leave(gang)
    assert await harbour.statuses(gang) == ["PENDING", "PENDING"]
    assert await harbour.findings() == []


@pytest.mark.parametrize(
    ("start", "left"),
    [({"gang": True}, []), ({"on_insufficient": OnInsufficient.FAIL}, ["RUNNING"]), ({}, ["RUNNING"])],
    ids=["a gang", "one that had to start at once", "any other"],
)
async def test_a_deployment_loses_single_replicas_unless_it_is_a_gang(
    cluster: Cluster, start: dict[str, object], left: list[str]
):
    await cluster.allow()
    service = await cluster.occupy("service", kind=Kind.DEPLOYMENT, replicas=2, **start)
    await cluster.ask()
    assert [status for status in await cluster.harbour.statuses(service) if status == "RUNNING"] == left


async def test_a_gang_that_had_to_leave_comes_back_as_a_whole(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow()
    gang = await cluster.occupy("gang", replicas=2, gang=True)
    urgent = await cluster.ask()
    tasks = await harbour.tasks(gang)
    [kept] = await harbour.tasks(urgent)
    # One of them is slow to leave: there is room for the other, and it waits.
    [slow] = [task for task in tasks if task.node_id == kept.node_id]
    [quick] = [task for task in tasks if task is not slow]
    await harbour.move(quick, T.CANCELLED)
    await cluster.lifecycle.once()
    await cluster.scheduling.once()
    assert sorted(await harbour.statuses(gang)) == ["CANCELLED", "TERMINATING"]
    await harbour.move(slow, T.CANCELLED)
    await cluster.lifecycle.once()
    assert [(task.status, task.attempt) for task in await harbour.tasks(gang)] == [("PENDING", 2)] * 2
    assert await harbour.findings() == []


async def test_whoever_has_shares_of_a_device_leaves_for_one_who_needs_it_whole(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow()
    node_id = await harbour.node("g", cpu=64, slots={"gpu": 2})
    low = [await cluster.occupy(f"low-{number}", cpu=1, slots={"gpu": "0.5"}) for number in range(4)]
    urgent = await cluster.ask(cpu=1, slots={"gpu": 1})
    [held] = await harbour.tasks(urgent)
    [[index, amount]] = held.devices["gpu"]
    assert (held.status, amount, (await harbour.taken(node_id))[index]) == ("RESERVED", 1000, 2000)
    leaving = [w for w in low if await harbour.statuses(w) == ["TERMINATING"]]
    assert [(await harbour.tasks(w))[0].devices for w in leaving] == [{"gpu": [[index, 500]]}] * 2
    await cluster.leave(leaving[0])
    assert await harbour.statuses(urgent) == ["RESERVED"]
    await cluster.leave(leaving[1])
    assert await harbour.statuses(urgent) == ["SCHEDULED"]
    assert await harbour.taken(node_id) == {0: 1000, 1: 1000}
    assert await harbour.findings() == []


async def test_a_victim_that_did_its_work_before_it_left_is_done(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow()
    low = await cluster.occupy("low")
    await cluster.occupy("also-low", priority=20)
    await cluster.ask()
    [task] = await harbour.tasks(low)
    assert task.status == "TERMINATING"
    await harbour.move(task, T.SUCCEEDED)
    await cluster.lifecycle.once()
    assert (await harbour.workload(low)).status == "SUCCEEDED"
    assert await harbour.statuses(low) == ["SUCCEEDED"]


async def test_a_budget_is_kept_where_others_can_leave(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow()
    service = await cluster.occupy("service", kind=Kind.DEPLOYMENT, min_available=1)
    batch = await cluster.occupy("batch")
    await cluster.ask()
    assert (await harbour.statuses(service), await harbour.statuses(batch)) == (["RUNNING"], ["TERMINATING"])


async def test_equal_priority_unpreemptible_and_young_tasks_stay(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow(min_runtime_seconds=3600)
    equal = await cluster.occupy("equal", priority=URGENT)
    fixed = await cluster.occupy("fixed", preemptible=False)
    urgent = await cluster.ask()
    assert await harbour.statuses(urgent) == ["PENDING"]
    await cluster.allow()
    await cluster.scheduling.once()
    assert await harbour.statuses(urgent) == ["PENDING"]
    assert (await harbour.statuses(equal), await harbour.statuses(fixed)) == (["RUNNING"], ["RUNNING"])


async def test_a_victim_that_is_too_young_is_looked_at_again_when_it_is_old_enough(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow(min_runtime_seconds=3600)
    low = await cluster.occupy("low")
    await cluster.occupy("also-low")
    urgent = await cluster.ask()
    assert await harbour.statuses(urgent) == ["PENDING"]
    due = cluster.scheduling.room.next_time()
    assert due is not None
    assert timedelta(minutes=59) < due - now() <= timedelta(minutes=60)
    assert await harbour.statuses(low) == ["RUNNING"]


async def test_a_place_that_does_not_come_free_in_time_is_given_up_and_is_no_attempt(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow()
    low = await cluster.occupy("low")
    await cluster.occupy("also-low")
    urgent = await cluster.ask()
    past = update(holds_table).values(expires_at=now() - timedelta(seconds=1))
    await harbour.database.write(lambda c: c.execute(past))
    await cluster.holds.once()
    [task] = await harbour.tasks(urgent)
    assert (task.status, task.not_before) == ("PENDING", None)
    assert (await harbour.workload(urgent)).reason["code"] == "hold-expired"
    assert await harbour.rows(select(attempts)) == []
    # Those that leave for it still do, so nobody else has to; it starts when they have left.
    await cluster.scheduling.once()
    assert await harbour.statuses(urgent) == ["PENDING"]
    await cluster.leave(low)
    await cluster.scheduling.once()
    assert await harbour.findings() == []


async def test_a_preemptor_that_is_cancelled_gives_its_place_back(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow()
    low = await cluster.occupy("low")
    await cluster.occupy("also-low")
    urgent = await cluster.ask(replicas=2, gang=True)
    await harbour.stop(urgent)
    await cluster.leave(low)
    assert await harbour.statuses(urgent) == ["CANCELLED", "CANCELLED"]
    assert [await harbour.counters(node) for node in cluster.nodes] in (
        [(0, 0, 0), (0, 0, 4000)],
        [(0, 0, 4000), (0, 0, 0)],
    )
    assert await harbour.findings() == []


async def test_the_mirror_tells_who_may_leave_as_it_changes(cluster: Cluster):
    """What runs is known from the start, from the feed, and when a pool comes to allow preemption."""
    harbour = cluster.harbour
    low = await cluster.occupy("low")
    mirror = Mirror(harbour.database)
    await mirror.load()
    assert list(mirror.residents.nodes) == []
    await cluster.allow()
    await mirror.follow()
    [resident] = mirror.residents.of_workload(low)
    assert (resident.priority, resident.request["cpu"], resident.preemptible) == (10, 4000, True)
    await harbour.stop(low)
    await cluster.leave(low)
    await mirror.follow()
    assert mirror.residents.of_workload(low) == []
    assert resident.started_at is not None
    assert resident.started_at <= now()


async def test_who_has_devices_leaves_them_to_the_preemptor(cluster: Cluster):
    harbour = cluster.harbour
    await cluster.allow()
    lab = await harbour.node("lab", slots={"gpu": 3})
    low = await cluster.occupy("low", cpu="100m", slots={"gpu": 3})
    urgent = await cluster.ask(cpu="100m", slots={"gpu": 2})
    assert await harbour.statuses(urgent) == ["RESERVED"]
    await cluster.leave(low)
    assert await harbour.statuses(urgent) == ["SCHEDULED"]
    assert await harbour.taken(lab) == {0: 1000, 1: 1000, 2: 0}
    assert await harbour.findings() == []


@on_sqlite
async def test_a_project_takes_back_what_it_is_guaranteed_of_what_another_borrowed(harbour: Harbour, cluster: Cluster):
    lender = harbour.principal

    async def lend(connection: Connection) -> Principal:
        made, _ = await projects.ensure(connection, lender.domain_id, "borrower", now())
        for project_id in (lender.project_id, made):
            found = await quotas.find(connection, Scope.PROJECT, str(project_id))
            change = QuotaChange(guaranteed={"cpu": 4000}, pool="default")
            await quotas.set_quota(connection, found, change, now())
        return replace(lender, project_id=made)

    harbour.principal = await harbour.database.write(lend)
    await cluster.allow(scope="reclaim", mode="requeue")
    first = await cluster.occupy("first", priority=90)
    second = await cluster.occupy("second", priority=90)
    assert await harbour.statuses(await cluster.ask("third", priority=99)) == ["PENDING"]
    harbour.principal = lender
    mine = await cluster.ask("mine", priority=0)
    assert await harbour.statuses(mine) == ["RESERVED"]
    assert [await harbour.statuses(each) for each in (first, second)] == [["RUNNING"], ["TERMINATING"]]
    await cluster.leave(second)
    assert await harbour.statuses(mine) == ["SCHEDULED"]
    assert await harbour.statuses(await cluster.ask("too-much", priority=99)) == ["PENDING"]
    assert not await harbour.findings()
