"""Preemption as a whole: victims and the hold commit together, and the preemptor starts when the victims are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import select, update

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.scheduling.holds import HoldsLoop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.controllers.workloads.lifecycle import LifecycleLoop
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.quotas import Scope
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.workload import Kind, OnInsufficient
from mooring.services.administration.pools import PoolAdmin
from mooring.store.core.engine import Connection
from mooring.store.tables import attempts
from mooring.store.tables import holds as holds_table
from mooring.store.tenancy import projects, quotas
from mooring.store.tenancy.quotas import QuotaChange
from mooring.wire.cluster.pools import PoolChange
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

T = TaskStatus
URGENT = 90


class Cluster:
    """Two full nodes, and the loops of a leader turn by turn."""

    def __init__(self, harness: Harness, nodes: Sequence[UUID]) -> None:
        self.harness = harness
        self.nodes = nodes
        self.scheduling = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
        self.holds = HoldsLoop(harness.fenced)
        self.lifecycle = LifecycleLoop(harness.fenced)

    async def allow(self, **rules: object) -> None:
        change = PoolChange.model_validate({"preemption": rules})
        await PoolAdmin(self.harness.database).change("default", change)

    async def occupy(self, name: str, **more: object) -> UUID:
        """A workload that runs."""
        workload_id = await self.harness.submit(name, **{"kind": Kind.SESSION, "cpu": 4, **more})  # type: ignore[arg-type]
        await self.scheduling.once()
        for task in await self.harness.tasks(workload_id):
            await self.harness.move(task, T.RUNNING)
        return workload_id

    async def ask(self, name: str = "urgent", **more: object) -> UUID:
        """A workload of high priority, and a pass."""
        asked = {"kind": Kind.SESSION, "cpu": 4, "priority": URGENT, **more}
        workload_id = await self.harness.submit(name, **asked)  # type: ignore[arg-type]
        await self.scheduling.once()
        return workload_id

    async def leave(self, workload_id: UUID) -> None:
        """The agents report that nothing is left of what was asked to stop."""
        for task in await self.harness.tasks(workload_id, current=False):
            if task.status == T.TERMINATING:
                await self.harness.move(task, T.CANCELLED)
        await self.holds.once()
        await self.lifecycle.once()


@pytest.fixture
async def cluster(harness: Harness) -> AsyncIterator[Cluster]:
    made = Cluster(harness, [await harness.node(name, cpu=4) for name in ("a", "b")])
    yield made
    made.scheduling.close()


async def test_nothing_is_preempted_where_the_pool_forbids_it(cluster: Cluster):
    low = await cluster.occupy("low", replicas=2)
    urgent = await cluster.ask()
    assert await cluster.harness.statuses(urgent) == ["PENDING"]
    assert await cluster.harness.statuses(low) == ["RUNNING", "RUNNING"]


async def test_the_preemptor_starts_when_its_victims_have_released_the_capacity(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow()
    first, second = await cluster.occupy("first"), await cluster.occupy("second")
    urgent = await cluster.ask()
    assert await harness.statuses(urgent) == ["RESERVED"]
    [held] = await harness.tasks(urgent)
    [victim] = [w for w in (first, second) if (await harness.tasks(w))[0].node_id == held.node_id]
    [leaving] = await harness.tasks(victim)
    assert (leaving.status, leaving.preempted_by, leaving.requeue) == ("TERMINATING", urgent, True)
    assert leaving.reason["code"] == "preempted"
    assert "priority 90" in leaving.reason["message"]
    assert (await harness.counters(held.node_id), await harness.leaving(held.node_id)) == ((4000, 0, 4000), 4000)
    # The victim's workload is pending again, and the capacity is held: no other work gets it.
    assert (await harness.workload(victim)).status == "PENDING"
    other = await harness.submit("other", cpu=1)
    await cluster.scheduling.once()
    await cluster.holds.once()
    assert (await harness.statuses(urgent), await harness.statuses(other)) == (["RESERVED"], ["PENDING"])
    await cluster.leave(victim)
    assert await harness.statuses(urgent) == ["SCHEDULED"]
    [again] = await harness.tasks(victim)
    assert (again.status, again.attempt) == ("PENDING", 2)
    assert await harness.findings() == []


async def test_a_placement_stands_beside_a_preemption_in_the_same_pass(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow()
    await cluster.occupy("fixed", preemptible=False)
    await cluster.occupy("low", cpu=3)
    small = await harness.submit("small", kind=Kind.SESSION, cpu=1)
    urgent = await cluster.ask(cpu=3)
    assert (await harness.statuses(small), await harness.statuses(urgent)) == (["SCHEDULED"], ["RESERVED"])
    assert await harness.findings() == []


async def test_in_the_mode_terminate_victims_are_not_requeued(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow(mode="terminate")
    low = await cluster.occupy("low")
    await cluster.occupy("also-low")
    urgent = await cluster.ask(cpu=4, replicas=2, gang=True)
    assert await harness.statuses(urgent) == ["RESERVED", "RESERVED"]
    await cluster.leave(low)
    assert (await harness.workload(low)).status == "CANCELLED"
    assert await harness.statuses(urgent) == ["RESERVED", "RESERVED"]


async def test_a_whole_gang_leaves_with_the_one_that_has_to(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow()
    gang = await cluster.occupy("gang", replicas=2, gang=True)
    await cluster.ask()
    assert await harness.statuses(gang) == ["TERMINATING", "TERMINATING"]
    await cluster.leave(gang)
    assert await harness.statuses(gang) == ["PENDING", "PENDING"]
    assert await harness.findings() == []


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
    assert [status for status in await cluster.harness.statuses(service) if status == "RUNNING"] == left


async def test_a_preempted_gang_is_requeued_as_a_whole(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow()
    gang = await cluster.occupy("gang", replicas=2, gang=True)
    urgent = await cluster.ask()
    tasks = await harness.tasks(gang)
    [stored] = await harness.tasks(urgent)
    # One victim stops slowly: there is capacity for one task, and the gang waits.
    [slow] = [task for task in tasks if task.node_id == stored.node_id]
    [quick] = [task for task in tasks if task is not slow]
    await harness.move(quick, T.CANCELLED)
    await cluster.lifecycle.once()
    await cluster.scheduling.once()
    assert sorted(await harness.statuses(gang)) == ["CANCELLED", "TERMINATING"]
    await harness.move(slow, T.CANCELLED)
    await cluster.lifecycle.once()
    assert [(task.status, task.attempt) for task in await harness.tasks(gang)] == [("PENDING", 2)] * 2
    assert await harness.findings() == []


async def test_tasks_with_shares_of_a_device_are_victims_of_a_task_that_needs_the_whole_device(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow()
    node_id = await harness.node("g", cpu=64, slots={"gpu": 2})
    low = [await cluster.occupy(f"low-{number}", cpu=1, slots={"gpu": "0.5"}) for number in range(4)]
    urgent = await cluster.ask(cpu=1, slots={"gpu": 1})
    [held] = await harness.tasks(urgent)
    [[index, amount]] = held.devices["gpu"]
    assert (held.status, amount, (await harness.taken(node_id))[index]) == ("RESERVED", 1000, 2000)
    leaving = [w for w in low if await harness.statuses(w) == ["TERMINATING"]]
    assert [(await harness.tasks(w))[0].devices for w in leaving] == [{"gpu": [[index, 500]]}] * 2
    await cluster.leave(leaving[0])
    assert await harness.statuses(urgent) == ["RESERVED"]
    await cluster.leave(leaving[1])
    assert await harness.statuses(urgent) == ["SCHEDULED"]
    assert await harness.taken(node_id) == {0: 1000, 1: 1000}
    assert await harness.findings() == []


async def test_a_victim_that_did_its_work_before_it_left_is_done(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow()
    low = await cluster.occupy("low")
    await cluster.occupy("also-low", priority=20)
    await cluster.ask()
    [task] = await harness.tasks(low)
    assert task.status == "TERMINATING"
    await harness.move(task, T.SUCCEEDED)
    await cluster.lifecycle.once()
    assert (await harness.workload(low)).status == "SUCCEEDED"
    assert await harness.statuses(low) == ["SUCCEEDED"]


async def test_a_budget_holds_where_other_victims_exist(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow()
    service = await cluster.occupy("service", kind=Kind.DEPLOYMENT, min_available=1)
    batch = await cluster.occupy("batch")
    await cluster.ask()
    assert (await harness.statuses(service), await harness.statuses(batch)) == (["RUNNING"], ["TERMINATING"])


async def test_equal_priority_unpreemptible_and_young_tasks_stay(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow(min_runtime_seconds=3600)
    equal = await cluster.occupy("equal", priority=URGENT)
    fixed = await cluster.occupy("fixed", preemptible=False)
    urgent = await cluster.ask()
    assert await harness.statuses(urgent) == ["PENDING"]
    await cluster.allow()
    await cluster.scheduling.once()
    assert await harness.statuses(urgent) == ["PENDING"]
    assert (await harness.statuses(equal), await harness.statuses(fixed)) == (["RUNNING"], ["RUNNING"])


async def test_a_victim_that_is_too_young_is_looked_at_again_when_it_is_old_enough(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow(min_runtime_seconds=3600)
    low = await cluster.occupy("low")
    await cluster.occupy("also-low")
    urgent = await cluster.ask()
    assert await harness.statuses(urgent) == ["PENDING"]
    due = cluster.scheduling.pending_queue.next_time()
    assert due is not None
    assert timedelta(minutes=59) < due - now() <= timedelta(minutes=60)
    assert await harness.statuses(low) == ["RUNNING"]


async def test_a_preemption_hold_that_expires_is_released_and_counts_as_no_attempt(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow()
    low = await cluster.occupy("low")
    await cluster.occupy("also-low")
    urgent = await cluster.ask()
    past = update(holds_table).values(expires_at=now() - timedelta(seconds=1))
    await harness.database.write(lambda c: c.execute(past))
    await cluster.holds.once()
    [task] = await harness.tasks(urgent)
    assert (task.status, task.not_before) == ("PENDING", None)
    assert (await harness.workload(urgent)).reason["code"] == "hold-expired"
    assert await harness.rows(select(attempts)) == []
    # Its victims are still leaving, so no other task has to; it starts when they have left.
    await cluster.scheduling.once()
    assert await harness.statuses(urgent) == ["PENDING"]
    await cluster.leave(low)
    await cluster.scheduling.once()
    assert await harness.findings() == []


async def test_a_cancelled_preemptor_releases_its_hold(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow()
    low = await cluster.occupy("low")
    await cluster.occupy("also-low")
    urgent = await cluster.ask(replicas=2, gang=True)
    await harness.stop(urgent)
    await cluster.leave(low)
    assert await harness.statuses(urgent) == ["CANCELLED", "CANCELLED"]
    assert [await harness.counters(node) for node in cluster.nodes] in (
        [(0, 0, 0), (0, 0, 4000)],
        [(0, 0, 4000), (0, 0, 0)],
    )
    assert await harness.findings() == []


async def test_the_mirror_keeps_the_preemption_candidates_current(cluster: Cluster):
    """The mirror reads running tasks once a pool allows preemption, and follows them from the feed."""
    harness = cluster.harness
    low = await cluster.occupy("low")
    mirror = Mirror(harness.database)
    await mirror.load()
    assert list(mirror.running_tasks.nodes) == []
    await cluster.allow()
    await mirror.follow()
    [running_task] = mirror.running_tasks.of_workload(low)
    assert (running_task.priority, running_task.request["cpu"], running_task.preemptible) == (10, 4000, True)
    await harness.stop(low)
    await cluster.leave(low)
    await mirror.follow()
    assert mirror.running_tasks.of_workload(low) == []
    assert running_task.started_at is not None
    assert running_task.started_at <= now()


async def test_victims_leave_their_devices_to_the_preemptor(cluster: Cluster):
    harness = cluster.harness
    await cluster.allow()
    lab = await harness.node("lab", slots={"gpu": 3})
    low = await cluster.occupy("low", cpu="100m", slots={"gpu": 3})
    urgent = await cluster.ask(cpu="100m", slots={"gpu": 2})
    assert await harness.statuses(urgent) == ["RESERVED"]
    await cluster.leave(low)
    assert await harness.statuses(urgent) == ["SCHEDULED"]
    assert await harness.taken(lab) == {0: 1000, 1: 1000, 2: 0}
    assert await harness.findings() == []


@on_sqlite
async def test_a_project_reclaims_its_guarantee_from_a_borrower(harness: Harness, cluster: Cluster):
    lender = harness.principal

    async def lend(connection: Connection) -> Principal:
        made, _ = await projects.ensure(connection, lender.domain_id, "borrower", now())
        for project_id in (lender.project_id, made):
            found = await quotas.find(connection, Scope.PROJECT, str(project_id))
            change = QuotaChange(guaranteed={"cpu": 4000}, pool="default")
            await quotas.set_quota(connection, found, change, now())
        return replace(lender, project_id=made)

    harness.principal = await harness.database.write(lend)
    await cluster.allow(scope="reclaim", mode="requeue")
    first = await cluster.occupy("first", priority=90)
    second = await cluster.occupy("second", priority=90)
    assert await harness.statuses(await cluster.ask("third", priority=99)) == ["PENDING"]
    harness.principal = lender
    mine = await cluster.ask("mine", priority=0)
    assert await harness.statuses(mine) == ["RESERVED"]
    assert [await harness.statuses(each) for each in (first, second)] == [["RUNNING"], ["TERMINATING"]]
    await cluster.leave(second)
    assert await harness.statuses(mine) == ["SCHEDULED"]
    assert await harness.statuses(await cluster.ask("too-much", priority=99)) == ["PENDING"]
    assert not await harness.findings()
