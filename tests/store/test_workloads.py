"""Workloads over time: submitted, scaled, stopped, removed, their tasks replaced."""

from datetime import timedelta

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads import Kind
from mooring.store import successors, workloads
from mooring.store.successors import Successor
from mooring.store.views import workloads as views
from mooring.store.views.placed import placed
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

T = TaskStatus


async def test_a_submission_is_written_whole(harbour: Harbour):
    workload_id = await harbour.submit("web", replicas=2, cpu="1500m", memory="1Gi")
    workload = await harbour.workload(workload_id)
    assert (workload.status, workload.version, workload.replicas, workload.next_index) == ("PENDING", 1, 2, 2)
    tasks = await harbour.tasks(workload_id)
    assert [(t.task_index, t.attempt, t.status, t.occupied_slots) for t in tasks] == [
        (0, 1, "PENDING", {}),
        (1, 1, "PENDING", {}),
    ]
    for task in tasks:
        rows = await harbour.ledger(task.id)
        assert {slot: (r.requested, r.held, r.reserved, r.used) for slot, r in rows.items()} == {
            "cpu": (1500, 0, 0, 0),
            "memory": (2**30, 0, 0, 0),
        }
    assert [(h.old_status, h.new_status) for h in await harbour.history(workload_id)] == [("none", "PENDING")]
    assert [e.kind for e in await harbour.feed(workload_id)] == ["PENDING"]


async def test_how_tasks_belong_together_is_written_and_read(harbour: Harbour):
    plain = await harbour.submit("plain")
    whole = await harbour.submit(
        "whole",
        replicas=4,
        min_tasks=3,
        single_node=True,
        pack=("zone", "rack"),
        preempts=False,
        preemptible=False,
        min_available=2,
    )
    async with harbour.database.read() as connection:
        waits = {workload.id: workload for workload in await workloads.waiting(connection)}
        rows = {each: await views.by_id(connection, each) for each in (plain, whole)}
    read = [(w.min_tasks, w.single_node, w.pack, w.preempts) for w in (waits[plain], waits[whole])]
    assert read == [(None, False, (), True), (3, True, ("zone", "rack"), False)]
    who = harbour.principal
    assert {(w.user_id, w.project_id, w.domain_id) for w in waits.values()} == {
        (who.user_id, who.project_id, who.domain_id)
    }
    seen = [(row.preemptible, row.min_available, row.min_tasks) for row in rows.values() if row is not None]
    assert seen == [(True, None, None), (False, 2, 3)]


async def test_tasks_that_stay_on_one_node_are_read_with_it(harbour: Harbour):
    await harbour.node("n1", cpu=8, memory="8Gi")
    workload_id = await harbour.submit("whole", replicas=2, single_node=True)
    await harbour.bind(await harbour.propose())
    async with harbour.database.read() as connection:
        there = await placed(connection, workload_id)
    assert there is not None
    assert (there.workload.single_node, list(there.workload.occupied.values())) == (True, [2])
    assert there.workload.project_id == harbour.principal.project_id
    assert await harbour.findings() == []


@on_sqlite
async def test_scaling_up_adds_tasks_that_wait(harbour: Harbour):
    await harbour.node("n1")
    service = await harbour.submit("web")
    await harbour.run(service)
    await harbour.scale(service, 3)
    assert [(t.task_index, t.status) for t in await harbour.tasks(service)] == [
        (0, "RUNNING"),
        (1, "PENDING"),
        (2, "PENDING"),
    ]
    workload = await harbour.workload(service)
    assert (workload.status, workload.replicas) == ("RUNNING", 3)
    assert [e.kind for e in await harbour.feed(service)][-1] == "scaled"
    assert await harbour.findings() == []


@on_sqlite
async def test_scaling_down_stops_what_waits_first_then_the_newest(harbour: Harbour):
    await harbour.node("n1", cpu=2)
    service = await harbour.submit("web", replicas=1)
    await harbour.run(service)
    await harbour.scale(service, 3)
    await harbour.run(service)
    # Three replicas: 0 and 1 run, 2 waits for room.
    assert await harbour.statuses(service) == ["RUNNING", "RUNNING", "PENDING"]
    await harbour.scale(service, 2)
    assert [t.task_index for t in await harbour.tasks(service)] == [0, 1]
    await harbour.scale(service, 1)
    assert [(t.task_index, t.status) for t in await harbour.tasks(service)] == [(0, "RUNNING")]
    # Somebody may just have been sent to it: it leaves the endpoints now and is stopped a little later.
    there = {t.task_index: (t.status, t.retires_at is not None) for t in await harbour.tasks(service, current=False)}
    assert there == {0: ("RUNNING", False), 1: ("RUNNING", True), 2: ("CANCELLED", False)}
    assert (await harbour.workload(service)).status == "RUNNING"
    assert await harbour.findings() == []
    # A later replica gets a number that was never used.
    await harbour.scale(service, 2)
    assert [t.task_index for t in await harbour.tasks(service)] == [0, 3]


