"""A bind that was put together before its transaction: what changed since then is noticed, and hurts nobody else."""

from datetime import timedelta
from typing import Any

from sqlalchemy import update

from mooring.clock import now
from mooring.model.constraints import Constraints
from mooring.model.decisions import Decision
from mooring.model.lifecycle import TaskStatus
from mooring.store import bind, workloads
from mooring.store.bind import Draft
from mooring.store.tables import pools
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour, decision_on
from tests.store.test_quota_guard import limit


async def drafted(harbour: Harbour, *decisions: Decision) -> Draft:
    found = await harbour.draft(*decisions)
    assert found is not None
    return found


def names(decisions: list[Decision]) -> list[str]:
    return [decision.workload.name for decision in decisions]


async def pair(harbour: Harbour, **other: Any) -> tuple[Decision, Decision]:
    """Two decisions: `one`, and `other` on a node of its own."""
    node_ids = [await harbour.node("n1", cpu=2), await harbour.node("n2", cpu=2)]
    ids = [await harbour.submit("one"), await harbour.submit("other", **other)]
    one, two = [await decision_on(harbour, id, [node_id]) for id, node_id in zip(ids, node_ids, strict=True)]
    return one, two


async def test_a_draft_is_committed_as_it_is_while_nothing_changes(harbour: Harbour):
    one, other = await pair(harbour)
    draft, term = await drafted(harbour, one, other), harbour.office.term
    result = await harbour.database.write(lambda c: bind.bind(c, [one, other], now=now(), term=term, drafted=draft))
    assert names(result.bound) == ["one", "other"]
    assert result.revisions == {"default": 1}
    assert await harbour.statuses(other.workload.id) == ["SCHEDULED"]
    assert [row.new_status for row in await harbour.history(one.workload.id)] == ["PENDING", "SCHEDULED"]
    assert await harbour.findings() == []


async def test_a_workload_that_was_stopped_after_the_draft_is_dropped(harbour: Harbour):
    one, other = await pair(harbour)
    draft = await drafted(harbour, one, other)
    await harbour.stop(other.workload.id)
    result = await harbour.commit_draft(draft, one, other)
    assert (names(result.bound), names(result.dropped)) == (["one"], ["other"])
    assert await harbour.statuses(other.workload.id) == ["CANCELLED"]
    assert await harbour.findings() == []


async def test_a_task_that_was_postponed_after_the_draft_is_dropped(harbour: Harbour):
    one, other = await pair(harbour)
    draft = await drafted(harbour, one, other)
    later = now() + timedelta(hours=1)
    await harbour.database.write(lambda c: workloads.postpone(c, [other.placements[0].task_id], later))
    result = await harbour.commit_draft(draft, one, other)
    assert (names(result.bound), names(result.dropped)) == (["one"], ["other"])
    assert await harbour.findings() == []


async def test_a_node_that_changed_after_the_draft_takes_nothing(harbour: Harbour):
    one, other = await pair(harbour)
    draft = await drafted(harbour, one, other)
    await harbour.drain(other.placements[0].node_id)
    result = await harbour.commit_draft(draft, one, other)
    assert names(result.bound) == ["one"]
    assert [why for _, why in result.conflicts] == ["node n2 changed"]
    assert await harbour.findings() == []


async def test_room_that_was_taken_after_the_draft_is_not_given_twice(harbour: Harbour):
    one, other = await pair(harbour, cpu=2)
    draft = await drafted(harbour, one, other)
    quicker = await harbour.submit("quicker")
    await harbour.commit(await decision_on(harbour, quicker, [other.placements[0].node_id]))
    result = await harbour.commit_draft(draft, one, other)
    assert names(result.bound) == ["one"]
    assert [why for _, why in result.conflicts] == ["node n2 has too little cpu left"]
    assert await harbour.findings() == []


@on_sqlite
async def test_tasks_that_others_placed_after_the_pass_are_noticed_at_the_commit(harbour: Harbour):
    one, other = await pair(harbour, constraints=Constraints(labels=(("app", "web"),)))
    draft = await drafted(harbour, one, other)
    await harbour.database.write(lambda c: c.execute(update(pools).values(placement_revision=7)))
    result = await harbour.commit_draft(draft, one, other, expected={"default": 6})
    assert names(result.bound) == ["one"]
    assert [why for _, why in result.conflicts] == ["pool default has other tasks than the pass saw"]
    assert result.revisions == {"default": 8}


@on_sqlite
async def test_a_gang_that_grew_after_the_draft_is_dropped(harbour: Harbour):
    """The successor of one task is to be placed when the other one is replaced as well."""
    node_id = await harbour.node("n1")
    gang = await harbour.submit("gang", replicas=2, gang=True)
    await harbour.commit(await decision_on(harbour, gang, [node_id, node_id]))
    first, second = await harbour.tasks(gang)
    await harbour.move(first, TaskStatus.FAILED)
    await harbour.replace_ended()
    await harbour.move(second, TaskStatus.FAILED)
    decision = await decision_on(harbour, gang, [node_id])
    draft = await drafted(harbour, decision)
    await harbour.replace_ended()
    assert names((await harbour.commit_draft(draft, decision)).dropped) == ["gang"]


async def test_a_limit_that_was_set_after_the_draft_holds(harbour: Harbour):
    one, other = await pair(harbour)
    draft = await drafted(harbour, one, other)
    await limit(harbour, cpu=1000)
    result = await harbour.commit_draft(draft, one, other)
    assert names(result.bound) == ["one"]
    assert [decision.workload.name for decision, _ in result.conflicts] == ["other"]
    assert await harbour.findings() == []


@on_sqlite
async def test_what_only_locks_can_tell_is_not_drafted(harbour: Harbour):
    node_id = await harbour.node("n1", max_tasks=1)
    decision = await decision_on(harbour, await harbour.submit("w"), [node_id])
    assert await harbour.draft(decision) is None
    assert names((await harbour.commit(decision)).bound) == ["w"]
