"""The guard: whatever is decided, all modes accept and refuse the same, and that is what the one fit rule says."""

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
from mooring.model.constraints import Constraints, Spread, TaskTerm
from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.devices import DeviceShare
from mooring.model.labels import equal_to
from mooring.model.lifecycle import TaskStatus
from mooring.model.pools import Binding
from mooring.model.slots import fits
from mooring.model.workloads import Kind
from mooring.store import bind, workloads
from mooring.store.bind import Draft
from mooring.store.engine import Connection, Database
from mooring.store.sets import NotAsExpected
from mooring.store.tables import node_resources, status_history, tasks
from mooring.store.tables import workloads as workloads_table
from tests.store.databases import on_postgresql, on_sqlite
from tests.store.harbour import Harbour, decision_on

# Per decision: cores of each task, and the node of each task.
DECISIONS = st.lists(
    st.tuples(st.integers(0, 4), st.lists(st.integers(0, 2), min_size=1, max_size=3)), min_size=1, max_size=6
)


class Undone(Exception):
    """Ends a trial without a trace."""


@on_sqlite
async def test_all_modes_accept_and_refuse_the_same_by_the_one_fit_rule(harbour: Harbour):
    node_ids = [await harbour.node(f"n{cpu}", cpu=cpu) for cpu in (2, 4, 6)]
    rows = [await harbour.node_row(node_id) for node_id in node_ids]
    waiting = {}
    for cpu in range(5):
        for number in range(6):
            workload_id = await harbour.submit(f"w{cpu}-{number}", cpu=cpu, replicas=3)
            async with harbour.database.read() as connection:
                [waiting[cpu, number]] = await workloads.waiting(connection, [workload_id])

    async def bound(decisions: list[Decision], mode: Binding) -> list[bool]:
        found: list[bool] = []
        drafted = await harbour.draft(*decisions) if mode is Binding.OPTIMISTIC else None

        async def work(drafted: Draft | None, connection: Connection) -> None:
            term = harbour.office.term
            result = await bind.bind(connection, decisions, now=now(), term=term, mode=mode, drafted=drafted)
            ids = {decision.workload.id for decision in result.bound}
            found.extend(decision.workload.id in ids for decision in decisions)
            raise Undone

        with pytest.raises((Undone, NotAsExpected)) as refused:
            await harbour.database.write(partial(work, drafted))
        if refused.type is NotAsExpected:
            with pytest.raises(Undone):
                await harbour.database.write(partial(work, None))
        return found

    def expected(decisions: list[Decision]) -> list[bool]:
        taken: Counter[UUID] = Counter()
        room = dict(zip(node_ids, (2000, 4000, 6000), strict=True))
        answers = []
        for decision in decisions:
            wants: Counter[UUID] = Counter()
            for placement in decision.placements:
                wants[placement.node_id] += decision.workload.request["cpu"]
            answers.append(all(fits(room[id], 0, taken[id], 0, amount) for id, amount in wants.items()))
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
async def test_one_node_and_enough_tasks_are_demanded_of_the_workload_as_a_whole(harbour: Harbour, mode: Binding):
    node_id, other_id = await harbour.node("n1"), await harbour.node("n2")
    together, several = await harbour.submit("together", replicas=2), await harbour.submit("several", replicas=3)
    await demand(harbour, together, single_node=True)
    await demand(harbour, several, min_tasks=3)
    apart = await decision_on(harbour, together, [node_id, other_id])
    too_few = await decision_on(harbour, several, [node_id, other_id])
    result = await harbour.commit(apart, too_few, mode=mode)
    assert [why for _, why in result.conflicts] == [
        "all tasks of the workload have to be on one node",
        "3 tasks start together or none; there are 2",
    ]
    one_node = await decision_on(harbour, together, [node_id, node_id])
    enough = await decision_on(harbour, several, [node_id, other_id, node_id])
    assert len((await harbour.commit(one_node, enough, mode=mode)).bound) == 2
    assert await harbour.findings() == []