@on_sqlite
async def test_scaling_down_takes_a_replica_that_failed_before_one_that_runs(harbour: Harbour):
    await harbour.node("n1")
    service = await harbour.submit("web", replicas=2)
    _, failing = await harbour.run(service)
    await harbour.move(failing, T.FAILED)
    await harbour.scale(service, 1)
    assert [(t.task_index, t.status) for t in await harbour.tasks(service)] == [(0, "RUNNING")]
    assert await harbour.findings() == []


@on_sqlite
async def test_scaling_to_the_same_number_changes_no_task(harbour: Harbour):
    service = await harbour.submit("web", replicas=2)
    before = await harbour.tasks(service)
    await harbour.scale(service, 2)
    assert await harbour.tasks(service) == before


async def test_stopping_ends_what_waits_at_once_and_asks_the_nodes_for_the_rest(harbour: Harbour):
    node_id = await harbour.node("n1", cpu=2)
    for kind in Kind:
        workload_id = await harbour.submit(kind.value, replicas=3, kind=kind)
        await harbour.place()
        running, scheduled, _ = await harbour.tasks(workload_id)
        await harbour.move(running, T.RUNNING)
        await harbour.stop(workload_id)
        assert await harbour.statuses(workload_id) == ["TERMINATING", "TERMINATING", "CANCELLED"]
        assert (await harbour.workload(workload_id)).status == "TERMINATING"
        # What stops still occupies its node.
        assert await harbour.counters(node_id) == (0, 1000, 1000)
        assert await harbour.findings() == []
        again = await harbour.stop(workload_id)
        assert (again.tasks, again.workloads) == ([], [])
        await harbour.move(running, T.CANCELLED)
        await harbour.move(scheduled, T.CANCELLED)
        workload = await harbour.workload(workload_id)
        assert (workload.status, workload.removed_at) == ("CANCELLED", None)
        assert workload.ended_at is not None
        assert await harbour.counters(node_id) == (0, 0, 0)
        assert await harbour.findings() == []


@on_sqlite
async def test_a_service_with_nothing_left_alive_is_stopped_at_once(harbour: Harbour):
    await harbour.node("n1")
    service = await harbour.submit("web")
    [task] = await harbour.run(service)
    await harbour.move(task, T.FAILED)
    await harbour.stop(service)
    assert (await harbour.workload(service)).status == "CANCELLED"
    assert await harbour.findings() == []


@on_sqlite
async def test_removing_stops_and_hides_and_is_possible_after_the_end(harbour: Harbour):
    workload_id = await harbour.submit("web")
    await harbour.stop(workload_id, remove=True)
    workload = await harbour.workload(workload_id)
    assert workload.status == "CANCELLED"
    assert workload.removed_at is not None
    ended = await harbour.submit("other", kind=Kind.SESSION)
    await harbour.stop(ended)
    await harbour.stop(ended, remove=True)
    assert (await harbour.workload(ended)).removed_at is not None


@on_sqlite
async def test_a_name_is_free_again_after_the_end(harbour: Harbour):
    await harbour.stop(await harbour.submit("web"))
    await harbour.submit("web")


@on_sqlite
async def test_a_successor_is_the_next_attempt_and_waits_as_long_as_it_should(harbour: Harbour):
    await harbour.node("n1")
    service = await harbour.submit("web")
    [task] = await harbour.run(service)
    await harbour.move(task, T.FAILED)
    later = now() + timedelta(minutes=1)

    async def succeed() -> int:
        return await harbour.database.write(
            lambda c: successors.succeed(c, [Successor(task.id, service, later)], actor="test", now=now(), term=1)
        )

    assert await succeed() == 1
    [successor] = await harbour.tasks(service)
    assert (successor.task_index, successor.attempt, successor.status) == (0, 2, "PENDING")
    assert successor.not_before == later
    assert (await harbour.workload(service)).status == "PENDING"
    assert await harbour.findings() == []
    # Repeating it changes nothing: the ended task is not the current one any more.
    assert await succeed() == 0
    [decision] = await harbour.propose()
    assert decision.placements == ()
    assert decision.reason is not None
    assert decision.reason.code == "backing-off"


@on_sqlite
async def test_nothing_succeeds_a_task_of_a_workload_that_stops(harbour: Harbour):
    await harbour.node("n1")
    service = await harbour.submit("web", replicas=2)
    first, _ = await harbour.run(service)
    await harbour.move(first, T.FAILED)
    await harbour.stop(service)
    made = await harbour.database.write(
        lambda c: successors.succeed(c, [Successor(first.id, service)], actor="test", now=now(), term=1)
    )
    assert made == 0
    await harbour.replace_ended()
    assert len(await harbour.tasks(service, current=False)) == 2
