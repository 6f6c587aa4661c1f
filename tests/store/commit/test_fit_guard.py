"""The fit guard: all binding modes accept and refuse the same decisions, by one fit rule."""

import asyncio
import random
from collections import Counter
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from mooring.clock import now
from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.labels import equal_to
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.pools import Binding
from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.slots import fits
from mooring.model.workloads.constraints import Constraints, Spread, TaskTerm
from mooring.model.workloads.workload import Kind
from mooring.store.commit import bind
from mooring.store.commit.bind import Draft
from mooring.store.core.batch_sql import NotAsExpected
from mooring.store.core.engine import Connection, Database
from mooring.store.tables import node_resources, status_history, tasks
from mooring.store.tables import workloads as workloads_table
from mooring.store.workloads import pending
from tests.store.databases import on_postgresql, on_sqlite
from tests.store.harness import Harness, decision_on

# Per decision: cores of each task, and the node of each task.
DECISIONS = st.lists(
    st.tuples(st.integers(0, 4), st.lists(st.integers(0, 2), min_size=1, max_size=3)), min_size=1, max_size=6
)


class Undone(Exception):
    """Rolls back a trial."""


@on_sqlite
async def test_all_binding_modes_accept_and_refuse_the_same_decisions(harness: Harness):
    node_ids = [await harness.node(f"n{cpu}", cpu=cpu) for cpu in (2, 4, 6)]
    rows = [await harness.node_row(node_id) for node_id in node_ids]
    waiting = {}
    for cpu in range(5):
        for number in range(6):
            workload_id = await harness.submit(f"w{cpu}-{number}", cpu=cpu, replicas=3)
            async with harness.database.read() as connection:
                [waiting[cpu, number]] = await pending.waiting(connection, [workload_id])

    async def bound(decisions: list[Decision], mode: Binding) -> list[bool]:
        found: list[bool] = []
        drafted = await harness.draft(*decisions) if mode is Binding.OPTIMISTIC else None

        async def work(drafted: Draft | None, connection: Connection) -> None:
            term = harness.leadership.term
            result = await bind.bind(connection, decisions, now=now(), term=term, mode=mode, drafted=drafted)
            ids = {decision.workload.id for decision in result.bound}
            found.extend(decision.workload.id in ids for decision in decisions)
            raise Undone

        with pytest.raises((Undone, NotAsExpected)) as refused:
            await harness.database.write(partial(work, drafted))
        if refused.type is NotAsExpected:
            with pytest.raises(Undone):
                await harness.database.write(partial(work, None))
        return found

    def expected(decisions: list[Decision]) -> list[bool]:
        taken: Counter[UUID] = Counter()
        allocatable = dict(zip(node_ids, (2000, 4000, 6000), strict=True))
        answers = []
        for decision in decisions:
            wants: Counter[UUID] = Counter()
            for placement in decision.placements:
                wants[placement.node_id] += decision.workload.request["cpu"]
            answers.append(all(fits(allocatable[id], 0, taken[id], 0, amount) for id, amount in wants.items()))
            if answers[-1]:
                taken.update(wants)
        return answers

    async def check(drawn: list[tuple[int, list[int]]]) -> None:
        decisions = []
        for number, (cpu, places) in enumerate(drawn):
            workload = waiting[cpu, number]
            placements = tuple(
                Placement(task.id, rows[place].id, rows[place].name, rows[place].generation, 1)
                for task, place in zip(workload.tasks, places, strict=False)
            )
            decisions.append(Decision(workload, Outcome.PLACED, placements))
        wanted = expected(decisions)
        for mode in Binding:
            assert await bound(decisions, mode) == wanted, mode

    loop = asyncio.get_running_loop()

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(DECISIONS)
    def run(drawn: list[tuple[int, list[int]]]) -> None:
        asyncio.run_coroutine_threadsafe(check(drawn), loop).result(60)

    await asyncio.to_thread(run)


