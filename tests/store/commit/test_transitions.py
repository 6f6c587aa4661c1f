"""Changes of task statuses: ledger, counters, JSON, history and events move together, once, or not at all."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select

from mooring.clock import now
from mooring.model.holds import Purpose
from mooring.model.lifecycle import OCCUPYING, TASK_EDGES, USING, TaskStatus, WorkloadStatus, is_end
from mooring.model.reasons import Reason
from mooring.model.workloads import Kind
from mooring.store import transitions
from mooring.store.changes import Change, NewHold
from mooring.store.engine import Connection
from mooring.store.tables import events, holds, metadata, status_history
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

T, W = TaskStatus, WorkloadStatus
CPU, MEMORY = 1500, 2**30
# How a task gets to a status before the edge that a test is about.
WAY_TO = {
    T.PENDING: [],
    T.RESERVED: [T.RESERVED],
    T.SCHEDULED: [T.SCHEDULED],
    T.PREPARING: [T.SCHEDULED, T.PREPARING],
    T.RUNNING: [T.SCHEDULED, T.RUNNING],
    T.TERMINATING: [T.SCHEDULED, T.RUNNING, T.TERMINATING],
}
EDGES = [(old, new) for old in WAY_TO for new in sorted(TASK_EDGES[old])]


class Case:
    """A job with one task, and a node for it."""

    def __init__(self, harbour: Harbour, name: str, node_id: UUID, workload_id: UUID, task_id: UUID) -> None:
        self.harbour, self.name = harbour, name
        self.node_id, self.workload_id, self.task_id = node_id, workload_id, task_id

    @classmethod
    async def make(cls, harbour: Harbour, name: str = "n1") -> "Case":
        node_id = await harbour.node(name, simulated=True)
        workload_id = await harbour.submit(name, kind=Kind.SESSION, cpu="1500m", memory="1Gi")
        return cls(harbour, name, node_id, workload_id, (await harbour.tasks(workload_id))[0].id)

    def change(self, new: TaskStatus, **more: Any) -> Change:
        if new in (T.RESERVED, T.SCHEDULED):
            more |= {"node_id": self.node_id, "node_name": self.name, "score": 7}
        if new is T.RESERVED:
            more |= {"hold": NewHold(Purpose.PREPARE, now() + timedelta(minutes=1))}
        return Change(self.task_id, new, **more)

    async def bring_to(self, status: TaskStatus) -> None:
        for step in WAY_TO[status]:
            await self.harbour.apply(self.change(step))


@pytest.fixture
async def case(harbour: Harbour) -> Case:
    return await Case.make(harbour)


async def test_every_edge_moves_everything_that_is_kept_about_a_task(harbour: Harbour):
    for old, new in EDGES:
        case = await Case.make(harbour, f"{old}-{new}".lower())
        await case.bring_to(old)
        await check_edge(case, old, new)
    assert await harbour.findings() == []


async def check_edge(case: Case, old: TaskStatus, new: TaskStatus) -> None:
    harbour = case.harbour
    before = await harbour.task(case.task_id)
    history, feed = await harbour.history(case.task_id), await harbour.feed(case.task_id)

    applied = await harbour.apply(case.change(new, reason=Reason("why", "because")), actor="somebody", term=4)

    assert [(change.new, was) for change, was in applied.tasks] == [(new, old)]
    task = await harbour.task(case.task_id)
    row = (await harbour.ledger(case.task_id))["cpu"]
    assert (task.status, task.version) == (new, before.version + 1)
    assert task.reason["message"] == "because"
    # A task that is stopped before it ran occupies what was reserved for it, and never uses it.
    used = new is T.RUNNING or (new in USING and old in USING)
    expected = (0, 0, CPU) if used else (0, CPU, 0) if new in OCCUPYING else (0, 0, 0)
    if new is T.RESERVED:
        expected = (CPU, 0, 0)
    assert (old, new, await harbour.counters(case.node_id)) == (old, new, expected)
    assert task.occupied_slots == ({"cpu": CPU, "memory": MEMORY} if new in OCCUPYING else {})
    assert task.requested_slots == {"cpu": CPU, "memory": MEMORY}
    assert row.requested == CPU
    assert (row.freed_at is not None, task.freed_at is not None) == (is_end(new), is_end(new))
    assert (task.ended_at is not None) is is_end(new)
    if new in (T.RESERVED, T.SCHEDULED):
        assert (task.node_id, task.node_name, task.score) == (case.node_id, case.name, 7)
        assert (row.held_at if new is T.RESERVED else row.reserved_at) is not None
    if new is T.PENDING:
        # Nothing of the place is left, as if it had never been kept.
        assert (task.node_id, task.node_name, task.score, row.held_at) == (None, None, None, None)
    if new is T.RUNNING:
        assert task.started_at is not None
        assert row.used_at is not None
    last = (await harbour.history(case.task_id))[len(history) :]
    assert [(h.old_status, h.new_status, h.actor, h.reason, h.term) for h in last] == [
        (old, new, "somebody", "because", 4)
    ]
    told = (await harbour.feed(case.task_id))[len(feed) :]
    assert [(e.kind, e.version, e.workload_id, e.term) for e in told] == [(new, task.version, case.workload_id, 4)]
    held = await harbour.rows(select(holds).where(holds.c.task_id == case.task_id))
    assert [hold.node_id for hold in held] == ([case.node_id] if new is T.RESERVED else [])


async def contents(harbour: Harbour) -> dict[str, list[Any]]:
    """Every row of every table."""
    return {table.name: sorted(map(str, await harbour.rows(select(table)))) for table in metadata.sorted_tables}


@on_sqlite
async def test_a_change_that_is_repeated_changes_nothing(harbour: Harbour):
    for old, new in EDGES:
        case = await Case.make(harbour, f"{old}-{new}".lower())
        await case.bring_to(old)
        await harbour.apply(case.change(new))
        before = await contents(harbour)
        assert (await harbour.apply(case.change(new))).tasks == [], (old, new)
        assert await contents(harbour) == before, (old, new)


@on_sqlite
async def test_an_illegal_change_is_left_out(harbour: Harbour):
    for old in WAY_TO:
        case = await Case.make(harbour, old.lower())
        await case.bring_to(old)
        before = await contents(harbour)
        for new in set(T) - TASK_EDGES[old]:
            assert (await harbour.apply(case.change(new))).tasks == [], (old, new)
        assert await contents(harbour) == before, old


@on_sqlite
async def test_an_unknown_task_and_a_bad_neighbour_hurt_nobody(case: Case):
    await case.bring_to(T.SCHEDULED)
    applied = await case.harbour.apply(Change(UUID(int=1), T.RUNNING), case.change(T.SUCCEEDED), case.change(T.RUNNING))
    assert [change.new for change, _ in applied.tasks] == [T.RUNNING]


async def test_a_task_may_take_several_steps_in_one_report(harbour: Harbour):
    """A short command runs and ends before its agent has reported that it runs."""
    for number, steps in enumerate(
        (
            [T.PREPARING, T.RUNNING],
            [T.RUNNING, T.SUCCEEDED],
            [T.PREPARING, T.RUNNING, T.FAILED],
            [T.RUNNING, T.RUNNING, T.SUCCEEDED, T.SUCCEEDED],
        )
    ):
        case = await Case.make(harbour, f"n{number}")
        await case.bring_to(T.SCHEDULED)
        await harbour.apply(*(case.change(step) for step in steps))
        assert (await harbour.task(case.task_id)).status == steps[-1]
        assert (await harbour.workload(case.workload_id)).started_at is not None
        passed = [row.new_status for row in await harbour.history(case.task_id)]
        assert passed == [T.SCHEDULED, *dict.fromkeys(steps)]
        assert await harbour.counters(case.node_id) == ((0, 0, 0) if is_end(steps[-1]) else (0, 0, CPU))
        assert await harbour.findings() == []


@on_sqlite
async def test_a_task_may_be_placed_and_run_in_one_transaction(case: Case):
    await case.harbour.apply(*(case.change(step) for step in (T.SCHEDULED, T.RUNNING)))
    assert await case.harbour.counters(case.node_id) == (0, 0, CPU)
    assert await case.harbour.findings() == []


async def test_lost_keeps_the_charge_until_the_node_says_that_it_is_gone(case: Case):
    harbour = case.harbour
    await case.bring_to(T.RUNNING)
    await harbour.apply(case.change(T.LOST, freed=False))
    task = await harbour.task(case.task_id)
    assert (task.status, task.freed_at) == (T.LOST, None)
    assert await harbour.counters(case.node_id) == (0, 0, CPU)
    assert (await harbour.workload(case.workload_id)).status == "PENDING"
    assert await harbour.findings() == []

    assert await harbour.free_lost(case.task_id, case.task_id) == 1
    assert await harbour.counters(case.node_id) == (0, 0, 0)
    assert (await harbour.task(case.task_id)).occupied_slots == {}
    assert await harbour.findings() == []
    assert await harbour.free_lost(case.task_id) == 0
    assert [e.kind for e in await harbour.feed(case.task_id)][-1] == "freed"


@on_sqlite
async def test_what_lives_is_never_freed(case: Case):
    await case.bring_to(T.RUNNING)
    assert await case.harbour.free_lost(case.task_id) == 0
    assert await case.harbour.counters(case.node_id) == (0, 0, CPU)


async def test_a_transaction_that_fails_leaves_nothing(case: Case):
    await case.bring_to(T.SCHEDULED)
    before = await contents(case.harbour)

    async def work(connection: Connection) -> None:
        await transitions.apply(connection, [case.change(T.RUNNING)], actor="test", now=now())
        raise ValueError("the process dies here")

    with pytest.raises(ValueError):
        await case.harbour.database.write(work)
    assert await contents(case.harbour) == before


@on_sqlite
async def test_an_exit_is_remembered(case: Case):
    await case.bring_to(T.RUNNING)
    await case.harbour.apply(case.change(T.FAILED, exit_code=137, restarts=2, reason=Reason("oom", "x" * 600)))
    task = await case.harbour.task(case.task_id)
    assert (task.exit_code, task.restarts, task.reason["code"]) == (137, 2, "oom")
    assert len((await case.harbour.history(case.task_id))[-1].reason) == 500
    assert (await case.harbour.workload(case.workload_id)).reason["code"] == "oom"


# --- the workload follows its tasks ---


@on_sqlite
async def test_a_workload_follows_its_tasks_and_every_step_leaves_one_line(harbour: Harbour):
    await harbour.node("n1")
    job = await harbour.submit("job", kind=Kind.SESSION, replicas=2)
    await harbour.place()
    first, second = await harbour.tasks(job)
    await harbour.move(first, T.PREPARING, T.RUNNING, T.SUCCEEDED)
    await harbour.move(second, T.RUNNING, T.SUCCEEDED)
    workload = await harbour.workload(job)
    assert workload.status == "SUCCEEDED"
    assert None not in (workload.started_at, workload.ended_at)
    assert workload.reason is None
    lines = [(row.old_status, row.new_status, row.reason) for row in await harbour.history(job)]
    assert lines == [
        ("none", "PENDING", "Session created by user"),
        ("PENDING", "SCHEDULED", "Scheduled 2 tasks"),
        ("SCHEDULED", "RUNNING", "All 2 tasks started"),
        ("RUNNING", "SUCCEEDED", "All 2 tasks ended with success"),
    ]


@on_sqlite
async def test_a_workload_can_fail_as_a_whole(harbour: Harbour):
    service = await harbour.submit("web", replicas=2)
    reason = Reason("insufficient", "too little")
    changes = [Change(task.id, T.FAILED, reason) for task in await harbour.tasks(service)]
    await harbour.database.write(
        lambda c: transitions.apply(c, changes, actor="scheduler", now=now(), ended={service: (W.FAILED, reason)})
    )
    workload = await harbour.workload(service)
    assert (workload.status, workload.reason["message"]) == ("FAILED", "too little")
    assert workload.ended_at is not None
    assert await harbour.findings() == []


@on_sqlite
async def test_a_workload_that_still_has_a_living_task_does_not_fail_as_a_whole(harbour: Harbour):
    """A plugin fails on the third replica while two run: they go on, and the third is tried again."""
    await harbour.node("n1", cpu=2)
    service = await harbour.submit("web", replicas=3)
    await harbour.place()
    running, _, waiting = await harbour.tasks(service)
    await harbour.move(running, T.RUNNING)
    reason = Reason("constraint-evaluation-failed", "the plugin raised")
    await harbour.database.write(
        lambda c: transitions.apply(
            c, [Change(waiting.id, T.FAILED, reason)], actor="scheduler", now=now(), ended={service: (W.FAILED, reason)}
        )
    )
    workload = await harbour.workload(service)
    assert workload.ended_at is None
    assert await harbour.findings() == []
    await harbour.replace_ended()
    assert (await harbour.statuses(service))[2] == "PENDING"


@on_sqlite
async def test_every_transition_has_exactly_one_line_of_history_and_one_event(harbour: Harbour):
    await harbour.node("n1")
    service = await harbour.submit("web", replicas=3)
    for task in await harbour.run(service):
        await harbour.move(task, T.RUNNING, T.TERMINATING, T.CANCELLED, T.CANCELLED)
    for noun in ("task", "workload"):
        lines = await harbour.rows(select(func.count()).where(status_history.c.noun == noun))
        told = await harbour.rows(
            select(func.count()).where(events.c.noun == noun, events.c.kind.in_([status.value for status in T]))
        )
        if noun == "task":
            assert (lines[0][0], told[0][0]) == (12, 12)
        else:
            # A workload is also told of when its tasks change and its status stays.
            assert lines[0][0] <= told[0][0]


async def test_whether_a_running_task_is_ready_is_told_when_it_changes_and_ends_with_it(case: Case):
    harbour = case.harbour
    await case.bring_to(T.SCHEDULED)
    await harbour.apply(case.change(T.RUNNING, ready=False, digests={"main": "sha256:1"}, address="10.0.0.2"))
    started = await harbour.task(case.task_id)
    assert (started.ready_at, started.digests, started.address) == (None, {"main": "sha256:1"}, "10.0.0.2")

    await harbour.apply(case.change(T.RUNNING, ready=True, restarts=1))
    ready = await harbour.task(case.task_id)
    assert ready.ready_at > started.started_at
    assert (ready.restarts, ready.address, ready.version) == (1, "10.0.0.2", started.version + 1)
    assert ready.started_at == started.started_at
    workload = await harbour.workload(case.workload_id)
    await harbour.apply(case.change(T.RUNNING, ready=True, digests={"main": "sha256:1"}, address="10.0.0.2"))
    assert await harbour.task(case.task_id) == ready
    assert await harbour.workload(case.workload_id) == workload

    await harbour.apply(case.change(T.RUNNING, ready=True, address="10.0.0.3"))
    await harbour.apply(case.change(T.RUNNING, ready=False))
    await harbour.apply(case.change(T.RUNNING, ready=True))
    await harbour.apply(case.change(T.TERMINATING))
    assert (await harbour.task(case.task_id)).ready_at is None
    kinds = [event.kind for event in await harbour.feed(case.task_id)]
    assert kinds == ["SCHEDULED", "RUNNING", "ready", "renewed", "unready", "ready", "TERMINATING"]
    assert await harbour.findings() == []
