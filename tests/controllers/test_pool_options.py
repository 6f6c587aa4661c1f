"""Each option of a pool has its effect from the next pass on, from the API's words to what the store has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from mooring import metrics
from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.scheduling import SchedulingLoop
from mooring.intake.pools import PoolAdmin
from mooring.mirror.mirror import Mirror
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.model.fair_share import Factors
from mooring.model.lifecycle import TaskStatus
from mooring.model.pools import (
    Backfill,
    BackfillOrder,
    Binding,
    Expectation,
    FairShare,
    HeadOfLine,
    HealthProgram,
    Moment,
    PoolPolicy,
)
from mooring.model.preemption import Preemption, PreemptionMode, VictimScope
from mooring.model.quotas import Scope
from mooring.model.templates import Goal, ScalingRules, Shrink
from mooring.model.timeslots import BookingRules
from mooring.model.workloads import OnInsufficient
from mooring.store import join_tokens, quotas
from mooring.store.pools import by_name
from mooring.store.quotas import QuotaChange
from mooring.store.tables import admin_actions
from mooring.wire.pools import PoolChange, PoolRequest
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour
from tests.store.tenancy import make_user

EVERYTHING: dict[str, Any] = {
    "profile": "pack",
    "weights": {"resources": 2},
    "binding": "two_phase",
    "hold_seconds": 5,
    "hold_max_seconds": 50,
    "fragmentation": True,
    "preemption": {"mode": "terminate", "scope": "reclaim", "min_runtime_seconds": 60, "hold_seconds": 9},
    "sequencer": "multi_factor",
    "fair_share": {"half_life_days": 3, "slot_weights": {"cpu": 5}},
    "factors": {"size": 2, "age": 1},
    "ageing_seconds": 7,
    "head_of_line": "strict",
    "backfill": {"depth": 3, "order": "shortest", "max_bypass_seconds": 60, "expectation": "history"},
    "bookings": {"lead_seconds": 20, "grace_seconds": 21, "notice_seconds": 22},
    "on_insufficient": "fail",
    "pending_timeout_seconds": 11,
    "allowed_types": ["batch"],
    "max_tasks_per_node": 12,
    "default_time_seconds": 13,
    "max_time_seconds": 14,
    "idle_timeout_seconds": 600,
    "deprioritise": 15,
    "validators": {"concurrency": ["enqueue"], "dependencies": []},
    "public": False,
    "privileged": True,
    "host_paths": ["/data", "/srv/models"],
    "shared_volumes": "/mnt/shared",
    "health": {"command": ["true"], "interval_seconds": 17, "timeout_seconds": 16},
    "scaling": {"goal": "fewest", "least": 18, "most": 19, "idle_seconds": 20, "shrink": "drain"},
}


@pytest.fixture
async def loop(harbour: Harbour) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harbour.database), Binder(harbour.database), harbour.office)
    yield loop
    loop.close()


async def change(harbour: Harbour, **options: Any) -> None:
    await PoolAdmin(harbour.database).change("default", PoolChange.model_validate(options))


async def policy(harbour: Harbour, name: str = "default") -> PoolPolicy:
    async with harbour.database.read() as connection:
        found = await by_name(connection, name)
    assert found is not None
    return found.policy


async def test_every_option_is_kept_and_the_others_stay(harbour: Harbour):
    assert set(EVERYTHING) == {*PoolChange.model_fields}
    await change(harbour, **EVERYTHING)
    assert await policy(harbour) == PoolPolicy(
        "pack",
        (("resources", 2),),
        Binding.TWO_PHASE,
        5,
        True,
        Preemption(PreemptionMode.TERMINATE, VictimScope.RECLAIM, 60, 9),
        "multi_factor",
        FairShare(3, 28, (("cpu", 5),)),
        (("age", 1), ("size", 2)),
        7,
        HeadOfLine.STRICT,
        OnInsufficient.FAIL,
        11,
        ("batch",),
        12,
        13,
        14,
        600,
        15,
        (("concurrency", (Moment.ENQUEUE,)), ("dependencies", ())),
        False,
        privileged=True,
        host_paths=("/data", "/srv/models"),
        shared_volumes="/mnt/shared",
        hold_max_seconds=50,
        health=HealthProgram(("true",), 17, 16),
        bookings=BookingRules(20, 21, 22),
        backfill=Backfill(3, BackfillOrder.SHORTEST, 60, Expectation.HISTORY),
        scaling=ScalingRules(Goal.FEWEST, 18, 19, 60, 20, 300, Shrink.DRAIN),
    )
    lifted = {"max_tasks_per_node": 0, "scaling": {"most": 0}}
    await change(harbour, factors={}, weights={}, preemption={"enabled": False}, **lifted)
    changed = await policy(harbour)
    assert changed.scaling == ScalingRules(Goal.FEWEST, 18, None, 60, 20, 300, Shrink.DRAIN)
    assert (changed.max_tasks_per_node, changed.factors, changed.weights, changed.preemption) == (None, (), None, None)
    assert (changed.sequencer, changed.max_time_seconds, changed.public) == ("multi_factor", 14, False)


@on_sqlite
@pytest.mark.parametrize(
    ("wrong", "known"),
    [
        ({"sequencer": "random"}, "known are drf, fair_share, fifo, lifo, multi_factor"),
        ({"factors": {"luck": 1}}, "known are age, fair_share, size, smallness"),
        ({"validators": {"mood": ["enqueue"]}}, "known are concurrency, dependencies"),
        ({"profile": "nonsense"}, "known are balanced"),
        ({"default_time_seconds": 9, "max_time_seconds": 8}, "above the longest"),
        ({"idle_timeout_seconds": 59}, "at least 60 s"),
        ({"scaling": {"least": 3, "most": 2}}, "more than at most 2"),
        ({"host_paths": ["/data/../etc"]}, "must begin with /"),
        ({"host_paths": ["/data/"]}, "leave out the / at its end"),
        ({"host_paths": ["/"]}, "/proc of a node is for no container"),
        ({"host_paths": ["/run/podman"]}, "/run of a node is for no container"),
        ({"host_paths": ["/data"], "shared_volumes": "/data/all"}, "would see the shared volumes of all projects"),
        ({"host_paths": ["/data/all/x"], "shared_volumes": "/data/all"}, "would see the shared volumes of all"),
    ],
)
async def test_what_cannot_be_meant_is_refused_with_what_can_and_changes_nothing(
    harbour: Harbour, wrong: dict[str, Any], known: str
):
    before = await policy(harbour)
    with pytest.raises(InvalidInput, match=known):
        await change(harbour, **wrong)
    assert await policy(harbour) == before


@on_sqlite
async def test_pools_are_made_and_removed_while_nothing_is_in_them(harbour: Harbour):
    admin = PoolAdmin(harbour.database)
    asked = PoolRequest.model_validate({"name": "lab", "sequencer": "drf", "runtimes": ["container"]})
    await admin.create(asked)
    assert (await policy(harbour, "lab")).sequencer == "drf"
    with pytest.raises(Conflict, match="already"):
        await admin.create(asked)
    who, at = harbour.principal, now()
    await harbour.database.write(
        lambda c: join_tokens.create(c, node_name="n", pool="lab", created_by=who.user_id, expires_at=at, now=at)
    )
    await admin.remove("lab")
    with pytest.raises(NotFound):
        await admin.remove("lab")
    await harbour.node("n")
    with pytest.raises(Conflict, match="still has nodes"):
        await admin.remove("default")
    actions = [(row.action, row.object) for row in await harbour.rows(admin_actions.select())]
    assert [each for each in actions if each[1] == "lab"] == [("create", "lab"), ("remove", "lab")]


@on_sqlite
async def test_the_sequencer_says_who_is_next(harbour: Harbour, loop: SchedulingLoop):
    await harbour.node("n", cpu=1)
    await change(harbour, sequencer="lifo")
    first, second = await harbour.submit("first"), await harbour.submit("second")
    await loop.once()
    assert [await harbour.statuses(each) for each in (first, second)] == [["PENDING"], ["SCHEDULED"]]


@on_sqlite
async def test_a_strict_line_holds_up_who_is_behind_until_the_first_is_placed(harbour: Harbour, loop: SchedulingLoop):
    await harbour.node("n", cpu=4)
    await change(harbour, head_of_line="strict")
    running = await harbour.submit("running", cpu=1)
    await loop.once()
    large, small = await harbour.submit("large", cpu=4), await harbour.submit("small", cpu=1)
    await loop.once()
    assert (await harbour.workload(small)).reason["details"]["name"] == "large"
    await change(harbour, head_of_line="skip")
    await loop.once()
    assert [await harbour.statuses(each) for each in (large, small)] == [["PENDING"], ["SCHEDULED"]]
    await change(harbour, head_of_line="strict")
    late = await harbour.submit("late", cpu=1)
    await loop.once()
    for each in (running, small):
        await harbour.stop(each)
        for task in await harbour.tasks(each):
            await harbour.move(task, TaskStatus.CANCELLED)
    await loop.once()
    await loop.once()
    assert [await harbour.statuses(each) for each in (large, late)] == [["SCHEDULED"], ["PENDING"]]
    assert loop.room.found_by_timer == 0


@on_sqlite
async def test_who_is_first_in_a_strict_line_changes_with_what_was_used(harbour: Harbour):
    mirror = Mirror(harbour.database)
    loop = SchedulingLoop(mirror, Binder(harbour.database), harbour.office)
    await harbour.node("n", cpu=4)
    await change(harbour, head_of_line="strict", sequencer="fair_share")
    await harbour.submit("running", cpu=1)
    await loop.once()
    large, small = await harbour.submit("large", cpu=4), await harbour.submit("small", cpu=1)
    await harbour.set(small, user_id=await make_user(harbour.database, "bea"))
    for _ in range(3):
        await loop.once()
    assert (await harbour.workload(small)).reason["code"] == "blocked"
    who = harbour.principal
    mirror.factors["default"] = Factors(users={(who.project_id, who.user_id): 0.5})
    await loop.once()
    assert [await harbour.statuses(each) for each in (large, small)] == [["PENDING"], ["SCHEDULED"]]
    loop.close()


async def test_a_pool_limits_the_tasks_on_its_nodes_in_placing_and_at_the_commit(
    harbour: Harbour, loop: SchedulingLoop
):
    await harbour.node("n", cpu=8)
    await harbour.submit("a", replicas=3)
    proposed = await harbour.propose()
    await change(harbour, max_tasks_per_node=2)
    bound = await harbour.bind(proposed)
    assert [what for _, what in bound.conflicts] == ["node n has all the tasks that it may have"]
    await loop.once()
    waiting = [workload for workload in (await harbour.propose()) if not workload.placements]
    assert len(waiting) == 1
    await change(harbour, max_tasks_per_node=0)
    await loop.once()
    assert not await harbour.propose()


@on_sqlite
async def test_who_exceeds_a_quota_waits_and_starts_when_others_of_the_tenant_end(
    harbour: Harbour, loop: SchedulingLoop
):
    await harbour.node("n", cpu=8)

    async def limit(connection: Any) -> None:
        found = await quotas.find(connection, Scope.PROJECT, str(harbour.principal.project_id))
        await quotas.set_quota(connection, found, QuotaChange(limits={"cpu": 2000}), now())

    await harbour.database.write(limit)
    first, second = await harbour.submit("first", cpu=2), await harbour.submit("second", cpu=1)
    await loop.once()
    row = await harbour.workload(second)
    assert (await harbour.statuses(first), row.reason["code"]) == (["SCHEDULED"], "project-quota-exceeded")
    assert [failed["by"] for failed in row.admission["failed"]] == ["group_resource_limit"]
    await harbour.stop(first)
    for task in await harbour.tasks(first):
        await harbour.move(task, TaskStatus.CANCELLED)
    await loop.once()
    assert await harbour.statuses(second) == ["SCHEDULED"]
    assert loop.room.found_by_timer == 0


@on_sqlite
async def test_how_long_work_waits_is_measured_per_pool(harbour: Harbour, loop: SchedulingLoop):
    await harbour.submit("waits")
    await loop.once()
    text = metrics.text().decode()
    assert 'mooring_queue_age{le="60",pool="default"} 1.0' in text
    assert 'mooring_pool_oldest_seconds{pool="default"}' in text
