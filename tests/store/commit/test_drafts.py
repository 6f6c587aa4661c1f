"""Drafts of a bind: changes after the draft are detected, and affect no other decision."""

from datetime import timedelta
from typing import Any

from sqlalchemy import update

from mooring.clock import now
from mooring.model.decisions import Decision
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.constraints import Constraints
from mooring.store.commit import bind
from mooring.store.commit.bind import Draft
from mooring.store.tables import pools
from mooring.store.workloads import pending
from tests.store.commit.test_quota_guard import limit
from tests.store.databases import on_sqlite
from tests.store.harness import Harness, decision_on


async def drafted(harness: Harness, *decisions: Decision) -> Draft:
    found = await harness.draft(*decisions)
    assert found is not None
    return found


def names(decisions: list[Decision]) -> list[str]:
    return [decision.workload.name for decision in decisions]


async def pair(harness: Harness, **other: Any) -> tuple[Decision, Decision]:
    """Return two decisions: `one`, and `other` on another node."""
    node_ids = [await harness.node("n1", cpu=2), await harness.node("n2", cpu=2)]
    ids = [await harness.submit("one"), await harness.submit("other", **other)]
    one, two = [await decision_on(harness, id, [node_id]) for id, node_id in zip(ids, node_ids, strict=True)]
    return one, two


async def test_a_draft_is_committed_while_nothing_changes(harness: Harness):
    one, other = await pair(harness)
    draft, term = await drafted(harness, one, other), harness.leadership.term
    result = await harness.database.write(lambda c: bind.bind(c, [one, other], now=now(), term=term, drafted=draft))
    assert names(result.bound) == ["one", "other"]
    assert result.revisions == {"default": 1}
    assert await harness.statuses(other.workload.id) == ["SCHEDULED"]
    assert [row.new_status for row in await harness.history(one.workload.id)] == ["PENDING", "SCHEDULED"]
    assert await harness.findings() == []


async def test_a_workload_stopped_after_the_draft_is_dropped(harness: Harness):
    one, other = await pair(harness)
    draft = await drafted(harness, one, other)
    await harness.stop(other.workload.id)
    result = await harness.commit_draft(draft, one, other)
    assert (names(result.bound), names(result.dropped)) == (["one"], ["other"])
    assert await harness.statuses(other.workload.id) == ["CANCELLED"]
    assert await harness.findings() == []


async def test_a_task_postponed_after_the_draft_is_dropped(harness: Harness):
    one, other = await pair(harness)
    draft = await drafted(harness, one, other)
    later = now() + timedelta(hours=1)
    await harness.database.write(lambda c: pending.postpone(c, [other.placements[0].task_id], later))
    result = await harness.commit_draft(draft, one, other)
    assert (names(result.bound), names(result.dropped)) == (["one"], ["other"])
    assert await harness.findings() == []


async def test_a_node_that_changed_after_the_draft_conflicts(harness: Harness):
    one, other = await pair(harness)
    draft = await drafted(harness, one, other)
    await harness.drain(other.placements[0].node_id)
    result = await harness.commit_draft(draft, one, other)
    assert names(result.bound) == ["one"]
    assert [why for _, why in result.conflicts] == ["node n2 changed"]
    assert await harness.findings() == []


async def test_capacity_taken_after_the_draft_is_not_allocated_twice(harness: Harness):
    one, other = await pair(harness, cpu=2)
    draft = await drafted(harness, one, other)
    quicker = await harness.submit("quicker")
    await harness.commit(await decision_on(harness, quicker, [other.placements[0].node_id]))
    result = await harness.commit_draft(draft, one, other)
    assert names(result.bound) == ["one"]
    assert [why for _, why in result.conflicts] == ["node n2 has too little cpu left"]
    assert await harness.findings() == []


@on_sqlite
async def test_tasks_placed_after_the_pass_are_detected_at_the_commit(harness: Harness):
    one, other = await pair(harness, constraints=Constraints(labels=(("app", "web"),)))
    draft = await drafted(harness, one, other)
    await harness.database.write(lambda c: c.execute(update(pools).values(placement_revision=7)))
    result = await harness.commit_draft(draft, one, other, expected={"default": 6})
    assert names(result.bound) == ["one"]
    assert [why for _, why in result.conflicts] == ["pool default has changed since the pass began"]
    assert result.revisions == {"default": 8}


@on_sqlite
async def test_a_gang_with_a_new_task_after_the_draft_is_dropped(harness: Harness):
    """The replacement of one task is about to be placed when the other task is replaced as well."""
    node_id = await harness.node("n1")
    gang = await harness.submit("gang", replicas=2, gang=True)
    await harness.commit(await decision_on(harness, gang, [node_id, node_id]))
    first, second = await harness.tasks(gang)
    await harness.move(first, TaskStatus.FAILED)
    await harness.replace_ended()
    await harness.move(second, TaskStatus.FAILED)
    decision = await decision_on(harness, gang, [node_id])
    draft = await drafted(harness, decision)
    await harness.replace_ended()
    assert names((await harness.commit_draft(draft, decision)).dropped) == ["gang"]


async def test_a_limit_set_after_the_draft_is_enforced(harness: Harness):
    one, other = await pair(harness)
    draft = await drafted(harness, one, other)
    await limit(harness, cpu=1000)
    result = await harness.commit_draft(draft, one, other)
    assert names(result.bound) == ["one"]
    assert [decision.workload.name for decision, _ in result.conflicts] == ["other"]
    assert await harness.findings() == []


@on_sqlite
async def test_decisions_that_need_locks_are_not_drafted(harness: Harness):
    node_id = await harness.node("n1", max_tasks=1)
    decision = await decision_on(harness, await harness.submit("w"), [node_id])
    assert await harness.draft(decision) is None
    assert names((await harness.commit(decision)).bound) == ["w"]
