"""Workloads over time: submitted, scaled, stopped, removed, their tasks replaced."""

from datetime import timedelta

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.workload import Kind
from mooring.store.commit import replacements
from mooring.store.commit.replacements import Replacement
from mooring.store.views import workloads as views
from mooring.store.views.placed_workloads import placed
from mooring.store.workloads import pending
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

T = TaskStatus


async def test_a_submission_is_written_whole(harness: Harness):
    workload_id = await harness.submit("web", replicas=2, cpu="1500m", memory="1Gi")
    workload = await harness.workload(workload_id)
    assert (workload.status, workload.version, workload.replicas, workload.next_index) == ("PENDING", 1, 2, 2)
    tasks = await harness.tasks(workload_id)
    assert [(t.task_index, t.attempt, t.status, t.occupied_slots) for t in tasks] == [
        (0, 1, "PENDING", {}),
        (1, 1, "PENDING", {}),
    ]
    for task in tasks:
        rows = await harness.ledger(task.id)
        assert {slot: (r.requested, r.held, r.reserved, r.used) for slot, r in rows.items()} == {
            "cpu": (1500, 0, 0, 0),
            "memory": (2**30, 0, 0, 0),
        }
    assert [(h.old_status, h.new_status) for h in await harness.history(workload_id)] == [("none", "PENDING")]
    assert [e.kind for e in await harness.feed(workload_id)] == ["PENDING"]


async def test_gang_options_are_written_and_read(harness: Harness):
    plain = await harness.submit("plain")
    whole = await harness.submit(
        "whole",
        replicas=4,
        min_tasks=3,
        single_node=True,
        pack=("zone", "rack"),
        preempts=False,
        preemptible=False,
        min_available=2,
    )
    async with harness.database.read() as connection:
        waits = {workload.id: workload for workload in await pending.waiting(connection)}
        rows = {each: await views.by_id(connection, each) for each in (plain, whole)}
    read = [(w.min_tasks, w.single_node, w.pack, w.preempts) for w in (waits[plain], waits[whole])]
    assert read == [(None, False, (), True), (3, True, ("zone", "rack"), False)]
    who = harness.principal
    assert {(w.user_id, w.project_id, w.domain_id) for w in waits.values()} == {
        (who.user_id, who.project_id, who.domain_id)
    }
    seen = [(row.preemptible, row.min_available, row.min_tasks) for row in rows.values() if row is not None]
    assert seen == [(True, None, None), (False, 2, 3)]


async def test_tasks_that_stay_on_one_node_are_read_with_it(harness: Harness):
    await harness.node("n1", cpu=8, memory="8Gi")
    workload_id = await harness.submit("whole", replicas=2, single_node=True)
    await harness.bind(await harness.propose())
    async with harness.database.read() as connection:
        there = await placed(connection, workload_id)
    assert there is not None
    assert (there.workload.single_node, list(there.workload.occupied.values())) == (True, [2])
    assert there.workload.project_id == harness.principal.project_id
    assert await harness.findings() == []


@on_sqlite
async def test_scaling_up_adds_tasks_that_wait(harness: Harness):
    await harness.node("n1")
    service = await harness.submit("web")
    await harness.run(service)
    await harness.scale(service, 3)
    assert [(t.task_index, t.status) for t in await harness.tasks(service)] == [
        (0, "RUNNING"),
        (1, "PENDING"),
        (2, "PENDING"),
    ]
    workload = await harness.workload(service)
    assert (workload.status, workload.replicas) == ("RUNNING", 3)
    assert [e.kind for e in await harness.feed(service)][-1] == "scaled"
    assert await harness.findings() == []


@on_sqlite
async def test_scaling_down_stops_pending_tasks_first_then_the_newest(harness: Harness):
    await harness.node("n1", cpu=2)
    service = await harness.submit("web", replicas=1)
    await harness.run(service)
    await harness.scale(service, 3)
    await harness.run(service)
    # Three replicas: 0 and 1 run, 2 waits for capacity.
    assert await harness.statuses(service) == ["RUNNING", "RUNNING", "PENDING"]
    await harness.scale(service, 2)
    assert [t.task_index for t in await harness.tasks(service)] == [0, 1]
    await harness.scale(service, 1)
    assert [(t.task_index, t.status) for t in await harness.tasks(service)] == [(0, "RUNNING")]
    # Somebody may just have been sent to it: it leaves the endpoints now and is stopped a little later.
    there = {t.task_index: (t.status, t.retires_at is not None) for t in await harness.tasks(service, current=False)}
    assert there == {0: ("RUNNING", False), 1: ("RUNNING", True), 2: ("CANCELLED", False)}
    assert (await harness.workload(service)).status == "RUNNING"
    assert await harness.findings() == []
    # A later replica gets a number that was never used.
    await harness.scale(service, 2)
    assert [t.task_index for t in await harness.tasks(service)] == [0, 3]