@on_sqlite
@pytest.mark.parametrize("mode", list(Binding))
async def test_what_is_left_of_a_workload_may_be_fewer_than_had_to_start_together(harbour: Harbour, mode: Binding):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("several", replicas=3, kind=Kind.SESSION, min_tasks=2)
    await harbour.commit(await decision_on(harbour, workload_id, [node_id, node_id]))
    for task in (await harbour.tasks(workload_id))[:2]:
        await harbour.move(task, TaskStatus.RUNNING, TaskStatus.SUCCEEDED)
    last = await decision_on(harbour, workload_id, [node_id])
    assert (await harbour.commit(last, mode=mode)).conflicts == []


@on_sqlite
async def test_what_is_left_of_a_workload_may_start_where_the_others_have_ended(harbour: Harbour):
    await harbour.node("n1")
    job = await harbour.submit("job", kind=Kind.SESSION, replicas=2, min_tasks=2)
    first, second = await harbour.run(job)
    await harbour.move(first, TaskStatus.SUCCEEDED)
    await harbour.move(second, TaskStatus.TERMINATING, requeue=True)
    await harbour.move(second, TaskStatus.CANCELLED)
    await harbour.replace_ended()
    assert (await harbour.place()).conflicts == []
    assert await harbour.statuses(job) == ["SUCCEEDED", "SCHEDULED"]


async def demand(harbour: Harbour, workload_id: UUID, **values: Any) -> None:
    changed = update(workloads_table).where(workloads_table.c.id == workload_id).values(values)
    await harbour.database.write(lambda c: c.execute(changed))


@on_sqlite
@pytest.mark.parametrize("mode", list(Binding))
async def test_no_device_is_given_out_twice(harbour: Harbour, mode: Binding):
    node_id = await harbour.node("n1", slots={"gpu": 2})
    whole, half, third = [await harbour.submit(name, slots={"gpu": "500m"}) for name in ("whole", "half", "third")]
    shares = [DeviceShare("gpu", 0, 700), DeviceShare("gpu", 0, 400), DeviceShare("gpu", 2, 100)]
    wishes = [
        await decision_on(harbour, workload, [node_id], devices=[share])
        for workload, share in zip((whole, half, third), shares, strict=True)
    ]
    result = await harbour.commit(*wishes, mode=mode)
    assert [d.workload.id for d in result.bound] == [whole]
    assert [why for _, why in result.conflicts] == [
        "device 0 of node n1 has too little gpu left",
        "device 2 of node n1 has too little gpu left",
    ]
    assert await harbour.taken(node_id) == {0: 700, 1: 0}
    assert await harbour.findings() == []


@on_sqlite
async def test_by_its_labels_a_task_may_be_whom_others_must_be_apart_from(harbour: Harbour):
    node_id = await harbour.node("n1")
    labels = (("app", "db"),)
    apart = Constraints(labels=labels, anti_affinity=(TaskTerm("node", equal_to(dict(labels))),))
    plain = await harbour.submit("plain", constraints=Constraints(labels=labels))
    wish = await decision_on(harbour, plain, [node_id])
    alone = await harbour.submit("alone", constraints=apart)
    await harbour.commit(await decision_on(harbour, alone, [node_id]), expected={"default": 0})
    assert len((await harbour.commit(wish, expected={"default": 0})).conflicts) == 1


@on_sqlite
async def test_constraints_between_tasks_demand_the_pool_that_the_pass_saw(harbour: Harbour):
    node_id = await harbour.node("n1")
    spread = await harbour.submit("spread", constraints=Constraints(spread=(Spread("zone", 1, None),)))
    plain = await harbour.submit("plain")
    wish = await decision_on(harbour, spread, [node_id])
    first = await harbour.commit(await decision_on(harbour, plain, [node_id]), expected={"default": 0})
    assert first.revisions == {"default": 1}
    stale = await harbour.commit(wish, expected={"default": 0})
    assert [why for _, why in stale.conflicts] == ["pool default has other tasks than the pass saw"]
    assert stale.revisions == {}
    assert (await harbour.commit(wish, expected=first.revisions)).revisions == {"default": 2}
    told = [event for event in await harbour.feed(harbour.pool.id) if event.kind == "placed"]
    assert [(event.version, event.term) for event in told] == [(1, harbour.office.term), (2, harbour.office.term)]


