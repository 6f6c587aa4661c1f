"""The mirror follows the feed to where a fresh look at the store would have led."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from mooring.clock import now
from mooring.mirror import mirror as mirror_module
from mooring.mirror import statistics
from mooring.mirror.mirror import Mirror
from mooring.model.decisions import Decision, Outcome
from mooring.model.lifecycle import TaskStatus
from mooring.model.nodes.node import Node
from mooring.model.reasons import Reason
from mooring.model.resources.devices import DeviceDemand
from mooring.model.resources.slots import parse_amounts
from mooring.model.workloads.constraints import Constraints, HostPort
from mooring.model.workloads.dependencies import Condition
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.model.workloads.workload import Kind
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.services.administration.pools import PoolAdmin
from mooring.store.core.engine import Connection
from mooring.store.nodes import learned_demand, nodes, pools
from mooring.store.tables import tasks
from mooring.wire.cluster.pools import BackfillChange, PoolChange, PreemptionChange
from tests.mirror.compare import differences
from tests.store.databases import on_postgresql, on_sqlite
from tests.store.harness import Harness

T = TaskStatus


@pytest.fixture(autouse=True)
def read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_LOAD_SECONDS", 0)
    monkeypatch.setattr(mirror_module, "_CONFIRM_SECONDS", 0)


@pytest.fixture
async def mirror(harness: Harness) -> Mirror:
    mirror = Mirror(harness.database)
    await mirror.load()
    return mirror


async def test_every_kind_of_change_reaches_the_mirror(harness: Harness, mirror: Mirror):
    async def followed() -> None:
        await mirror.follow()
        assert await differences(mirror, harness.database) == []

    first, second = await harness.node("n1", cpu=4, slots={"gpu": 1}), await harness.node("n2", cpu=2)
    await followed()
    service = await harness.submit("web", replicas=3, max_per_node=2)
    job = await harness.submit("job", kind=Kind.SESSION, type="interactive", slots={"gpu": 1})
    await followed()
    await harness.place()
    await followed()
    for task in await harness.tasks(service):
        await harness.move(task, T.RUNNING)
    await followed()
    await harness.beat(first, now(), problem="disk full", cpu_percent=40)
    await followed()
    await harness.beat(first, now(), cpu_percent=55.5)
    await followed()
    await harness.scale(service, 5)
    await followed()
    await harness.scale(service, 2)
    await followed()
    [job_task] = await harness.tasks(job)
    await harness.move(job_task, T.RUNNING, T.LOST, freed=False)
    await followed()
    await harness.free_lost(job_task.id)
    await followed()
    await harness.move((await harness.tasks(service))[0], T.FAILED)
    await harness.replace_ended()
    await followed()
    await harness.drain(second)
    await harness.draining_loop().once()
    await followed()
    await harness.connect(first, parse_amounts({"cpu": 6, "memory": "8Gi"}), now())
    await followed()
    await harness.stop(service)
    await followed()
    for task in await harness.tasks(service, current=False):
        await harness.move(task, T.CANCELLED)
    await harness.database.write(lambda c: nodes.remove(c, second, force=False, actor="test", now=now()))
    await followed()
    assert [mirror.cluster.node(row).name for row in mirror.cluster.rows] == ["n1"]
    assert mirror.queue == {}


@on_sqlite
async def test_a_view_that_is_read_in_many_parts_is_whole(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    for name in ("n1", "n2", "n3"):
        await harness.node(name, cpu=2)
    await harness.submit("web", replicas=3, max_per_node=1)
    await harness.place()
    for name in ("one", "two", "three"):
        await harness.submit(name)
    whole = Mirror(harness.database)
    await whole.load()
    monkeypatch.setattr(mirror_module, "_NODES_AT_ONCE", 1)
    monkeypatch.setattr(mirror_module, "_WORKLOADS_AT_ONCE", 1)
    assert (whole.cluster.tasks.sum(), len(whole.queue)) == (3, 3)
    assert await differences(whole, harness.database) == []


@on_sqlite
async def test_following_nothing_says_so(harness: Harness, mirror: Mirror):
    assert await mirror.follow() is False
    await harness.submit("w")
    assert await mirror.follow() is True
    assert await mirror.follow() is False


@on_postgresql
async def test_a_transaction_that_was_open_at_the_load_is_read_later(harness: Harness):
    node_id = await harness.node("n1")
    changed, commit = asyncio.Event(), asyncio.Event()

    async def slow(connection: Connection) -> None:
        await nodes.set_draining(connection, node_id, True, actor="test", now=now())
        changed.set()
        await commit.wait()

    writing = asyncio.create_task(harness.database.write(slow))
    await changed.wait()
    mirror = Mirror(harness.database)
    await mirror.load()
    await harness.submit("quick")
    await mirror.follow()
    commit.set()
    await writing
    await mirror.follow()
    assert await differences(mirror, harness.database) == []
    assert not mirror.cluster.ready[mirror.cluster.rows].any()


@on_sqlite
async def test_own_decisions_count_at_once(harness: Harness, mirror: Mirror):
    await harness.node("n1", cpu=2)
    half, whole = await harness.submit("half", replicas=2, cpu="1500m"), await harness.submit("whole", cpu="500m")
    await mirror.follow()
    result = await harness.place()
    mirror.assume(result.bound, result.revisions)
    assert whole not in mirror.queue
    assert len(mirror.queue[half].tasks) == 1
    assert mirror.queue[half].placed_before
    await mirror.follow()
    assert await differences(mirror, harness.database) == []


def noting_reads(monkeypatch: pytest.MonkeyPatch) -> list[set[UUID]]:
    """Return a list that grows by the nodes of every read from now on."""
    read: list[set[UUID]] = []
    load = nodes.load

    async def loading(connection: Connection, ids: Sequence[UUID]) -> list[Node]:
        read.append(set(ids))
        return await load(connection, ids)

    monkeypatch.setattr(nodes, "load", loading)
    return read


@on_sqlite
async def test_own_placements_are_confirmed_when_no_new_work_is_pending(
    harness: Harness, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
):
    own, other = await harness.node("n1", cpu=1), await harness.node("n2", cpu=1)
    workloads = [await harness.submit(name) for name in ("first", "second")]
    await mirror.follow()
    result = await harness.place()
    mirror.assume(result.bound, result.revisions)
    read = noting_reads(monkeypatch)
    await harness.submit("new")
    await mirror.follow()
    assert read == []
    [task] = [t for w in workloads for t in await harness.tasks(w) if t.node_id == other]
    await harness.move(task, T.RUNNING, T.SUCCEEDED)
    await harness.submit("newer")
    await mirror.follow()
    assert read == [{other}]
    await mirror.follow()
    assert read == [{other}, {own}]
    monkeypatch.undo()
    assert await differences(mirror, harness.database) == []


@on_sqlite
async def test_nodes_with_own_placements_are_read_in_groups(
    harness: Harness, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
):
    seconds = 0.0
    monkeypatch.setattr(mirror_module, "monotonic", lambda: seconds)
    monkeypatch.setattr(mirror_module, "_CONFIRM_SECONDS", 0.5)
    own = await harness.node("n1", cpu=4)
    for name in ("first", "second"):
        await harness.submit(name)
    await mirror.follow()
    result = await harness.place()
    mirror.assume(result.bound, result.revisions)
    assert mirror.confirm_seconds() is None
    await mirror.follow()
    assert mirror.confirm_seconds() is None
    read = noting_reads(monkeypatch)
    for task in await harness.tasks(result.bound[0].workload.id):
        await harness.move(task, T.RUNNING)
    await mirror.follow()
    assert (read, mirror.confirm_seconds()) == ([], 0.5)
    seconds += 0.5
    assert mirror.confirm_seconds() == 0
    await mirror.follow()
    assert (read, mirror.confirm_seconds()) == ([{own}], None)
    assert await differences(mirror, harness.database) == []


@on_sqlite
async def test_nodes_and_workloads_of_a_failed_bind_are_read_again(harness: Harness, mirror: Mirror):
    node_id = await harness.node("n1", cpu=1)
    workload_id = await harness.submit("w")
    await mirror.follow()
    cluster = mirror.cluster
    row = cluster.row_of(node_id)
    assert row is not None
    cluster.taken[0, row] = 1000
    del mirror.queue[workload_id]
    await mirror.read_again({node_id}, {workload_id})
    assert await differences(mirror, harness.database) == []


@on_sqlite
async def test_changes_of_the_queue_are_reported_once(harness: Harness, mirror: Mirror):
    workload_id = await harness.submit("w")
    await mirror.follow()
    assert mirror.news() == {workload_id: mirror.queue[workload_id]}
    assert mirror.news() == {}
    later = await harness.submit("later")
    await mirror.follow()
    assert set(mirror.news()) == {later}
    await harness.node("n1")
    await harness.bind(await harness.propose())
    await mirror.follow()
    assert mirror.news() == {workload_id: None, later: None}


@on_postgresql
async def test_a_slow_transaction_that_holds_back_the_feed_is_noticed(harness: Harness, mirror: Mirror):
    started, end = asyncio.Event(), asyncio.Event()

    async def slow_work(connection: Connection) -> None:
        await connection.execute(select(func.pg_current_xact_id()))
        started.set()
        await end.wait()

    writing = asyncio.create_task(harness.database.write(slow_work))
    await started.wait()
    await harness.submit("web")
    await mirror.follow()
    assert (mirror.queue, mirror.held_back) == ({}, True)
    end.set()
    await writing
    await mirror.follow()
    assert (len(mirror.queue), mirror.held_back) == (1, False)


@on_sqlite
async def test_a_reason_that_was_stored_is_known(harness: Harness, mirror: Mirror):
    workload_id = await harness.submit("w")
    await mirror.follow()
    decision = Decision(mirror.queue[workload_id], Outcome.WAITING, reason=Reason("full", "no room"))
    mirror.note_waiting([decision])
    assert mirror.queue[workload_id].waiting_reason == "no room"


async def test_ports_that_tasks_were_given_are_known_to_be_taken(harness: Harness):
    await harness.node("n1")
    for name in ("first", "second"):
        wants = Constraints(host_ports=(HostPort(80 if name == "first" else 81),), ports_wanted=2)
        await harness.submit(name, constraints=wants)
        assert (await harness.place()).conflicts == []
    given = [tuple(port) for task in await harness.rows(select(tasks)) for port in task.ports]
    assert len(given) == len(set(given)) == 6


async def learn_demand(harness: Harness) -> None:
    """Store the requests of all workloads as those that the pool expects."""

    async def work(connection: Connection) -> None:
        for pool in await pools.all_pools(connection):
            newest = await learned_demand.newest(connection, pool.id, 100)
            await learned_demand.store(connection, [(pool.id, newest)])

    await harness.database.write(work)


@on_sqlite
async def test_typical_requests_are_known_after_a_change_of_profile_and_after_every_load(
    harness: Harness, mirror: Mirror
):
    await PoolAdmin(harness.database).change("default", PoolChange(profile="balanced"))
    await mirror.load()
    await harness.submit("share", slots={"gpu": "0.5"})
    await learn_demand(harness)
    await mirror.follow()
    await PoolAdmin(harness.database).change("default", PoolChange(profile="gpu"))
    await mirror.follow()
    [typical] = mirror.cluster.devices.typical["default"]
    assert typical.request["gpu"] == 500
    await mirror.load()
    assert list(mirror.cluster.devices.typical["default"]) == [typical]


@on_sqlite
async def test_typical_requests_include_device_models_and_requests_without_devices(harness: Harness, mirror: Mirror):
    await harness.submit("any", slots={"gpu": "0.5"})
    only_new = Constraints(devices=(DeviceDemand("gpu", frozenset({"new"})),))
    await harness.submit("new", slots={"gpu": "0.5"}, constraints=only_new)
    await harness.submit("plain", slots={"cpu": "2"})
    await learn_demand(harness)
    await PoolAdmin(harness.database).change("default", PoolChange(profile="gpu"))
    await mirror.load()
    known = {(each.request.get("gpu", 0), each.models) for each in mirror.cluster.devices.typical["default"]}
    assert known == {(500, frozenset()), (500, frozenset({"new"})), (0, frozenset())}
    assert all(each.weight == 1 for each in mirror.cluster.devices.typical["default"])


@on_sqlite
async def test_pools_without_device_requests_have_no_typical_requests(harness: Harness, mirror: Mirror):
    await harness.submit("plain", slots={"cpu": "2"})
    await learn_demand(harness)
    await PoolAdmin(harness.database).change("default", PoolChange(profile="gpu"))
    await mirror.load()
    assert not mirror.cluster.devices.typical.get("default")


@on_sqlite
async def test_a_task_that_ended_while_preemption_was_off_is_not_a_running_task(harness: Harness, mirror: Mirror):
    async def allow(enabled: bool) -> None:
        change = PoolChange(preemption=PreemptionChange(enabled=enabled))
        await PoolAdmin(harness.database).change("default", change)
        await mirror.follow()

    node_id = await harness.node("n1")
    [task] = await harness.run(await harness.submit("job", kind=Kind.SESSION))
    await allow(True)
    assert [running_task.task_id for running_task in mirror.running_tasks.on(node_id)] == [task.id]
    await allow(False)
    await harness.move(task, T.SUCCEEDED)
    await mirror.follow()
    await allow(True)
    assert mirror.running_tasks.on(node_id) == ()


async def test_work_that_depends_on_another_is_read_again_when_that_ends(harness: Harness, mirror: Mirror):
    first = await harness.submit("first", schedule=ScheduleOptions(singleton="turn"))
    needs = ScheduleOptions(dependencies=((first, Condition.AFTER_ANY),))
    second, third = (
        await harness.submit("second", schedule=needs),
        await harness.submit("third", schedule=ScheduleOptions(singleton="turn")),
    )
    await mirror.follow()
    assert [need.status for need in mirror.queue[second].dependencies] == ["PENDING"]
    assert mirror.queue[third].behind == (first,)
    await harness.stop(first)
    await mirror.follow()
    assert [need.status for need in mirror.queue[second].dependencies] == ["CANCELLED"]
    assert mirror.queue[third].behind == ()
    assert await differences(mirror, harness.database) == []


async def test_expected_ends_include_the_time_limit_and_the_stop_grace(harness: Harness, mirror: Mirror):
    node_id = await harness.node("n1", cpu=4)
    limited = await harness.submit("limited", cpu=2, schedule=ScheduleOptions(time_limit_seconds=3600))
    await harness.submit("open")
    await harness.place()
    await mirror.follow()
    row = mirror.cluster.row_of(node_id)
    assert row is not None
    [task] = await harness.tasks(limited)

    def ends() -> list[tuple[object, int | None]]:
        return [(key, promise.end) for key, promise in mirror.cluster.timeline.on(row)]

    # What has not started yet has all of its time before it.
    [(key, end)] = ends()
    assert key == task.id
    assert end is not None
    assert end >= seconds_of(now()) + 3600
    await harness.move(task, T.RUNNING)
    await mirror.follow()
    [task] = await harness.tasks(limited)
    assert ends() == [(task.id, seconds_of(task.deadline_at) + 10 + 1)]
    [(_, promise)] = mirror.cluster.timeline.on(row)
    assert dict(promise.amounts)[mirror.cluster.slot("cpu")] == 2000
    # One that is being stopped ends soon, limited or not.
    await harness.move(task, T.TERMINATING)
    await mirror.follow()
    [(_, end)] = ends()
    assert end is not None
    assert end <= seconds_of(now()) + 10 + 1
    await harness.move(task, T.CANCELLED)
    await mirror.follow()
    assert ends() == []


async def test_work_is_expected_to_end_as_such_work_of_its_owner_did_where_the_pool_says_so(
    harness: Harness, mirror: Mirror
):
    async def ran(name: str, minutes: int) -> None:
        [task] = await harness.run(await harness.submit(name, schedule=ScheduleOptions(time_limit_seconds=3600)))
        await harness.move(task, T.SUCCEEDED)
        times = {"started_at": task.started_at - timedelta(minutes=minutes), "ended_at": task.started_at}
        await harness.database.write(lambda c: c.execute(update(tasks).where(tasks.c.id == task.id).values(times)))

    node_id = await harness.node("n1", cpu=64)
    for number in range(10):
        await ran(f"before-{number}", 50 if number == 9 else number + 1)
    alike = await harness.submit("alike", schedule=ScheduleOptions(time_limit_seconds=3000))
    longer, unlimited = (
        await harness.submit("longer", schedule=ScheduleOptions(time_limit_seconds=36_000)),
        await harness.submit("unlimited"),
    )
    found = {id: (await harness.run(id))[0] for id in (alike, longer, unlimited)}
    await mirror.follow()
    row = mirror.cluster.row_of(node_id)
    assert row is not None

    def lasts(id: UUID) -> int | None:
        promise = mirror.cluster.timeline.get(found[id].id)
        return None if promise is None or promise.end is None else promise.end - seconds_of(found[id].started_at)

    assert lasts(alike) in (3010, 3011)
    change = PoolChange(backfill=BackfillChange(expectation="history"))
    await PoolAdmin(harness.database).change("default", change)
    await mirror.follow()
    # Nine of ten took nine minutes at most; of another size of limit, and of none, there were no runs.
    assert lasts(alike) in (9 * 60, 9 * 60 + 1)
    assert (lasts(longer) in (36_010, 36_011), lasts(unlimited)) == (True, None)


async def submit_hour(harness: Harness, name: str) -> UUID:
    return await harness.submit(name, schedule=ScheduleOptions(time_limit_seconds=3600))


async def ran_for(harness: Harness, name: str, seconds: int) -> None:
    """Run a job, as if it had begun this long before its end."""
    [task] = await harness.run(await submit_hour(harness, name))
    assert task.started_at is not None
    await harness.move(task, T.SUCCEEDED)
    times = {"started_at": task.started_at - timedelta(seconds=seconds), "ended_at": task.started_at}
    await harness.database.write(lambda c: c.execute(update(tasks).where(tasks.c.id == task.id).values(times)))


@pytest.mark.parametrize("expectation", ["recent", "predicted"])
async def test_predictions_are_learned_from_ended_runs_and_used_for_running_and_pending_work(
    harness: Harness, mirror: Mirror, expectation: str
):
    node_id = await harness.node("n1", cpu=64)
    for number in range(24):
        await ran_for(harness, f"job-{number}", 64)
    [running] = await harness.run(await submit_hour(harness, "job-90"))
    assert running.started_at is not None
    pending = await submit_hour(harness, "job-91")
    await mirror.follow()
    assert mirror.queue[pending].predicted_seconds is None

    async def expect(name: str) -> None:
        await PoolAdmin(harness.database).change(
            "default", PoolChange(backfill=BackfillChange.model_validate({"expectation": name}))
        )
        await mirror.follow()

    await expect(expectation)
    seconds = mirror.queue[pending].predicted_seconds
    assert seconds is not None
    assert seconds == 64 if expectation == "recent" else seconds < 3600
    promise = mirror.cluster.timeline.get(running.id)
    row = mirror.cluster.row_of(node_id)
    assert row is not None
    assert promise is not None
    assert promise.end is not None
    assert promise.end - seconds_of(running.started_at) in (seconds, seconds + 1)
    # A new leader learns the same.
    fresh = Mirror(harness.database)
    await fresh.load()
    assert fresh.queue[pending].predicted_seconds == seconds
    await expect("limit")
    assert mirror.queue[pending].predicted_seconds is None
    promise = mirror.cluster.timeline.get(running.id)
    assert promise is not None
    assert promise.end is not None
    assert promise.end - seconds_of(running.started_at) >= 3600


async def test_runs_that_end_later_are_learned_in_their_order(
    harness: Harness, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mooring.mirror.predictions._SECONDS", 0.0)
    await harness.node("n1", cpu=64)
    change = PoolChange(backfill=BackfillChange(expectation="recent"))
    await PoolAdmin(harness.database).change("default", change)
    await mirror.follow()
    for number, seconds in enumerate((900, 32, 96)):
        await ran_for(harness, f"job-{number}", seconds)
        await mirror.follow()
    pending = await submit_hour(harness, "job-9")
    await mirror.follow()
    assert mirror.queue[pending].predicted_seconds == 64
