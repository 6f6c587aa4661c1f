"""The mirror follows the feed to where a fresh look at the store would have led."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from mooring.clock import now
from mooring.intake.pools import PoolAdmin
from mooring.mirror import mirror as mirror_module
from mooring.mirror.mirror import Mirror
from mooring.model.constraints import Constraints, HostPort
from mooring.model.decisions import Decision, Outcome
from mooring.model.dependencies import Condition
from mooring.model.lifecycle import TaskStatus
from mooring.model.nodes import Node
from mooring.model.reasons import Reason
from mooring.model.slots import parse_amounts
from mooring.model.terms import Terms
from mooring.model.workloads import Kind
from mooring.scheduling.timeline import seconds_of
from mooring.store import nodes
from mooring.store.engine import Connection
from mooring.store.tables import tasks
from mooring.wire.pools import BackfillChange, PoolChange, PreemptionChange
from tests.mirror.compare import differences
from tests.store.databases import on_postgresql, on_sqlite
from tests.store.harbour import Harbour

T = TaskStatus


@pytest.fixture
async def mirror(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    monkeypatch.setattr(mirror_module, "_LOAD_SECONDS", 0)
    mirror = Mirror(harbour.database)
    await mirror.load()
    return mirror


async def test_every_kind_of_change_reaches_the_mirror(harbour: Harbour, mirror: Mirror):
    async def followed() -> None:
        await mirror.follow()
        assert await differences(mirror, harbour.database) == []

    first, second = await harbour.node("n1", cpu=4, slots={"gpu": 1}), await harbour.node("n2", cpu=2)
    await followed()
    service = await harbour.submit("web", replicas=3, max_per_node=2)
    job = await harbour.submit("job", kind=Kind.SESSION, type="interactive", slots={"gpu": 1})
    await followed()
    await harbour.place()
    await followed()
    for task in await harbour.tasks(service):
        await harbour.move(task, T.RUNNING)
    await followed()
    await harbour.beat(first, now(), problem="disk full", cpu_percent=40)
    await followed()
    await harbour.beat(first, now(), cpu_percent=55.5)
    await followed()
    await harbour.scale(service, 5)
    await followed()
    await harbour.scale(service, 2)
    await followed()
    [job_task] = await harbour.tasks(job)
    await harbour.move(job_task, T.RUNNING, T.LOST, freed=False)
    await followed()
    await harbour.free_lost(job_task.id)
    await followed()
    await harbour.move((await harbour.tasks(service))[0], T.FAILED)
    await harbour.replace_ended()
    await followed()
    await harbour.drain(second)
    await harbour.draining_loop().once()
    await followed()
    await harbour.connect(first, parse_amounts({"cpu": 6, "memory": "8Gi"}), now())
    await followed()
    await harbour.stop(service)
    await followed()
    for task in await harbour.tasks(service, current=False):
        await harbour.move(task, T.CANCELLED)
    await harbour.database.write(lambda c: nodes.remove(c, second, force=False, actor="test", now=now()))
    await followed()
    assert [mirror.cluster.node(row).name for row in mirror.cluster.rows] == ["n1"]
    assert mirror.queue == {}


@on_sqlite
async def test_a_view_that_is_read_in_many_parts_is_whole(harbour: Harbour, monkeypatch: pytest.MonkeyPatch):
    for name in ("n1", "n2", "n3"):
        await harbour.node(name, cpu=2)
    await harbour.submit("web", replicas=3, max_per_node=1)
    await harbour.place()
    for name in ("one", "two", "three"):
        await harbour.submit(name)
    whole = Mirror(harbour.database)
    await whole.load()
    monkeypatch.setattr(mirror_module, "_NODES_AT_ONCE", 1)
    monkeypatch.setattr(mirror_module, "_WORKLOADS_AT_ONCE", 1)
    assert (whole.cluster.tasks.sum(), len(whole.queue)) == (3, 3)
    assert await differences(whole, harbour.database) == []


@on_sqlite
async def test_following_nothing_says_so(harbour: Harbour, mirror: Mirror):
    assert await mirror.follow() is False
    await harbour.submit("w")
    assert await mirror.follow() is True
    assert await mirror.follow() is False


@on_postgresql
async def test_a_transaction_that_was_open_at_the_load_is_read_later(harbour: Harbour):
    node_id = await harbour.node("n1")
    changed, commit = asyncio.Event(), asyncio.Event()

    async def slow(connection: Connection) -> None:
        await nodes.set_draining(connection, node_id, True, actor="test", now=now())
        changed.set()
        await commit.wait()

    writing = asyncio.create_task(harbour.database.write(slow))
    await changed.wait()
    mirror = Mirror(harbour.database)
    await mirror.load()
    await harbour.submit("quick")
    await mirror.follow()
    commit.set()
    await writing
    await mirror.follow()
    assert await differences(mirror, harbour.database) == []
    assert not mirror.cluster.ready[mirror.cluster.rows].any()


@on_sqlite
async def test_own_decisions_count_at_once(harbour: Harbour, mirror: Mirror):
    await harbour.node("n1", cpu=2)
    half, whole = await harbour.submit("half", replicas=2, cpu="1500m"), await harbour.submit("whole", cpu="500m")
    await mirror.follow()
    result = await harbour.place()
    mirror.assume(result.bound, result.revisions)
    assert whole not in mirror.queue
    assert len(mirror.queue[half].tasks) == 1
    assert mirror.queue[half].placed_before
    await mirror.follow()
    assert await differences(mirror, harbour.database) == []


@on_sqlite
async def test_what_it_placed_itself_is_read_when_no_new_work_waits(
    harbour: Harbour, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
):
    own, other = await harbour.node("n1", cpu=1), await harbour.node("n2", cpu=1)
    workloads = [await harbour.submit(name) for name in ("first", "second")]
    await mirror.follow()
    result = await harbour.place()
    mirror.assume(result.bound, result.revisions)
    read: list[set[UUID]] = []
    load = nodes.load

    async def loading(connection: Connection, ids: Sequence[UUID]) -> list[Node]:
        read.append(set(ids))
        return await load(connection, ids)

    monkeypatch.setattr(nodes, "load", loading)
    await harbour.submit("new")
    await mirror.follow()
    assert read == []
    [task] = [t for w in workloads for t in await harbour.tasks(w) if t.node_id == other]
    await harbour.move(task, T.RUNNING, T.SUCCEEDED)
    await harbour.submit("newer")
    await mirror.follow()
    assert read == [{other}]
    await mirror.follow()
    assert read == [{other}, {own}]
    monkeypatch.undo()
    assert await differences(mirror, harbour.database) == []


@on_sqlite
async def test_what_did_not_come_true_is_read_again(harbour: Harbour, mirror: Mirror):
    node_id = await harbour.node("n1", cpu=1)
    workload_id = await harbour.submit("w")
    await mirror.follow()
    cluster = mirror.cluster
    row = cluster.row_of(node_id)
    assert row is not None
    cluster.taken[0, row] = 1000
    del mirror.queue[workload_id]
    await mirror.read_again({node_id}, {workload_id})
    assert await differences(mirror, harbour.database) == []


@on_sqlite
async def test_what_is_new_in_the_queue_or_left_it_is_told_once(harbour: Harbour, mirror: Mirror):
    workload_id = await harbour.submit("w")
    await mirror.follow()
    assert mirror.news() == {workload_id: mirror.queue[workload_id]}
    assert mirror.news() == {}
    later = await harbour.submit("later")
    await mirror.follow()
    assert set(mirror.news()) == {later}
    await harbour.node("n1")
    await harbour.bind(await harbour.propose())
    await mirror.follow()
    assert mirror.news() == {workload_id: None, later: None}


@on_postgresql
async def test_a_slow_transaction_that_holds_back_the_feed_is_noticed(harbour: Harbour, mirror: Mirror):
    started, end = asyncio.Event(), asyncio.Event()

    async def slow_work(connection: Connection) -> None:
        await connection.execute(select(func.pg_current_xact_id()))
        started.set()
        await end.wait()

    writing = asyncio.create_task(harbour.database.write(slow_work))
    await started.wait()
    await harbour.submit("web")
    await mirror.follow()
    assert (mirror.queue, mirror.held_back) == ({}, True)
    end.set()
    await writing
    await mirror.follow()
    assert (len(mirror.queue), mirror.held_back) == (1, False)


@on_sqlite
async def test_a_reason_that_was_stored_is_known(harbour: Harbour, mirror: Mirror):
    workload_id = await harbour.submit("w")
    await mirror.follow()
    decision = Decision(mirror.queue[workload_id], Outcome.WAITING, reason=Reason("full", "no room"))
    mirror.note_waiting([decision])
    assert mirror.queue[workload_id].waiting_reason == "no room"


async def test_ports_that_tasks_were_given_are_known_to_be_taken(harbour: Harbour):
    await harbour.node("n1")
    for name in ("first", "second"):
        wants = Constraints(host_ports=(HostPort(80 if name == "first" else 81),), ports_wanted=2)
        await harbour.submit(name, constraints=wants)
        assert (await harbour.place()).conflicts == []
    given = [tuple(port) for task in await harbour.rows(select(tasks)) for port in task.ports]
    assert len(given) == len(set(given)) == 6


@on_sqlite
async def test_what_is_typical_is_known_from_the_first_look_on_after_every_load(harbour: Harbour, mirror: Mirror):
    await harbour.submit("share", slots={"gpu": "0.5"})
    await mirror.follow()
    await PoolAdmin(harbour.database).change("default", PoolChange(profile="gpu"))
    await mirror.follow()
    [typical] = mirror.cluster.devices.typical["default"]
    assert typical.request["gpu"] == 500
    await mirror.load()
    assert list(mirror.cluster.devices.typical["default"]) == [typical]


@on_sqlite
async def test_who_left_while_nobody_could_preempt_is_not_taken_for_a_resident(harbour: Harbour, mirror: Mirror):
    async def allow(enabled: bool) -> None:
        change = PoolChange(preemption=PreemptionChange(enabled=enabled))
        await PoolAdmin(harbour.database).change("default", change)
        await mirror.follow()

    node_id = await harbour.node("n1")
    [task] = await harbour.run(await harbour.submit("job", kind=Kind.SESSION))
    await allow(True)
    assert [resident.task_id for resident in mirror.residents.on(node_id)] == [task.id]
    await allow(False)
    await harbour.move(task, T.SUCCEEDED)
    await mirror.follow()
    await allow(True)
    assert mirror.residents.on(node_id) == ()


async def test_who_waits_for_the_end_of_another_is_read_again_with_it(harbour: Harbour, mirror: Mirror):
    first = await harbour.submit("first", terms=Terms(singleton="turn"))
    needs = Terms(dependencies=((first, Condition.AFTER_ANY),))
    second, third = (
        await harbour.submit("second", terms=needs),
        await harbour.submit("third", terms=Terms(singleton="turn")),
    )
    await mirror.follow()
    assert [need.status for need in mirror.queue[second].dependencies] == ["PENDING"]
    assert mirror.queue[third].behind == (first,)
    await harbour.stop(first)
    await mirror.follow()
    assert [need.status for need in mirror.queue[second].dependencies] == ["CANCELLED"]
    assert mirror.queue[third].behind == ()
    assert await differences(mirror, harbour.database) == []


async def test_when_what_runs_will_be_gone_is_told_with_its_limit_and_its_time_to_stop(
    harbour: Harbour, mirror: Mirror
):
    node_id = await harbour.node("n1", cpu=4)
    limited = await harbour.submit("limited", cpu=2, terms=Terms(time_limit_seconds=3600))
    await harbour.submit("open")
    await harbour.place()
    await mirror.follow()
    row = mirror.cluster.row_of(node_id)
    assert row is not None
    [task] = await harbour.tasks(limited)

    def ends() -> list[tuple[object, int | None]]:
        return [(key, promise.end) for key, promise in mirror.cluster.timeline.on(row)]

    # What has not started yet has all of its time before it.
    [(key, end)] = ends()
    assert key == task.id
    assert end is not None
    assert end >= seconds_of(now()) + 3600
    await harbour.move(task, T.RUNNING)
    await mirror.follow()
    [task] = await harbour.tasks(limited)
    assert ends() == [(task.id, seconds_of(task.deadline_at) + 10 + 1)]
    [(_, promise)] = mirror.cluster.timeline.on(row)
    assert dict(promise.amounts)[mirror.cluster.slot("cpu")] == 2000
    # One that is being stopped ends soon, limited or not.
    await harbour.move(task, T.TERMINATING)
    await mirror.follow()
    [(_, end)] = ends()
    assert end is not None
    assert end <= seconds_of(now()) + 10 + 1
    await harbour.move(task, T.CANCELLED)
    await mirror.follow()
    assert ends() == []


async def test_work_is_expected_to_end_as_such_work_of_its_owner_did_where_the_pool_says_so(
    harbour: Harbour, mirror: Mirror
):
    async def ran(name: str, minutes: int) -> None:
        [task] = await harbour.run(await harbour.submit(name, terms=Terms(time_limit_seconds=3600)))
        await harbour.move(task, T.SUCCEEDED)
        times = {"started_at": task.started_at - timedelta(minutes=minutes), "ended_at": task.started_at}
        await harbour.database.write(lambda c: c.execute(update(tasks).where(tasks.c.id == task.id).values(times)))

    node_id = await harbour.node("n1", cpu=64)
    for number in range(10):
        await ran(f"before-{number}", 50 if number == 9 else number + 1)
    alike = await harbour.submit("alike", terms=Terms(time_limit_seconds=3000))
    longer, unlimited = (
        await harbour.submit("longer", terms=Terms(time_limit_seconds=36_000)),
        await harbour.submit("unlimited"),
    )
    found = {id: (await harbour.run(id))[0] for id in (alike, longer, unlimited)}
    await mirror.follow()
    row = mirror.cluster.row_of(node_id)
    assert row is not None

    def lasts(id: UUID) -> int | None:
        promise = mirror.cluster.timeline.get(found[id].id)
        return None if promise is None or promise.end is None else promise.end - seconds_of(found[id].started_at)

    assert lasts(alike) in (3010, 3011)
    change = PoolChange(backfill=BackfillChange(expectation="history"))
    await PoolAdmin(harbour.database).change("default", change)
    await mirror.follow()
    # Nine of ten took nine minutes at most; of another size of limit, and of none, there were no runs.
    assert lasts(alike) in (9 * 60, 9 * 60 + 1)
    assert (lasts(longer) in (36_010, 36_011), lasts(unlimited)) == (True, None)
