"""The guarded commit: the fit rule under locks; a decision that no longer fits affects no other."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from mooring.clock import now
from mooring.model.errors import Conflict
from mooring.model.lifecycle import NodeStatus, TaskStatus, WorkloadStatus
from mooring.model.policy.preemption import Preemption
from mooring.model.reasons import Reason
from mooring.model.resources.slots import parse_amounts
from mooring.model.workloads.workload import Kind, OnInsufficient
from mooring.store.commit.status_changes import Change
from mooring.store.core.engine import Database
from mooring.store.nodes import nodes
from tests.store.databases import on_postgresql, on_sqlite
from tests.store.harness import Harness, decision_on


async def test_placements_that_fit_are_reserved_and_others_conflict(harness: Harness):
    node_id = await harness.node("n1", cpu=10)
    fits, too_much, fits_too = [await harness.submit(f"w{cpu}", cpu=cpu) for cpu in (6, 5, 4)]
    decisions = [await decision_on(harness, workload, [node_id]) for workload in (fits, too_much, fits_too)]
    result = await harness.bind(decisions)
    assert [d.workload.id for d in result.bound] == [fits, fits_too]
    assert [(d.workload.id, why) for d, why in result.conflicts] == [(too_much, "node n1 has too little cpu left")]
    assert await harness.counters(node_id) == (0, 10_000, 0)
    assert await harness.statuses(too_much) == ["PENDING"]
    assert await harness.findings() == []


@on_sqlite
async def test_tasks_of_one_workload_share_the_capacity_of_a_node(harness: Harness):
    node_id = await harness.node("n1", cpu=2)
    workload_id = await harness.submit("w", replicas=3)
    result = await harness.bind([await decision_on(harness, workload_id, [node_id] * 3)])
    assert len(result.conflicts) == 1
    assert await harness.counters(node_id) == (0, 0, 0)


@on_sqlite
async def test_held_reserved_and_used_amounts_all_count(harness: Harness):
    # Capacity 10, of which 4 are used and 3 reserved; 3 more fit, 4 do not.
    node_id = await harness.node("n1", cpu=10)
    used, reserved = await harness.submit("used", cpu=4), await harness.submit("reserved", cpu=3)
    for workload in (used, reserved):
        await harness.bind([await decision_on(harness, workload, [node_id])])
    await harness.move((await harness.tasks(used))[0], TaskStatus.RUNNING)
    assert await harness.counters(node_id) == (0, 3000, 4000)
    four, three = await harness.submit("four", cpu=4), await harness.submit("three", cpu=3)
    result = await harness.bind([await decision_on(harness, w, [node_id]) for w in (four, three)])
    assert [d.workload.name for d in result.bound] == ["three"]


@on_sqlite
async def test_a_node_that_changed_after_the_pass_conflicts(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("w")
    decisions = await harness.propose()
    await harness.beat(node_id, now(), problem="disk full")
    result = await harness.bind(decisions)
    assert [why for _, why in result.conflicts] == ["node n1 changed"]
    assert await harness.statuses(workload_id) == ["PENDING"]


@on_sqlite
@pytest.mark.parametrize("change", ["drained", "unhealthy", "suspect", "lost"])
async def test_a_node_that_is_not_ready_conflicts_even_with_its_current_generation(harness: Harness, change: str):
    node_id = await harness.node("n1", seen_at=now())
    workload_id = await harness.submit("w")
    if change == "drained":
        await harness.drain(node_id)
    elif change == "unhealthy":
        await harness.beat(node_id, now(), problem="disk full")
    else:
        at = now() + timedelta(days=365)
        await harness.fall_silent(node_id, at, NodeStatus.SUSPECT if change == "suspect" else NodeStatus.LOST)
    result = await harness.bind([await decision_on(harness, workload_id, [node_id])])
    assert [why for _, why in result.conflicts] == ["node n1 changed"]


@on_sqlite
async def test_a_removed_node_conflicts(harness: Harness):
    node_id = await harness.node("n1")
    await harness.submit("w")
    decisions = await harness.propose()
    await harness.database.write(lambda c: nodes.remove(c, node_id, force=False, actor="test", now=now()))
    result = await harness.bind(decisions)
    assert [why for _, why in result.conflicts] == ["node n1 was removed"]


@on_sqlite
async def test_a_node_at_its_maximum_number_of_tasks_conflicts(harness: Harness):
    node_id = await harness.node("n1", max_tasks=2)
    workloads = [await harness.submit(f"w{number}") for number in range(3)]
    result = await harness.bind([await decision_on(harness, workload, [node_id]) for workload in workloads])
    assert [d.workload.name for d in result.bound] == ["w0", "w1"]
    assert [why for _, why in result.conflicts] == ["node n1 has reached its maximum number of tasks"]


@on_sqlite
async def test_max_per_node_limits_the_tasks_of_a_workload_on_a_node(harness: Harness):
    node_id, other_id = await harness.node("n1"), await harness.node("n2")
    workload_id = await harness.submit("w", replicas=2, max_per_node=1)
    both = await decision_on(harness, workload_id, [node_id, node_id])
    assert [why for _, why in (await harness.bind([both])).conflicts] == [
        "node n1 has the maximum number of tasks of this workload"
    ]
    await harness.bind([both._replace(placements=both.placements[:1])])
    second = await decision_on(harness, workload_id, [node_id])
    assert len((await harness.bind([second])).conflicts) == 1
    assert len((await harness.bind([await decision_on(harness, workload_id, [other_id])])).bound) == 1


@on_sqlite
async def test_a_request_for_a_slot_that_the_node_lacks_conflicts_unless_it_is_zero(harness: Harness):
    node_id = await harness.node("n1")
    with_gpu, without = await harness.submit("gpu", slots={"gpu": 1}), await harness.submit("none", slots={"gpu": 0})
    result = await harness.bind([await decision_on(harness, w, [node_id]) for w in (with_gpu, without)])
    assert [why for _, why in result.conflicts] == ["node n1 has no gpu"]
    assert [d.workload.id for d in result.bound] == [without]
    assert await harness.findings() == []


@on_sqlite
async def test_a_node_that_shrank_below_its_load_accepts_no_more_tasks(harness: Harness):
    """Even a request of zero for a slot above its capacity conflicts, at placement and at the commit."""
    node_id = await harness.node("n1", cpu=4, slots={"gpu": 1})
    await harness.run(await harness.submit("w", slots={"gpu": 1}))
    await harness.connect(node_id, parse_amounts({"cpu": 4, "memory": "16Gi", "gpu": 0}), now())
    workload_id = await harness.submit("zero", slots={"gpu": 0})
    [proposed] = await harness.propose()
    result = await harness.bind([await decision_on(harness, workload_id, [node_id])])
    assert bool(proposed.placements) is bool(result.bound)


async def test_a_workload_with_a_held_task_is_not_derived_from_its_pending_tasks_alone(harness: Harness):
    full, free = await harness.node("full", cpu=1), await harness.node("free")
    victim = await harness.submit("victim")
    await harness.bind([await decision_on(harness, victim, [full])])
    workload_id = await harness.submit("w", replicas=2, max_per_node=1)
    stored = await decision_on(harness, workload_id, [full], victims=await harness.tasks(victim))
    assert len((await harness.commit(stored, preemption=Preemption())).bound) == 1
    assert len((await harness.commit(await decision_on(harness, workload_id, [free]))).bound) == 1
    assert sorted(await harness.statuses(workload_id)) == ["RESERVED", "SCHEDULED"]
    assert (await harness.workload(workload_id)).status == WorkloadStatus.RESERVED
    assert await harness.findings() == []


async def test_a_cancelled_workload_is_dropped_and_the_others_are_bound(harness: Harness):
    node_id = await harness.node("n1")
    cancelled, stored = await harness.submit("cancelled"), await harness.submit("kept")
    decisions = await harness.propose()
    await harness.stop(cancelled)
    result = await harness.bind(decisions)
    assert [d.workload.id for d in result.dropped] == [cancelled]
    assert [d.workload.id for d in result.bound] == [stored]
    assert await harness.counters(node_id) == (0, 1000, 0)
    assert (await harness.workload(cancelled)).status == "CANCELLED"


@on_sqlite
async def test_a_workload_that_terminates_after_a_failed_task_is_not_placed(harness: Harness):
    await harness.node("n1", cpu=1)
    job = await harness.submit("job", kind=Kind.SESSION, replicas=2)
    await harness.place()
    placed, _ = await harness.tasks(job)
    await harness.node("n2")
    decisions = await harness.propose()
    await harness.move(placed, TaskStatus.FAILED)
    result = await harness.bind(decisions)
    assert [d.workload.id for d in result.dropped] == [job]
    assert await harness.propose() == []


@on_sqlite
async def test_binding_twice_changes_nothing(harness: Harness):
    node_id = await harness.node("n1")
    await harness.submit("w")
    decisions = await harness.propose()
    await harness.bind(decisions)
    again = await harness.bind(decisions)
    assert (again.bound, len(again.dropped)) == ([], 1)
    assert await harness.counters(node_id) == (0, 1000, 0)
    assert await harness.findings() == []


@on_sqlite
async def test_a_workload_with_on_insufficient_fail_fails_with_its_reason(harness: Harness):
    await harness.node("n1", cpu=2)
    workload_id = await harness.submit("w", replicas=3, on_insufficient=OnInsufficient.FAIL)
    await harness.place()
    workload = await harness.workload(workload_id)
    assert workload.status == "FAILED"
    assert workload.reason["message"]
    assert await harness.statuses(workload_id) == ["FAILED"] * 3
    assert await harness.findings() == []


@on_sqlite
async def test_a_workload_that_was_scaled_up_after_the_pass_does_not_fail(harness: Harness):
    workload_id = await harness.submit("w", on_insufficient=OnInsufficient.FAIL)
    decisions = await harness.propose()
    await harness.scale(workload_id, 2)
    await harness.bind(decisions)
    assert (await harness.workload(workload_id)).ended_at is None
    assert await harness.findings() == []
    # Both are refused by the next look at the whole.
    await harness.place()
    assert sorted(await harness.statuses(workload_id)) == ["FAILED", "FAILED"]
    assert await harness.findings() == []


@on_sqlite
async def test_the_reason_of_a_pending_workload_is_stored_once(harness: Harness):
    workload_id = await harness.submit("w")
    await harness.place()
    workload = await harness.workload(workload_id)
    assert workload.reason["message"] == "pool 'default' has no nodes"
    assert (workload.status, workload.version) == ("PENDING", 2)
    await harness.place()
    assert (await harness.workload(workload_id)).version == 2
    # It is placed now: no reason remains.
    await harness.node("n1")
    await harness.place()
    assert (await harness.workload(workload_id)).reason is None


@on_postgresql
async def test_concurrent_binds_never_oversubscribe_a_node(harness: Harness, migrated_url: str):
    """Twenty workloads of 1 core each want the same node with 8 cores, from two engines concurrently."""
    node_id = await harness.node("n1", cpu=8)
    other = Database(migrated_url)
    binders = [harness, Harness(other, harness.principal, harness.pool, harness.leadership)]
    workloads = [await harness.submit(f"w{number}") for number in range(20)]
    wishes = [await decision_on(harness, workload, [node_id]) for workload in workloads]
    results = await asyncio.gather(*(binders[n % 2].bind([wish]) for n, wish in enumerate(wishes)))
    await other.close()
    assert sum(len(result.bound) for result in results) == 8
    assert sum(len(result.conflicts) for result in results) == 12
    assert await harness.counters(node_id) == (0, 8000, 0)
    assert await harness.findings() == []


@on_postgresql
async def test_two_binds_of_one_task_place_it_on_one_node(harness: Harness):
    ids = [await harness.node("n1"), await harness.node("n2")]
    workload_id = await harness.submit("w")
    wishes = [await decision_on(harness, workload_id, [node_id]) for node_id in ids]
    results = await asyncio.gather(*(harness.bind([wish]) for wish in wishes))
    assert sorted((len(result.bound), len(result.dropped)) for result in results) == [(0, 1), (1, 0)]
    assert await harness.findings() == []


@on_postgresql
async def test_a_node_that_is_being_removed_gets_no_task(harness: Harness):
    for number in range(5):
        node_id = await harness.node(f"n{number}")
        workload_id = await harness.submit(f"w{number}")
        decisions = [await decision_on(harness, workload_id, [node_id])]
        removed, result = await asyncio.gather(remove(harness, node_id), harness.bind(decisions))
        # Either the task came first and the node stays, or the node went first and the task waits.
        assert removed == bool(result.conflicts)
        await harness.stop(workload_id)
    assert await harness.findings() == []


async def remove(harness: Harness, node_id: UUID) -> bool:
    try:
        await harness.database.write(lambda c: nodes.remove(c, node_id, force=False, actor="test", now=now()))
    except Conflict:
        return False
    return True


@on_postgresql
async def test_concurrent_writers_of_all_kinds_never_deadlock(harness: Harness, retried: list[Exception]):
    """Binds, reports, cancellations and losses of the same nodes run concurrently without a deadlock."""
    node_ids = [await harness.node(f"n{number}", cpu=12) for number in range(3)]
    started = [await harness.submit(f"started{number}", replicas=3, kind=Kind.SESSION) for number in range(6)]
    await harness.place()
    waiting = [await harness.submit(f"waiting{number}", replicas=2) for number in range(6)]
    # More than the free capacity: some of them are bound in part, with a reason written behind the counters.
    decisions = await harness.propose()
    placed = [task for workload in started for task in await harness.tasks(workload)]
    thirds = [placed[0::3], placed[1::3], placed[2::3]]
    await asyncio.gather(
        *(harness.bind([decision]) for decision in reversed(decisions)),
        harness.bind(decisions),
        *(harness.apply(*(Change(t.id, TaskStatus.RUNNING) for t in reversed(part))) for part in thirds),
        *(
            harness.apply(*(Change(t.id, TaskStatus.LOST, Reason("lost", "lost"), freed=False) for t in part))
            for part in thirds[:1]
        ),
        *(harness.stop(workload) for workload in (*started[:2], *waiting[:2])),
        *(harness.scale(workload, 4) for workload in waiting[2:]),
        *(harness.beat(node_id, now(), problem="hot") for node_id in node_ids),
    )
    assert retried == []
    assert await harness.findings() == []