@on_sqlite
@pytest.mark.parametrize("mode", list(Binding))
async def test_single_node_and_min_tasks_are_checked_for_the_whole_workload(harness: Harness, mode: Binding):
    node_id, other_id = await harness.node("n1"), await harness.node("n2")
    one_node_only, several = await harness.submit("together", replicas=2), await harness.submit("several", replicas=3)
    await demand(harness, one_node_only, single_node=True)
    await demand(harness, several, min_tasks=3)
    apart = await decision_on(harness, one_node_only, [node_id, other_id])
    too_few = await decision_on(harness, several, [node_id, other_id])
    result = await harness.commit(apart, too_few, mode=mode)
    assert [why for _, why in result.conflicts] == [
        "all tasks of the workload have to be on one node",
        "at least 3 tasks have to start at the same time; there are 2",
    ]
    one_node = await decision_on(harness, one_node_only, [node_id, node_id])
    enough = await decision_on(harness, several, [node_id, other_id, node_id])
    assert len((await harness.commit(one_node, enough, mode=mode)).bound) == 2
    assert await harness.findings() == []


@on_sqlite
@pytest.mark.parametrize("mode", list(Binding))
async def test_the_remaining_tasks_of_a_workload_may_be_fewer_than_min_tasks(harness: Harness, mode: Binding):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("several", replicas=3, kind=Kind.SESSION, min_tasks=2)
    await harness.commit(await decision_on(harness, workload_id, [node_id, node_id]))
    for task in (await harness.tasks(workload_id))[:2]:
        await harness.move(task, TaskStatus.RUNNING, TaskStatus.SUCCEEDED)
    last = await decision_on(harness, workload_id, [node_id])
    assert (await harness.commit(last, mode=mode)).conflicts == []


@on_sqlite
async def test_the_remaining_tasks_of_a_single_node_workload_may_start_on_another_node_after_the_others_ended(
    harness: Harness,
):
    await harness.node("n1")
    job = await harness.submit("job", kind=Kind.SESSION, replicas=2, min_tasks=2)
    first, second = await harness.run(job)
    await harness.move(first, TaskStatus.SUCCEEDED)
    await harness.move(second, TaskStatus.TERMINATING, requeue=True)
    await harness.move(second, TaskStatus.CANCELLED)
    await harness.replace_ended()
    assert (await harness.place()).conflicts == []
    assert await harness.statuses(job) == ["SUCCEEDED", "SCHEDULED"]


async def demand(harness: Harness, workload_id: UUID, **values: Any) -> None:
    changed = update(workloads_table).where(workloads_table.c.id == workload_id).values(values)
    await harness.database.write(lambda c: c.execute(changed))


@on_sqlite
@pytest.mark.parametrize("mode", list(Binding))
async def test_no_device_is_allocated_twice(harness: Harness, mode: Binding):
    node_id = await harness.node("n1", slots={"gpu": 2})
    whole, half, third = [await harness.submit(name, slots={"gpu": "500m"}) for name in ("whole", "half", "third")]
    shares = [DeviceShare("gpu", 0, 700), DeviceShare("gpu", 0, 400), DeviceShare("gpu", 2, 100)]
    wishes = [
        await decision_on(harness, workload, [node_id], devices=[share])
        for workload, share in zip((whole, half, third), shares, strict=True)
    ]
    result = await harness.commit(*wishes, mode=mode)
    assert [d.workload.id for d in result.bound] == [whole]
    assert [why for _, why in result.conflicts] == [
        "device 0 of node n1 has too little gpu left",
        "device 2 of node n1 has too little gpu left",
    ]
    assert await harness.taken(node_id) == {0: 700, 1: 0}
    assert await harness.findings() == []


@on_sqlite
async def test_a_labelled_workload_conflicts_if_the_pool_changed_since_anti_affinity_may_match_it(harness: Harness):
    node_id = await harness.node("n1")
    labels = (("app", "db"),)
    apart = Constraints(labels=labels, anti_affinity=(TaskTerm("node", equal_to(dict(labels))),))
    plain = await harness.submit("plain", constraints=Constraints(labels=labels))
    wish = await decision_on(harness, plain, [node_id])
    alone = await harness.submit("alone", constraints=apart)
    await harness.commit(await decision_on(harness, alone, [node_id]), expected={"default": 0})
    assert len((await harness.commit(wish, expected={"default": 0})).conflicts) == 1


