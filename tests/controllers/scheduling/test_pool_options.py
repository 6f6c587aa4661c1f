"""Each option of a pool has its effect from the next pass on, from the API's words to what the store has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import numpy as np
import pytest

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.mirror.mirror import Mirror
from mooring.model.calendar.timeslots import BookingRules, OpenEnded
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.model.lifecycle import TaskStatus
from mooring.model.nodes.node_templates import Goal, ScalingRules, Shrink
from mooring.model.policy.defragmentation import DefragmentationRules, Gain
from mooring.model.policy.pools import (
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
from mooring.model.policy.preemption import Preemption, PreemptionMode, VictimScope
from mooring.model.tenancy.fair_share import Factors
from mooring.model.tenancy.quotas import Scope
from mooring.model.workloads.workload import OnInsufficient
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins import profiles
from mooring.scheduling.plugins.protocols import Candidates, DependsOn, Rejection
from mooring.services.administration.pools import PoolAdmin
from mooring.store.nodes import join_tokens
from mooring.store.nodes.pools import by_name
from mooring.store.tables import admin_actions
from mooring.store.tenancy import quotas
from mooring.store.tenancy.quotas import QuotaChange
from mooring.store.views import workloads as views
from mooring.wire.cluster.pools import PoolChange, PoolRequest
from tests.store.databases import on_sqlite
from tests.store.harness import Harness
from tests.store.tenant_builders import make_user

EVERYTHING: dict[str, Any] = {
    "profile": "pack",
    "weights": {"resources": 2},
    "scorer_options": {"resources": {}},
    "filters": {"labelled": {"value": "x", "strict": True}},
    "selector": "highest",
    "selector_options": {"ties": "random", "top": 3},
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
    "bookings": {
        "lead_seconds": 20,
        "grace_seconds": 21,
        "notice_seconds": 22,
        "open_ended": "refuse",
        "open_ended_notice_seconds": 7200,
    },
    "on_insufficient": "fail",
    "pending_timeout_seconds": 11,
    "allowed_types": ["batch"],
    "max_tasks_per_node": 12,
    "default_cpu": "500m",
    "default_memory": "2Gi",
    "default_time_seconds": 13,
    "max_time_seconds": 14,
    "idle_timeout_seconds": 600,
    "deprioritise": 15,
    "validators": {"concurrency": ["enqueue"], "dependencies": []},
    "public": False,
    "privileged": True,
    "host_paths": ["/data", "/srv/models"],
    "shared_volumes": "/mnt/shared",
    "isolation": "namespaces",
    "health": {"command": ["true"], "interval_seconds": 17, "timeout_seconds": 16},
    "scaling": {"goal": "fewest", "least": 18, "most": 19, "idle_seconds": 20, "shrink": "drain"},
    "defragmentation": {
        "moves_per_hour": 23,
        "gain": "drain-nodes",
        "max_lost_seconds": 24,
        "interactive": True,
    },
}


@pytest.fixture
async def loop(harness: Harness) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
    yield loop
    loop.close()


async def change(harness: Harness, **options: Any) -> None:
    await PoolAdmin(harness.database).change("default", PoolChange.model_validate(options))


async def policy(harness: Harness, name: str = "default") -> PoolPolicy:
    async with harness.database.read() as connection:
        found = await by_name(connection, name)
    assert found is not None
    return found.policy


class Labelled:
    """Accepts nodes whose label `tier` has a value; not strict, also nodes without that label."""

    name = "labelled"
    depends_on: DependsOn = "static"

    def __init__(self, value: str = "gold", strict: bool = False) -> None:
        self._value, self._strict = value, strict

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        default = "" if self._strict else self._value
        return np.array([cluster.node(row).labels.get("tier", default) == self._value for row in rows], dtype=np.bool_)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection("wrong-tier", f"{len(rows)} not of tier {self._value}")


class Last:
    name = "last"

    def choose(self, candidates: Candidates) -> int:
        return len(candidates.rows) - 1


@pytest.fixture(autouse=True)
def installed_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = EntryPoints(
        [
            EntryPoint("labelled", f"{__name__}:Labelled", "mooring.filters"),
            EntryPoint("last", f"{__name__}:Last", "mooring.selectors"),
        ]
    )
    monkeypatch.setattr(profiles, "entry_points", lambda group: offered.select(group=group))


async def test_every_option_is_stored_and_the_others_stay(harness: Harness):
    assert set(EVERYTHING) == {*PoolChange.model_fields}
    await change(harness, **EVERYTHING)
    assert await policy(harness) == PoolPolicy(
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
        isolation="namespaces",
        hold_max_seconds=50,
        health=HealthProgram(("true",), 17, 16),
        bookings=BookingRules(20, 21, 22, OpenEnded.REFUSE, 7200),
        backfill=Backfill(3, BackfillOrder.SHORTEST, 60, Expectation.HISTORY),
        scaling=ScalingRules(Goal.FEWEST, 18, 19, 60, 20, 300, Shrink.DRAIN),
        scorer_options=(("resources", ()),),
        filters=(("labelled", (("strict", True), ("value", "x"))),),
        selector="highest",
        selector_options=(("ties", "random"), ("top", 3)),
        default_cpu=500,
        default_memory=2 << 30,
        defragmentation=DefragmentationRules(23, Gain.DRAIN_NODES, 24, interactive=True),
    )
    lifted = {"max_tasks_per_node": 0, "scaling": {"most": 0}}
    await change(harness, factors={}, weights={}, preemption={"enabled": False}, **lifted)
    changed = await policy(harness)
    assert changed.scaling == ScalingRules(Goal.FEWEST, 18, None, 60, 20, 300, Shrink.DRAIN)
    assert (changed.max_tasks_per_node, changed.factors, changed.weights, changed.preemption) == (None, (), None, None)
    assert (changed.sequencer, changed.max_time_seconds, changed.public) == ("multi_factor", 14, False)


@on_sqlite
@pytest.mark.parametrize(
    ("wrong", "known"),
    [
        ({"sequencer": "random"}, "known are drf, fair_queue, fair_share, fifo, lifo, multi_factor"),
        ({"factors": {"luck": 1}}, "known are age, fair_share, size, smallness"),
        ({"validators": {"mood": ["enqueue"]}}, "known are concurrency, dependencies"),
        ({"profile": "nonsense"}, "known are auto, balanced"),
        ({"filters": {"nonsense": {}}}, "there is no filter 'nonsense'; known are architecture"),
        ({"filters": {"labelled": {"valu": "x"}}}, "no option 'valu'; known are strict, value"),
        ({"filters": {"taints": {"x": 1}}}, "the filter 'taints' has no option 'x'; it takes none"),
        ({"selector": "nonsense"}, "there is no selector 'nonsense'; known are concentrated"),
        ({"selector": "highest", "selector_options": {"ties": "luck"}}, "no tie breaker 'luck'"),
        ({"selector": "highest", "selector_options": {"top": "few"}}, "'highest' rejects its options"),
        ({"scorer_options": {"lab": {"x": 1}}}, "options for the scorer 'lab', which has no weight"),
        ({"default_time_seconds": 9, "max_time_seconds": 8}, "exceeds the maximum of"),
        ({"idle_timeout_seconds": 59}, "at least 60 s"),
        ({"scaling": {"least": 3, "most": 2}}, "exceeds the maximum of 2"),
        ({"host_paths": ["/data/../etc"]}, "must begin with /"),
        ({"host_paths": ["/data/"]}, "remove the trailing /"),
        ({"host_paths": ["/"]}, "containers may not mount /proc of a node"),
        ({"host_paths": ["/run/podman"]}, "containers may not mount /run of a node"),
        ({"host_paths": ["/data"], "shared_volumes": "/data/all"}, "would expose the shared volumes of all projects"),
        ({"host_paths": ["/data/all/x"], "shared_volumes": "/data/all"}, "would expose the shared volumes of all"),
    ],
)
async def test_invalid_options_are_rejected_with_the_valid_ones_and_change_nothing(
    harness: Harness, wrong: dict[str, Any], known: str
):
    before = await policy(harness)
    with pytest.raises(InvalidInput, match=known):
        await change(harness, **wrong)
    assert await policy(harness) == before


@on_sqlite
async def test_pools_are_made_and_removed_while_nothing_is_in_them(harness: Harness):
    admin = PoolAdmin(harness.database)
    asked = PoolRequest.model_validate({"name": "lab", "sequencer": "drf", "runtimes": ["container"]})
    await admin.create(asked)
    assert (await policy(harness, "lab")).sequencer == "drf"
    with pytest.raises(Conflict, match="already"):
        await admin.create(asked)
    who, at = harness.principal, now()
    await harness.database.write(
        lambda c: join_tokens.create(c, node_name="n", pool="lab", created_by=who.user_id, expires_at=at, now=at)
    )
    await admin.remove("lab")
    with pytest.raises(NotFound):
        await admin.remove("lab")
    await harness.node("n")
    with pytest.raises(Conflict, match="still has nodes"):
        await admin.remove("default")
    actions = [(row.action, row.object) for row in await harness.rows(admin_actions.select())]
    assert [each for each in actions if each[1] == "lab"] == [("create", "lab"), ("remove", "lab")]


@on_sqlite
async def test_a_filter_plugin_of_a_pool_decides_with_its_options(harness: Harness, loop: SchedulingLoop):
    await harness.node("a", cpu=4, labels={"tier": "silver"})
    await change(harness, filters={"labelled": {"value": "gold"}})
    work = await harness.submit("work")
    await loop.once()
    assert await harness.statuses(work) == ["PENDING"]
    assert "1 not of tier gold" in (await harness.workload(work)).reason["message"]
    await change(harness, filters={"labelled": {"value": "silver", "strict": True}})
    await loop.once()
    assert await harness.statuses(work) == ["SCHEDULED"]
    await change(harness, filters={})
    assert (await policy(harness)).filters == ()


@on_sqlite
async def test_a_selector_plugin_of_a_pool_chooses_the_node(harness: Harness, loop: SchedulingLoop):
    for name in ("a", "b", "c"):
        await harness.node(name, cpu=4)
    await change(harness, selector="last")
    work = await harness.submit("work")
    await loop.once()
    assert [task.node_name for task in await harness.tasks(work)] == ["c"]
    await change(harness, selector="")
    assert (await policy(harness)).selector is None


@on_sqlite
async def test_the_sequencer_decides_the_order(harness: Harness, loop: SchedulingLoop):
    await harness.node("n", cpu=1)
    await change(harness, sequencer="lifo")
    first, second = await harness.submit("first"), await harness.submit("second")
    await loop.once()
    assert [await harness.statuses(each) for each in (first, second)] == [["PENDING"], ["SCHEDULED"]]


@on_sqlite
async def test_a_long_queue_of_one_user_does_not_delay_another_in_a_new_pool(harness: Harness, loop: SchedulingLoop):
    await harness.node("n", cpu=2)
    many = [await harness.submit(f"many{number}") for number in range(30)]
    await loop.once()
    running = [each for each in many if await harness.statuses(each) == ["SCHEDULED"]]
    assert len(running) == 2
    bob = await make_user(harness.database, "bob")
    one = await harness.set(await harness.submit("one"), user_id=bob)
    await loop.once()
    async with harness.database.read() as connection:
        first, last = await views.by_id(connection, one), await views.by_id(connection, many[-1])
    assert first is not None
    assert last is not None
    assert (first.position, last.position) == (2, 29)
    (task,) = await harness.tasks(running[0])
    await harness.move(task, TaskStatus.PREPARING, TaskStatus.RUNNING, TaskStatus.SUCCEEDED)
    await loop.once()
    assert await harness.statuses(one) == ["SCHEDULED"]


@on_sqlite
async def test_a_strict_queue_blocks_until_its_head_is_placed(harness: Harness, loop: SchedulingLoop):
    await harness.node("n", cpu=4)
    await change(harness, head_of_line="strict")
    running = await harness.submit("running", cpu=1)
    await loop.once()
    large, small = await harness.submit("large", cpu=4), await harness.submit("small", cpu=1)
    await loop.once()
    assert (await harness.workload(small)).reason["details"]["name"] == "large"
    await change(harness, head_of_line="skip")
    await loop.once()
    assert [await harness.statuses(each) for each in (large, small)] == [["PENDING"], ["SCHEDULED"]]
    await change(harness, head_of_line="strict")
    late = await harness.submit("late", cpu=1)
    await loop.once()
    for each in (running, small):
        await harness.stop(each)
        for task in await harness.tasks(each):
            await harness.move(task, TaskStatus.CANCELLED)
    await loop.once()
    await loop.once()
    assert [await harness.statuses(each) for each in (large, late)] == [["SCHEDULED"], ["PENDING"]]
    assert loop.pending_queue.found_by_timer == 0


@on_sqlite
async def test_the_head_of_a_strict_queue_changes_with_usage(harness: Harness):
    mirror = Mirror(harness.database)
    loop = SchedulingLoop(mirror, Binder(harness.database), harness.leadership)
    await harness.node("n", cpu=4)
    await change(harness, head_of_line="strict", sequencer="fair_share")
    await harness.submit("running", cpu=1)
    await loop.once()
    large, small = await harness.submit("large", cpu=4), await harness.submit("small", cpu=1)
    await harness.set(small, user_id=await make_user(harness.database, "bea"))
    for _ in range(3):
        await loop.once()
    assert (await harness.workload(small)).reason["code"] == "blocked"
    who = harness.principal
    mirror.factors["default"] = Factors(users={(who.project_id, who.user_id): 0.5})
    await loop.once()
    assert [await harness.statuses(each) for each in (large, small)] == [["PENDING"], ["SCHEDULED"]]
    loop.close()


async def test_a_pool_limits_the_tasks_on_its_nodes_in_placing_and_at_the_commit(
    harness: Harness, loop: SchedulingLoop
):
    await harness.node("n", cpu=8)
    await harness.submit("a", replicas=3)
    proposed = await harness.propose()
    await change(harness, max_tasks_per_node=2)
    bound = await harness.bind(proposed)
    assert [what for _, what in bound.conflicts] == ["node n has reached its maximum number of tasks"]
    await loop.once()
    waiting = [workload for workload in (await harness.propose()) if not workload.placements]
    assert len(waiting) == 1
    await change(harness, max_tasks_per_node=0)
    await loop.once()
    assert not await harness.propose()


async def test_nodes_below_the_isolation_of_their_pool_get_no_processes_and_explain_it(
    harness: Harness, loop: SchedulingLoop
):
    await harness.node("n", cpu=8)
    running = await harness.submit("running")
    await loop.once()
    waiting = await harness.submit("waiting")
    proposed = await harness.propose()
    await change(harness, isolation="namespaces")
    # What was decided before the change is not committed after it.
    assert (await harness.bind(proposed)).conflicts
    await loop.once()
    reason = (await harness.workload(waiting)).reason
    assert reason["code"] == "isolation-insufficient"
    assert "1 provides isolation none, below namespaces" in reason["message"]
    assert await harness.statuses(running) == ["SCHEDULED"]
    await change(harness, isolation="none")
    await loop.once()
    assert await harness.statuses(waiting) == ["SCHEDULED"]


@on_sqlite
async def test_work_over_a_quota_starts_when_other_work_of_the_tenant_ends(harness: Harness, loop: SchedulingLoop):
    await harness.node("n", cpu=8)

    async def limit(connection: Any) -> None:
        found = await quotas.find(connection, Scope.PROJECT, str(harness.principal.project_id))
        await quotas.set_quota(connection, found, QuotaChange(limits={"cpu": 2000}), now())

    await harness.database.write(limit)
    first, second = await harness.submit("first", cpu=2), await harness.submit("second", cpu=1)
    await loop.once()
    row = await harness.workload(second)
    assert (await harness.statuses(first), row.reason["code"]) == (["SCHEDULED"], "project-quota-exceeded")
    assert [failed["by"] for failed in row.admission["failed"]] == ["group_resource_limit"]
    await harness.stop(first)
    for task in await harness.tasks(first):
        await harness.move(task, TaskStatus.CANCELLED)
    await loop.once()
    assert await harness.statuses(second) == ["SCHEDULED"]
    assert loop.pending_queue.found_by_timer == 0
