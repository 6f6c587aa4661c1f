"""Status changes of tasks: ledger, counters, JSON copies, history and events change together, once or not at all."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select

from mooring.clock import now
from mooring.model.lifecycle import OCCUPYING, TASK_EDGES, USING, TaskStatus, WorkloadStatus, is_end
from mooring.model.policy.holds import Purpose
from mooring.model.reasons import Reason
from mooring.model.workloads.workload import Kind
from mooring.store.commit import transitions
from mooring.store.commit.status_changes import Change, NewHold
from mooring.store.core.engine import Connection
from mooring.store.tables import events, holds, metadata, status_history
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

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

    def __init__(self, harness: Harness, name: str, node_id: UUID, workload_id: UUID, task_id: UUID) -> None:
        self.harness, self.name = harness, name
        self.node_id, self.workload_id, self.task_id = node_id, workload_id, task_id

    @classmethod
    async def make(cls, harness: Harness, name: str = "n1") -> "Case":
        node_id = await harness.node(name, simulated=True)
        workload_id = await harness.submit(name, kind=Kind.SESSION, cpu="1500m", memory="1Gi")
        return cls(harness, name, node_id, workload_id, (await harness.tasks(workload_id))[0].id)

    def change(self, new: TaskStatus, **more: Any) -> Change:
        if new in (T.RESERVED, T.SCHEDULED):
            more |= {"node_id": self.node_id, "node_name": self.name, "score": 7}
        if new is T.RESERVED:
            more |= {"hold": NewHold(Purpose.PREPARE, now() + timedelta(minutes=1))}
        return Change(self.task_id, new, **more)

    async def bring_to(self, status: TaskStatus) -> None:
        for step in WAY_TO[status]:
            await self.harness.apply(self.change(step))


@pytest.fixture
async def case(harness: Harness) -> Case:
    return await Case.make(harness)


async def test_every_transition_updates_all_records_of_a_task(harness: Harness):
    for old, new in EDGES:
        case = await Case.make(harness, f"{old}-{new}".lower())
        await case.bring_to(old)
        await check_edge(case, old, new)
    assert await harness.findings() == []


async def check_edge(case: Case, old: TaskStatus, new: TaskStatus) -> None:
    harness = case.harness
    before = await harness.task(case.task_id)
    history, feed = await harness.history(case.task_id), await harness.feed(case.task_id)

    applied = await harness.apply(case.change(new, reason=Reason("why", "because")), actor="somebody", term=4)

    assert [(change.new, was) for change, was in applied.tasks] == [(new, old)]
    task = await harness.task(case.task_id)
    row = (await harness.ledger(case.task_id))["cpu"]
    assert (task.status, task.version) == (new, before.version + 1)
    assert task.reason["message"] == "because"
    # A task that is stopped before it ran occupies what was reserved for it, and never uses it.
    used = new is T.RUNNING or (new in USING and old in USING)
    expected = (0, 0, CPU) if used else (0, CPU, 0) if new in OCCUPYING else (0, 0, 0)
    if new is T.RESERVED:
        expected = (CPU, 0, 0)
    assert (old, new, await harness.counters(case.node_id)) == (old, new, expected)
    assert task.occupied_slots == ({"cpu": CPU, "memory": MEMORY} if new in OCCUPYING else {})
    assert task.requested_slots == {"cpu": CPU, "memory": MEMORY}
    assert row.requested == CPU
    assert (row.freed_at is not None, task.freed_at is not None) == (is_end(new), is_end(new))
    assert (task.ended_at is not None) is is_end(new)
    if new in (T.RESERVED, T.SCHEDULED):
        assert (task.node_id, task.node_name, task.score) == (case.node_id, case.name, 7)
        assert (row.held_at if new is T.RESERVED else row.reserved_at) is not None
    if new is T.PENDING:
        # Nothing of the hold is left, as if it had never existed.
        assert (task.node_id, task.node_name, task.score, row.held_at) == (None, None, None, None)
    if new is T.RUNNING:
        assert task.started_at is not None
        assert row.used_at is not None
    last = (await harness.history(case.task_id))[len(history) :]
    assert [(h.old_status, h.new_status, h.actor, h.reason, h.term) for h in last] == [
        (old, new, "somebody", "because", 4)
    ]
    received = (await harness.feed(case.task_id))[len(feed) :]
    assert [(e.kind, e.version, e.workload_id, e.term) for e in received] == [(new, task.version, case.workload_id, 4)]
    held = await harness.rows(select(holds).where(holds.c.task_id == case.task_id))
    assert [hold.node_id for hold in held] == ([case.node_id] if new is T.RESERVED else [])


async def contents(harness: Harness) -> dict[str, list[Any]]:
    """Return all rows of all tables."""
    return {table.name: sorted(map(str, await harness.rows(select(table)))) for table in metadata.sorted_tables}


@on_sqlite
async def test_a_repeated_change_has_no_effect(harness: Harness):
    for old, new in EDGES:
        case = await Case.make(harness, f"{old}-{new}".lower())
        await case.bring_to(old)
        await harness.apply(case.change(new))
        before = await contents(harness)
        assert (await harness.apply(case.change(new))).tasks == [], (old, new)
        assert await contents(harness) == before, (old, new)


@on_sqlite
async def test_an_illegal_change_is_skipped(harness: Harness):
    for old in WAY_TO:
        case = await Case.make(harness, old.lower())
        await case.bring_to(old)
        before = await contents(harness)
        for new in set(T) - TASK_EDGES[old]:
            assert (await harness.apply(case.change(new))).tasks == [], (old, new)
        assert await contents(harness) == before, old


@on_sqlite
async def test_unknown_tasks_and_illegal_changes_do_not_affect_other_changes(case: Case):
    await case.bring_to(T.SCHEDULED)
    applied = await case.harness.apply(Change(UUID(int=1), T.RUNNING), case.change(T.SUCCEEDED), case.change(T.RUNNING))
    assert [change.new for change, _ in applied.tasks] == [T.RUNNING]


async def test_a_task_may_make_several_transitions_in_one_report(harness: Harness):
    """A short command runs and ends before its agent has reported that it runs."""
    for number, steps in enumerate(
        (
            [T.PREPARING, T.RUNNING],
            [T.RUNNING, T.SUCCEEDED],
            [T.PREPARING, T.RUNNING, T.FAILED],
            [T.RUNNING, T.RUNNING, T.SUCCEEDED, T.SUCCEEDED],
        )
    ):
        case = await Case.make(harness, f"n{number}")
        await case.bring_to(T.SCHEDULED)
        await harness.apply(*(case.change(step) for step in steps))
        assert (await harness.task(case.task_id)).status == steps[-1]
        assert (await harness.workload(case.workload_id)).started_at is not None
        passed = [row.new_status for row in await harness.history(case.task_id)]
        assert passed == [T.SCHEDULED, *dict.fromkeys(steps)]
        assert await harness.counters(case.node_id) == ((0, 0, 0) if is_end(steps[-1]) else (0, 0, CPU))
        assert await harness.findings() == []


@on_sqlite
async def test_a_task_may_be_placed_and_started_in_one_transaction(case: Case):
    await case.harness.apply(*(case.change(step) for step in (T.SCHEDULED, T.RUNNING)))
    assert await case.harness.counters(case.node_id) == (0, 0, CPU)
    assert await case.harness.findings() == []


async def test_a_lost_task_occupies_its_node_until_the_node_confirms_that_it_is_gone(case: Case):
    harness = case.harness
    await case.bring_to(T.RUNNING)
    await harness.apply(case.change(T.LOST, freed=False))
    task = await harness.task(case.task_id)
    assert (task.status, task.freed_at) == (T.LOST, None)
    assert await harness.counters(case.node_id) == (0, 0, CPU)
    assert (await harness.workload(case.workload_id)).status == "PENDING"
    assert await harness.findings() == []

    assert await harness.free_lost(case.task_id, case.task_id) == 1
    assert await harness.counters(case.node_id) == (0, 0, 0)
    assert (await harness.task(case.task_id)).occupied_slots == {}
    assert await harness.findings() == []
    assert await harness.free_lost(case.task_id) == 0
    assert [e.kind for e in await harness.feed(case.task_id)][-1] == "freed"


@on_sqlite
async def test_a_live_task_is_never_freed(case: Case):
    await case.bring_to(T.RUNNING)
    assert await case.harness.free_lost(case.task_id) == 0
    assert await case.harness.counters(case.node_id) == (0, 0, CPU)


async def test_a_failed_transaction_leaves_no_change(case: Case):
    await case.bring_to(T.SCHEDULED)
    before = await contents(case.harness)

    async def work(connection: Connection) -> None:
        await transitions.apply(connection, [case.change(T.RUNNING)], actor="test", now=now())
        raise ValueError("the process dies here")

    with pytest.raises(ValueError):
        await case.harness.database.write(work)
    assert await contents(case.harness) == before


@on_sqlite
async def test_the_exit_code_is_stored(case: Case):
    await case.bring_to(T.RUNNING)
    await case.harness.apply(case.change(T.FAILED, exit_code=137, restarts=2, reason=Reason("oom", "x" * 600)))
    task = await case.harness.task(case.task_id)
    assert (task.exit_code, task.restarts, task.reason["code"]) == (137, 2, "oom")
    assert len((await case.harness.history(case.task_id))[-1].reason) == 500
    assert (await case.harness.workload(case.workload_id)).reason["code"] == "oom"


# --- the workload follows its tasks ---


@on_sqlite
async def test_the_status_of_a_workload_follows_its_tasks_with_one_history_row_per_change(harness: Harness):
    await harness.node("n1")
    job = await harness.submit("job", kind=Kind.SESSION, replicas=2)
    await harness.place()
    first, second = await harness.tasks(job)
    await harness.move(first, T.PREPARING, T.RUNNING, T.SUCCEEDED)
    await harness.move(second, T.RUNNING, T.SUCCEEDED)
    workload = await harness.workload(job)
    assert workload.status == "SUCCEEDED"
    assert None not in (workload.started_at, workload.ended_at)
    assert workload.reason is None
    lines = [(row.old_status, row.new_status, row.reason) for row in await harness.history(job)]
    assert lines == [
        ("none", "PENDING", "Session created by user"),
        ("PENDING", "SCHEDULED", "Scheduled 2 tasks"),
        ("SCHEDULED", "RUNNING", "All 2 tasks started"),
        ("RUNNING", "SUCCEEDED", "All 2 tasks succeeded"),
    ]


@on_sqlite
async def test_a_workload_can_fail_as_a_whole(harness: Harness):
    service = await harness.submit("web", replicas=2)
    reason = Reason("insufficient", "too little")
    changes = [Change(task.id, T.FAILED, reason) for task in await harness.tasks(service)]
    await harness.database.write(
        lambda c: transitions.apply(c, changes, actor="scheduler", now=now(), ended={service: (W.FAILED, reason)})
    )
    workload = await harness.workload(service)
    assert (workload.status, workload.reason["message"]) == ("FAILED", "too little")
    assert workload.ended_at is not None
    assert await harness.findings() == []


@on_sqlite
async def test_a_workload_with_a_live_task_does_not_fail_as_a_whole(harness: Harness):
    """A plugin fails on the third replica while two run: they keep running, and the third is retried."""
    await harness.node("n1", cpu=2)
    service = await harness.submit("web", replicas=3)
    await harness.place()
    running, _, waiting = await harness.tasks(service)
    await harness.move(running, T.RUNNING)
    reason = Reason("constraint-evaluation-failed", "the plugin raised")
    await harness.database.write(
        lambda c: transitions.apply(
            c, [Change(waiting.id, T.FAILED, reason)], actor="scheduler", now=now(), ended={service: (W.FAILED, reason)}
        )
    )
    workload = await harness.workload(service)
    assert workload.ended_at is None
    assert await harness.findings() == []
    await harness.replace_ended()
    assert (await harness.statuses(service))[2] == "PENDING"


@on_sqlite
async def test_every_transition_has_exactly_one_history_row_and_one_event(harness: Harness):
    await harness.node("n1")
    service = await harness.submit("web", replicas=3)
    for task in await harness.run(service):
        await harness.move(task, T.RUNNING, T.TERMINATING, T.CANCELLED, T.CANCELLED)
    for noun in ("task", "workload"):
        lines = await harness.rows(select(func.count()).where(status_history.c.noun == noun))
        received = await harness.rows(
            select(func.count()).where(events.c.noun == noun, events.c.kind.in_([status.value for status in T]))
        )
        if noun == "task":
            assert (lines[0][0], received[0][0]) == (12, 12)
        else:
            # A workload also has an event when its tasks change and its status stays.
            assert lines[0][0] <= received[0][0]


async def test_readiness_of_a_running_task_is_reported_when_it_changes_and_ends_with_the_task(case: Case):
    harness = case.harness
    await case.bring_to(T.SCHEDULED)
    await harness.apply(case.change(T.RUNNING, ready=False, digests={"main": "sha256:1"}, address="10.0.0.2"))
    started = await harness.task(case.task_id)
    assert (started.ready_at, started.digests, started.address) == (None, {"main": "sha256:1"}, "10.0.0.2")

    await harness.apply(case.change(T.RUNNING, ready=True, restarts=1))
    ready = await harness.task(case.task_id)
    assert ready.ready_at > started.started_at
    assert (ready.restarts, ready.address, ready.version) == (1, "10.0.0.2", started.version + 1)
    assert ready.started_at == started.started_at
    workload = await harness.workload(case.workload_id)
    await harness.apply(case.change(T.RUNNING, ready=True, digests={"main": "sha256:1"}, address="10.0.0.2"))
    assert await harness.task(case.task_id) == ready
    assert await harness.workload(case.workload_id) == workload

    await harness.apply(case.change(T.RUNNING, ready=True, address="10.0.0.3"))
    await harness.apply(case.change(T.RUNNING, ready=False))
    await harness.apply(case.change(T.RUNNING, ready=True))
    await harness.apply(case.change(T.TERMINATING))
    assert (await harness.task(case.task_id)).ready_at is None
    kinds = [event.kind for event in await harness.feed(case.task_id)]
    assert kinds == ["SCHEDULED", "RUNNING", "ready", "renewed", "unready", "ready", "TERMINATING"]
    assert await harness.findings() == []