@on_sqlite
async def test_scaling_down_takes_a_replica_that_failed_before_one_that_runs(harness: Harness):
    await harness.node("n1")
    service = await harness.submit("web", replicas=2)
    _, failing = await harness.run(service)
    await harness.move(failing, T.FAILED)
    await harness.scale(service, 1)
    assert [(t.task_index, t.status) for t in await harness.tasks(service)] == [(0, "RUNNING")]
    assert await harness.findings() == []


@on_sqlite
async def test_scaling_to_the_same_number_changes_no_task(harness: Harness):
    service = await harness.submit("web", replicas=2)
    before = await harness.tasks(service)
    await harness.scale(service, 2)
    assert await harness.tasks(service) == before


async def test_stopping_ends_pending_tasks_at_once_and_placed_ones_by_their_nodes(harness: Harness):
    node_id = await harness.node("n1", cpu=2)
    for kind in Kind:
        workload_id = await harness.submit(kind.value, replicas=3, kind=kind)
        await harness.place()
        running, scheduled, _ = await harness.tasks(workload_id)
        await harness.move(running, T.RUNNING)
        await harness.stop(workload_id)
        assert await harness.statuses(workload_id) == ["TERMINATING", "TERMINATING", "CANCELLED"]
        assert (await harness.workload(workload_id)).status == "TERMINATING"
        # What stops still occupies its node.
        assert await harness.counters(node_id) == (0, 1000, 1000)
        assert await harness.findings() == []
        again = await harness.stop(workload_id)
        assert (again.tasks, again.workloads) == ([], [])
        await harness.move(running, T.CANCELLED)
        await harness.move(scheduled, T.CANCELLED)
        workload = await harness.workload(workload_id)
        assert (workload.status, workload.removed_at) == ("CANCELLED", None)
        assert workload.ended_at is not None
        assert await harness.counters(node_id) == (0, 0, 0)
        assert await harness.findings() == []


@on_sqlite
async def test_a_service_with_nothing_left_alive_is_stopped_at_once(harness: Harness):
    await harness.node("n1")
    service = await harness.submit("web")
    [task] = await harness.run(service)
    await harness.move(task, T.FAILED)
    await harness.stop(service)
    assert (await harness.workload(service)).status == "CANCELLED"
    assert await harness.findings() == []


@on_sqlite
async def test_removing_stops_and_hides_and_is_possible_after_the_end(harness: Harness):
    workload_id = await harness.submit("web")
    await harness.stop(workload_id, remove=True)
    workload = await harness.workload(workload_id)
    assert workload.status == "CANCELLED"
    assert workload.removed_at is not None
    ended = await harness.submit("other", kind=Kind.SESSION)
    await harness.stop(ended)
    await harness.stop(ended, remove=True)
    assert (await harness.workload(ended)).removed_at is not None


@on_sqlite
async def test_a_name_is_free_again_after_the_end(harness: Harness):
    await harness.stop(await harness.submit("web"))
    await harness.submit("web")


@on_sqlite
async def test_a_replacement_is_the_next_attempt_and_waits_for_its_backoff(harness: Harness):
    await harness.node("n1")
    service = await harness.submit("web")
    [task] = await harness.run(service)
    await harness.move(task, T.FAILED)
    later = now() + timedelta(minutes=1)

    async def replace_tasks() -> int:
        return await harness.database.write(
            lambda c: replacements.replace_tasks(
                c, [Replacement(task.id, service, later)], actor="test", now=now(), term=1
            )
        )

    assert await replace_tasks() == 1
    [replacement] = await harness.tasks(service)
    assert (replacement.task_index, replacement.attempt, replacement.status) == (0, 2, "PENDING")
    assert replacement.not_before == later
    assert (await harness.workload(service)).status == "PENDING"
    assert await harness.findings() == []
    # Repeating it changes nothing: the ended task is not the current one any more.
    assert await replace_tasks() == 0
    [decision] = await harness.propose()
    assert decision.placements == ()
    assert decision.reason is not None
    assert decision.reason.code == "backing-off"


@on_sqlite
async def test_nothing_succeeds_a_task_of_a_workload_that_stops(harness: Harness):
    await harness.node("n1")
    service = await harness.submit("web", replicas=2)
    first, _ = await harness.run(service)
    await harness.move(first, T.FAILED)
    await harness.stop(service)
    made = await harness.database.write(
        lambda c: replacements.replace_tasks(c, [Replacement(first.id, service)], actor="test", now=now(), term=1)
    )
    assert made == 0
    await harness.replace_ended()
    assert len(await harness.tasks(service, current=False)) == 2
