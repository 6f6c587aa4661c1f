"""The guarded commit: the one fit rule under locks; whoever does not fit any more hurts nobody else."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from mooring.clock import now
from mooring.model.errors import Conflict
from mooring.model.lifecycle import NodeStatus, TaskStatus, WorkloadStatus
from mooring.model.preemption import Preemption
from mooring.model.reasons import Reason
from mooring.model.slots import parse_amounts
from mooring.model.workloads import Kind, OnInsufficient
from mooring.store import nodes
from mooring.store.changes import Change
from mooring.store.engine import Database
from tests.store.databases import on_postgresql, on_sqlite
from tests.store.harbour import Harbour, decision_on


async def test_what_fits_is_reserved_and_what_does_not_goes_back(harbour: Harbour):
    node_id = await harbour.node("n1", cpu=10)
    fits, too_much, fits_too = [await harbour.submit(f"w{cpu}", cpu=cpu) for cpu in (6, 5, 4)]
    decisions = [await decision_on(harbour, workload, [node_id]) for workload in (fits, too_much, fits_too)]
    result = await harbour.bind(decisions)
    assert [d.workload.id for d in result.bound] == [fits, fits_too]
    assert [(d.workload.id, why) for d, why in result.conflicts] == [(too_much, "node n1 has too little cpu left")]
    assert await harbour.counters(node_id) == (0, 10_000, 0)
    assert await harbour.statuses(too_much) == ["PENDING"]
    assert await harbour.findings() == []


@on_sqlite
async def test_the_tasks_of_one_workload_count_against_each_other(harbour: Harbour):
    node_id = await harbour.node("n1", cpu=2)
    workload_id = await harbour.submit("w", replicas=3)
    result = await harbour.bind([await decision_on(harbour, workload_id, [node_id] * 3)])
    assert len(result.conflicts) == 1
    assert await harbour.counters(node_id) == (0, 0, 0)


@on_sqlite
async def test_held_reserved_and_used_all_take_room(harbour: Harbour):
    # Capacity 10, of which 4 are used and 3 reserved; 3 more fit, 4 do not.
    node_id = await harbour.node("n1", cpu=10)
    used, reserved = await harbour.submit("used", cpu=4), await harbour.submit("reserved", cpu=3)
    for workload in (used, reserved):
        await harbour.bind([await decision_on(harbour, workload, [node_id])])
    await harbour.move((await harbour.tasks(used))[0], TaskStatus.RUNNING)
    assert await harbour.counters(node_id) == (0, 3000, 4000)
    four, three = await harbour.submit("four", cpu=4), await harbour.submit("three", cpu=3)
    result = await harbour.bind([await decision_on(harbour, w, [node_id]) for w in (four, three)])
    assert [d.workload.name for d in result.bound] == ["three"]


@on_sqlite
async def test_a_node_that_changed_since_the_pass_looked_takes_nothing(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("w")
    decisions = await harbour.propose()
    await harbour.beat(node_id, now(), problem="disk full")
    result = await harbour.bind(decisions)
    assert [why for _, why in result.conflicts] == ["node n1 changed"]
    assert await harbour.statuses(workload_id) == ["PENDING"]


@on_sqlite
@pytest.mark.parametrize("change", ["drained", "unhealthy", "suspect", "lost"])
async def test_a_node_that_is_not_ready_takes_nothing_even_at_its_newest_generation(harbour: Harbour, change: str):
    node_id = await harbour.node("n1", seen_at=now())
    workload_id = await harbour.submit("w")
    if change == "drained":
        await harbour.drain(node_id)
    elif change == "unhealthy":
        await harbour.beat(node_id, now(), problem="disk full")
    else:
        at = now() + timedelta(days=365)
        await harbour.fall_silent(node_id, at, NodeStatus.SUSPECT if change == "suspect" else NodeStatus.LOST)
    result = await harbour.bind([await decision_on(harbour, workload_id, [node_id])])
    assert [why for _, why in result.conflicts] == ["node n1 changed"]


@on_sqlite
async def test_a_node_that_was_removed_takes_nothing(harbour: Harbour):
    node_id = await harbour.node("n1")
    await harbour.submit("w")
    decisions = await harbour.propose()
    await harbour.database.write(lambda c: nodes.remove(c, node_id, force=False, actor="test", now=now()))
    result = await harbour.bind(decisions)
    assert [why for _, why in result.conflicts] == ["node n1 was removed"]


@on_sqlite
async def test_a_node_takes_no_more_tasks_than_it_may(harbour: Harbour):
    node_id = await harbour.node("n1", max_tasks=2)
    workloads = [await harbour.submit(f"w{number}") for number in range(3)]
    result = await harbour.bind([await decision_on(harbour, workload, [node_id]) for workload in workloads])
    assert [d.workload.name for d in result.bound] == ["w0", "w1"]
    assert [why for _, why in result.conflicts] == ["node n1 has all the tasks that it may have"]


@on_sqlite
async def test_a_workload_has_no_more_tasks_on_a_node_than_it_wants(harbour: Harbour):
    node_id, other_id = await harbour.node("n1"), await harbour.node("n2")
    workload_id = await harbour.submit("w", replicas=2, max_per_node=1)
    both = await decision_on(harbour, workload_id, [node_id, node_id])
    assert [why for _, why in (await harbour.bind([both])).conflicts] == ["node n1 has a task of this workload already"]
    await harbour.bind([both._replace(placements=both.placements[:1])])
    second = await decision_on(harbour, workload_id, [node_id])
    assert len((await harbour.bind([second])).conflicts) == 1
    assert len((await harbour.bind([await decision_on(harbour, workload_id, [other_id])])).bound) == 1


@on_sqlite
async def test_a_slot_that_a_node_lacks_does_not_fit_unless_nothing_of_it_is_asked(harbour: Harbour):
    node_id = await harbour.node("n1")
    with_gpu, without = await harbour.submit("gpu", slots={"gpu": 1}), await harbour.submit("none", slots={"gpu": 0})
    result = await harbour.bind([await decision_on(harbour, w, [node_id]) for w in (with_gpu, without)])
    assert [why for _, why in result.conflicts] == ["node n1 has no gpu"]
    assert [d.workload.id for d in result.bound] == [without]
    assert await harbour.findings() == []


@on_sqlite
async def test_a_node_that_shrank_below_its_load_takes_nothing_more(harbour: Harbour):
    """Asking for nothing of a slot that is over its capacity: the proposer and the committer say the same."""
    node_id = await harbour.node("n1", cpu=4, slots={"gpu": 1})
    await harbour.run(await harbour.submit("w", slots={"gpu": 1}))
    await harbour.connect(node_id, parse_amounts({"cpu": 4, "memory": "16Gi", "gpu": 0}), now())
    workload_id = await harbour.submit("zero", slots={"gpu": 0})
    [proposed] = await harbour.propose()
    result = await harbour.bind([await decision_on(harbour, workload_id, [node_id])])
    assert bool(proposed.placements) is bool(result.bound)


async def test_a_workload_with_a_place_kept_for_one_task_is_not_as_its_waiting_tasks_tell(harbour: Harbour):
    full, free = await harbour.node("full", cpu=1), await harbour.node("free")
    victim = await harbour.submit("victim")
    await harbour.bind([await decision_on(harbour, victim, [full])])
    workload_id = await harbour.submit("w", replicas=2, max_per_node=1)
    kept = await decision_on(harbour, workload_id, [full], victims=await harbour.tasks(victim))
    assert len((await harbour.commit(kept, preemption=Preemption())).bound) == 1
    assert len((await harbour.commit(await decision_on(harbour, workload_id, [free]))).bound) == 1
    assert sorted(await harbour.statuses(workload_id)) == ["RESERVED", "SCHEDULED"]
    assert (await harbour.workload(workload_id)).status == WorkloadStatus.RESERVED
    assert await harbour.findings() == []


async def test_a_cancelled_workload_is_dropped_and_its_neighbours_are_bound(harbour: Harbour):
    node_id = await harbour.node("n1")
    cancelled, kept = await harbour.submit("cancelled"), await harbour.submit("kept")
    decisions = await harbour.propose()
    await harbour.stop(cancelled)
    result = await harbour.bind(decisions)
    assert [d.workload.id for d in result.dropped] == [cancelled]
    assert [d.workload.id for d in result.bound] == [kept]
    assert await harbour.counters(node_id) == (0, 1000, 0)
    assert (await harbour.workload(cancelled)).status == "CANCELLED"


@on_sqlite
async def test_a_workload_that_ends_because_a_task_failed_gets_no_more_nodes(harbour: Harbour):
    await harbour.node("n1", cpu=1)
    job = await harbour.submit("job", kind=Kind.SESSION, replicas=2)
    await harbour.place()
    placed, _ = await harbour.tasks(job)
    await harbour.node("n2")
    decisions = await harbour.propose()
    await harbour.move(placed, TaskStatus.FAILED)
    result = await harbour.bind(decisions)
    assert [d.workload.id for d in result.dropped] == [job]
    assert await harbour.propose() == []


@on_sqlite
async def test_binding_twice_changes_nothing(harbour: Harbour):
    node_id = await harbour.node("n1")
    await harbour.submit("w")
    decisions = await harbour.propose()
    await harbour.bind(decisions)
    again = await harbour.bind(decisions)
    assert (again.bound, len(again.dropped)) == ([], 1)
    assert await harbour.counters(node_id) == (0, 1000, 0)
    assert await harbour.findings() == []


@on_sqlite
async def test_what_cannot_be_placed_at_once_fails_with_its_reason(harbour: Harbour):
    await harbour.node("n1", cpu=2)
    workload_id = await harbour.submit("w", replicas=3, on_insufficient=OnInsufficient.FAIL)
    await harbour.place()
    workload = await harbour.workload(workload_id)
    assert workload.status == "FAILED"
    assert workload.reason["message"]
    assert await harbour.statuses(workload_id) == ["FAILED"] * 3
    assert await harbour.findings() == []


@on_sqlite
async def test_a_workload_that_grew_since_the_pass_refused_it_does_not_fail_with_a_task_waiting(harbour: Harbour):
    workload_id = await harbour.submit("w", on_insufficient=OnInsufficient.FAIL)
    decisions = await harbour.propose()
    await harbour.scale(workload_id, 2)
    await harbour.bind(decisions)
    assert (await harbour.workload(workload_id)).ended_at is None
    assert await harbour.findings() == []
    # Both are refused by the next look at the whole.
    await harbour.place()
    assert sorted(await harbour.statuses(workload_id)) == ["FAILED", "FAILED"]
    assert await harbour.findings() == []


@on_sqlite
async def test_why_a_workload_waits_is_stored_once(harbour: Harbour):
    workload_id = await harbour.submit("w")
    await harbour.place()
    workload = await harbour.workload(workload_id)
    assert workload.reason["message"] == "pool 'default' has no nodes"
    assert (workload.status, workload.version) == ("PENDING", 2)
    await harbour.place()
    assert (await harbour.workload(workload_id)).version == 2
    # It has room now: nothing is left to explain.
    await harbour.node("n1")
    await harbour.place()
    assert (await harbour.workload(workload_id)).reason is None


@on_postgresql
async def test_schedulers_that_bind_at_once_never_oversubscribe(harbour: Harbour, migrated_url: str):
    """Twenty workloads of 1 core each want the same node with 8 cores, from two engines at once."""
    node_id = await harbour.node("n1", cpu=8)
    other = Database(migrated_url)
    binders = [harbour, Harbour(other, harbour.principal, harbour.pool, harbour.office)]
    workloads = [await harbour.submit(f"w{number}") for number in range(20)]
    wishes = [await decision_on(harbour, workload, [node_id]) for workload in workloads]
    results = await asyncio.gather(*(binders[n % 2].bind([wish]) for n, wish in enumerate(wishes)))
    await other.close()
    assert sum(len(result.bound) for result in results) == 8
    assert sum(len(result.conflicts) for result in results) == 12
    assert await harbour.counters(node_id) == (0, 8000, 0)
    assert await harbour.findings() == []


@on_postgresql
async def test_two_binds_of_one_task_give_it_one_node(harbour: Harbour):
    ids = [await harbour.node("n1"), await harbour.node("n2")]
    workload_id = await harbour.submit("w")
    wishes = [await decision_on(harbour, workload_id, [node_id]) for node_id in ids]
    results = await asyncio.gather(*(harbour.bind([wish]) for wish in wishes))
    assert sorted((len(result.bound), len(result.dropped)) for result in results) == [(0, 1), (1, 0)]
    assert await harbour.findings() == []


@on_postgresql
async def test_a_node_that_is_being_removed_gets_no_task(harbour: Harbour):
    for number in range(5):
        node_id = await harbour.node(f"n{number}")
        workload_id = await harbour.submit(f"w{number}")
        decisions = [await decision_on(harbour, workload_id, [node_id])]
        removed, result = await asyncio.gather(remove(harbour, node_id), harbour.bind(decisions))
        # Either the task came first and the node stays, or the node went first and the task waits.
        assert removed == bool(result.conflicts)
        await harbour.stop(workload_id)
    assert await harbour.findings() == []


async def remove(harbour: Harbour, node_id: UUID) -> bool:
    try:
        await harbour.database.write(lambda c: nodes.remove(c, node_id, force=False, actor="test", now=now()))
    except Conflict:
        return False
    return True


@on_postgresql
async def test_writers_of_all_kinds_never_wait_for_each_other_in_a_circle(harbour: Harbour, retried: list[Exception]):
    """Binds, reports, cancellations and losses of the same nodes at once, without one deadlock."""
    node_ids = [await harbour.node(f"n{number}", cpu=12) for number in range(3)]
    started = [await harbour.submit(f"started{number}", replicas=3, kind=Kind.SESSION) for number in range(6)]
    await harbour.place()
    waiting = [await harbour.submit(f"waiting{number}", replicas=2) for number in range(6)]
    # More than the room that is left: some of them are bound in part, with a reason written behind the counters.
    decisions = await harbour.propose()
    placed = [task for workload in started for task in await harbour.tasks(workload)]
    thirds = [placed[0::3], placed[1::3], placed[2::3]]
    await asyncio.gather(
        *(harbour.bind([decision]) for decision in reversed(decisions)),
        harbour.bind(decisions),
        *(harbour.apply(*(Change(t.id, TaskStatus.RUNNING) for t in reversed(part))) for part in thirds),
        *(
            harbour.apply(*(Change(t.id, TaskStatus.LOST, Reason("lost", "lost"), freed=False) for t in part))
            for part in thirds[:1]
        ),
        *(harbour.stop(workload) for workload in (*started[:2], *waiting[:2])),
        *(harbour.scale(workload, 4) for workload in waiting[2:]),
        *(harbour.beat(node_id, now(), problem="hot") for node_id in node_ids),
    )
    assert retried == []
    assert await harbour.findings() == []