@on_sqlite
async def test_a_new_reason_for_waiting_drops_nothing_and_a_task_that_was_held_since_does(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("w")
    wish = await decision_on(harbour, workload_id, [node_id])
    await demand(harbour, workload_id, reason={"message": "other"}, version=7)
    assert len((await harbour.commit(wish)).bound) == 1
    other = await harbour.submit("other")
    stale = await decision_on(harbour, other, [node_id])
    raised = update(tasks).where(tasks.c.workload_id == other).values(version=tasks.c.version + 2)
    await harbour.database.write(lambda c: c.execute(raised))
    assert len((await harbour.commit(stale)).dropped) == 1


@on_sqlite
async def test_a_gang_that_grew_since_the_pass_saw_it_is_dropped(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("w", replicas=2, gang=True)
    wish = await decision_on(harbour, workload_id, [node_id, node_id])
    await harbour.scale(workload_id, 3)
    assert len((await harbour.commit(wish)).dropped) == 1
    assert len((await harbour.commit(await decision_on(harbour, workload_id, [node_id] * 3))).bound) == 1


@on_postgresql
@pytest.mark.parametrize("mode", [Binding.OPTIMISTIC, Binding.PESSIMISTIC])
@pytest.mark.parametrize(
    ("nodes", "cpu", "wanted"),
    [(20, 8, 150), pytest.param(100, 104, 10_000, marks=[pytest.mark.soak, pytest.mark.timeout(600)])],
)
async def test_eight_binders_with_stale_views_place_all_that_fits_and_nothing_twice(
    harbour: Harbour, migrated_url: str, mode: Binding, nodes: int, cpu: int, wanted: int
):
    """Tasks of 1 core fill nearly all of the nodes, which each binder draws from as if they were empty."""
    rows = [await harbour.node_row(await harbour.node(f"n{n}", cpu=cpu, memory="1Ti")) for n in range(nodes)]
    for number in range(wanted // 5):
        await harbour.submit(f"w{number}", replicas=5)
    databases = [Database(migrated_url) for _ in range(8)]
    binders = [Harbour(d, harbour.principal, harbour.pool, harbour.office) for d in databases]
    try:
        bound = await asyncio.gather(
            *(place_all(binder, rows, random.Random(seed), mode, wanted // 20) for seed, binder in enumerate(binders))
        )
    finally:
        for database in databases:
            await database.close()
    assert sum(bound) == wanted
    taken = await harbour.rows(select(tasks.c.id).where(tasks.c.status == "SCHEDULED"))
    assert len(taken) == wanted
    lines = await harbour.rows(select(status_history.c.object_id).where(status_history.c.noun == "task"))
    assert sorted(row.object_id for row in lines) == sorted(row.id for row in taken)
    full = await harbour.rows(select(node_resources).where(node_resources.c.reserved > node_resources.c.allocatable))
    assert full == []
    assert await harbour.findings() == []


async def place_all(binder: Harbour, nodes: list[Any], draw: random.Random, mode: Binding, most: int) -> int:
    """Place whatever waits on nodes drawn at random, until nothing waits; how many tasks this binder has placed."""
    placed = 0
    while True:
        async with binder.database.read() as connection:
            waiting = await workloads.waiting(connection)
        if not waiting:
            return placed
        decisions = []
        for workload in draw.sample(waiting, min(most, len(waiting))):
            task, node = draw.choice(workload.tasks), draw.choice(nodes)
            chosen = Placement(task.id, node.id, node.name, node.generation, 1)
            decisions.append(Decision(workload, Outcome.PLACED, (chosen,)))
        result = await binder.commit(*decisions, mode=mode)
        placed += len(result.bound)