@on_sqlite
async def test_constraints_between_tasks_require_the_placement_revision_of_the_pass(harness: Harness):
    node_id = await harness.node("n1")
    spread = await harness.submit("spread", constraints=Constraints(spread=(Spread("zone", 1, None),)))
    plain = await harness.submit("plain")
    wish = await decision_on(harness, spread, [node_id])
    first = await harness.commit(await decision_on(harness, plain, [node_id]), expected={"default": 0})
    assert first.revisions == {"default": 1}
    stale = await harness.commit(wish, expected={"default": 0})
    assert [why for _, why in stale.conflicts] == ["pool default has changed since the pass began"]
    assert stale.revisions == {}
    assert (await harness.commit(wish, expected=first.revisions)).revisions == {"default": 2}
    received = [event for event in await harness.feed(harness.pool.id) if event.kind == "placed"]
    assert [(event.version, event.term) for event in received] == [
        (1, harness.leadership.term),
        (2, harness.leadership.term),
    ]


@on_sqlite
async def test_a_decision_survives_a_new_pending_reason_but_not_a_held_task(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("w")
    wish = await decision_on(harness, workload_id, [node_id])
    await demand(harness, workload_id, reason={"message": "other"}, version=7)
    assert len((await harness.commit(wish)).bound) == 1
    other = await harness.submit("other")
    stale = await decision_on(harness, other, [node_id])
    raised = update(tasks).where(tasks.c.workload_id == other).values(version=tasks.c.version + 2)
    await harness.database.write(lambda c: c.execute(raised))
    assert len((await harness.commit(stale)).dropped) == 1


@on_sqlite
async def test_a_gang_with_a_new_task_after_the_pass_is_dropped(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("w", replicas=2, gang=True)
    wish = await decision_on(harness, workload_id, [node_id, node_id])
    await harness.scale(workload_id, 3)
    assert len((await harness.commit(wish)).dropped) == 1
    assert len((await harness.commit(await decision_on(harness, workload_id, [node_id] * 3))).bound) == 1


@on_postgresql
@pytest.mark.parametrize("mode", [Binding.OPTIMISTIC, Binding.PESSIMISTIC])
@pytest.mark.parametrize(
    ("nodes", "cpu", "wanted"),
    [(20, 8, 150), pytest.param(100, 104, 10_000, marks=[pytest.mark.soak, pytest.mark.timeout(600)])],
)
async def test_eight_binders_with_stale_views_place_everything_that_fits_and_nothing_twice(
    harness: Harness, migrated_url: str, mode: Binding, nodes: int, cpu: int, wanted: int
):
    """Tasks of 1 core fill nearly all nodes; each binder chooses nodes as if they were empty."""
    rows = [await harness.node_row(await harness.node(f"n{n}", cpu=cpu, memory="1Ti")) for n in range(nodes)]
    for number in range(wanted // 5):
        await harness.submit(f"w{number}", replicas=5)
    databases = [Database(migrated_url) for _ in range(8)]
    binders = [Harness(d, harness.principal, harness.pool, harness.leadership) for d in databases]
    try:
        bound = await asyncio.gather(
            *(place_all(binder, rows, random.Random(seed), mode, wanted // 20) for seed, binder in enumerate(binders))
        )
    finally:
        for database in databases:
            await database.close()
    assert sum(bound) == wanted
    taken = await harness.rows(select(tasks.c.id).where(tasks.c.status == "SCHEDULED"))
    assert len(taken) == wanted
    lines = await harness.rows(select(status_history.c.object_id).where(status_history.c.noun == "task"))
    assert sorted(row.object_id for row in lines) == sorted(row.id for row in taken)
    full = await harness.rows(select(node_resources).where(node_resources.c.reserved > node_resources.c.allocatable))
    assert full == []
    assert await harness.findings() == []


async def place_all(binder: Harness, nodes: list[Any], draw: random.Random, mode: Binding, most: int) -> int:
    """Place pending tasks on random nodes until none is pending; return how many this binder has placed."""
    placed = 0
    while True:
        async with binder.database.read() as connection:
            waiting = await pending.waiting(connection)
        if not waiting:
            return placed
        decisions = []
        for workload in draw.sample(waiting, min(most, len(waiting))):
            task, node = draw.choice(workload.tasks), draw.choice(nodes)
            chosen = Placement(task.id, node.id, node.name, node.generation, 1)
            decisions.append(Decision(workload, Outcome.PLACED, (chosen,)))
        result = await binder.commit(*decisions, mode=mode)
        placed += len(result.bound)
