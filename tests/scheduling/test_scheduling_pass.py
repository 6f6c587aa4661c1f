"""A pass orders, admits and places: what stops those behind, and whose quota is charged with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.decisions import Decision, Outcome
from mooring.model.lifecycle import WorkloadStatus
from mooring.model.policy.pools import HeadOfLine
from mooring.model.policy.preemption import Preemption, RunningTask
from mooring.model.tenancy.quotas import SESSIONS, Scope, Tenant
from mooring.model.workloads.dependencies import Condition, Dependency
from mooring.scheduling import Scheduler
from mooring.scheduling.admission import Admission, AdmissionContext
from mooring.scheduling.plugins.ordering.drf import DrfSequencer
from mooring.scheduling.plugins.protocols import Sequencer
from mooring.scheduling.scheduler import Pass
from mooring.scheduling.tenant_usage import Usage
from tests.scheduling.builders import NOW, NodeBuilder, WorkloadBuilder, id_of, node, workload

FOUR_CORES = [node("n").cpu(4)]
EITHER_WAY = pytest.mark.parametrize("compiled", [False, True])


def run(
    nodes: Sequence[NodeBuilder],
    *waiting: WorkloadBuilder,
    usage: Usage | None = None,
    head_of_line: HeadOfLine = HeadOfLine.STRICT,
    compiled: bool = False,
    sequencer: Sequencer | None = None,
    **options: Any,
) -> Pass:
    scheduler = Scheduler(
        [each.node for each in nodes], head_of_line=head_of_line, compiled=compiled, sequencer=sequencer, **options
    )
    admission = None if usage is None else Admission(AdmissionContext(NOW, usage))
    return scheduler.explained(scheduler.place([each.workload for each in waiting], NOW, admission=admission))


def outcomes(result: Pass) -> dict[str, str]:
    """Return by workload its outcome, or the code of its unschedulable reason."""
    return {decision.workload.name: _word(decision) for decision in result.decisions}


def _word(decision: Decision) -> str:
    return decision.outcome.value if decision.placements or decision.reason is None else decision.reason.code


def with_(builder: WorkloadBuilder, **fields: Any) -> WorkloadBuilder:
    return WorkloadBuilder(replace(builder.workload, **fields))


def limited(**limits: int) -> Usage:
    usage = Usage()
    usage.update(Tenant(Scope.USER, str(id_of("someone"))), limits=limits, name="someone")
    return usage


@EITHER_WAY
def test_a_large_workload_of_high_priority_stops_small_ones_of_low_priority(compiled: bool):
    waiting = [workload("s1").cpu(2), workload("s2").cpu(4).created(-1), workload("s3").priority(5).cpu(1)]
    strict = run(FOUR_CORES, *waiting, compiled=compiled)
    assert outcomes(strict) == {"s1": "placed", "s2": "insufficient-resources", "s3": "blocked"}
    reason = strict.decisions[2].reason
    assert reason is not None
    assert (reason.details["blocker"], reason.details["name"]) == (str(id_of("s2")), "s2")
    assert "s2" in reason.message
    skip = run(FOUR_CORES, *waiting, head_of_line=HeadOfLine.SKIP, compiled=compiled)
    assert outcomes(skip)["s3"] == "placed"


@EITHER_WAY
def test_the_reason_of_a_blocked_workload_does_not_name_the_work_of_another_user(compiled: bool):
    secret = with_(workload("secret").cpu(4).created(-1), user_id=id_of("another"))
    waiting = [workload("s1").cpu(2), secret, workload("s3").priority(5).cpu(1)]
    reason = run(FOUR_CORES, *waiting, compiled=compiled).decisions[2].reason
    assert reason is not None
    assert (reason.code, reason.details) == ("blocked", {"priority": 10})
    assert "secret" not in reason.message


@EITHER_WAY
def test_a_node_at_its_task_limit_lacks_capacity_as_well(compiled: bool):
    full = [node("n").cpu(8).tasks(2, at_most=2)]
    result = run(full, workload("first").cpu(1), workload("second").cpu(1).created(-1), compiled=compiled)
    assert outcomes(result) == {"first": "tasks-per-node", "second": "blocked"}


@EITHER_WAY
@pytest.mark.parametrize(
    "head",
    [
        pytest.param({"architecture": "aarch64"}, id="architecture"),
        pytest.param({"starts_at": NOW + timedelta(hours=1)}, id="not yet due"),
        pytest.param(
            {"dependencies": (Dependency(id_of("x"), "x", Condition.AFTER_OK, WorkloadStatus.RUNNING),)},
            id="dependency",
        ),
        pytest.param({"request": {"cpu": 3000}}, id="quota"),
        pytest.param({"pool": "empty"}, id="empty pool"),
        pytest.param({"request": {"cpu": 64_000, "gpu": 1}, "private": True}, id="no node is large enough"),
    ],
)
def test_a_workload_that_more_capacity_does_not_cure_blocks_nothing(head: dict[str, Any], compiled: bool):
    first = with_(workload("first").cpu(1), **head)
    result = run(FOUR_CORES, first, workload("second").cpu(1).created(-1), usage=limited(cpu=2000), compiled=compiled)
    found = outcomes(result)
    assert found["second"] == "placed"
    assert found["first"] not in ("placed", "blocked")


def test_failed_and_backing_off_work_blocks_nothing():
    waiting = [workload("fails").cpu(5).fail_if_short(), workload("later").cpu(1).backing_off(9)]
    result = run([node("n").cpu(4), node("m").cpu(8).used(cpu=7)], *waiting, workload("fits").cpu(1).created(-1))
    assert outcomes(result)["fits"] == "placed"


def test_every_pool_has_its_own_queue():
    nodes = [node("n").cpu(1), NodeBuilder(replace(node("m").cpu(1).node, pool="other"))]
    busy = [workload("a1").cpu(1), workload("a2").cpu(1).created(-1), workload("a3").created(-2)]
    result = run(nodes, *busy, workload("b").pool("other").cpu(1).created(-3))
    assert outcomes(result) == {"a1": "placed", "a2": "insufficient-resources", "a3": "blocked", "b": "placed"}


@pytest.mark.parametrize("head_of_line", [HeadOfLine.STRICT, HeadOfLine.BACKFILL])
def test_a_workload_that_preempts_blocks_nothing(head_of_line: HeadOfLine):
    nodes = [node("n").cpu(4).used(cpu=4).tasks(1), node("m").cpu(2)]
    low = RunningTask(id_of("low"), id_of("low"), id_of("n"), 1, {"cpu": 4000})
    # It has waited for as long as others may pass it.
    waiting = [workload("high").priority(50).cpu(4).created(3600), workload("small").cpu(1)]
    result = run(nodes, *waiting, head_of_line=head_of_line, preemption=Preemption(), running_tasks=[low])
    assert {d.workload.name: d.outcome for d in result.decisions} == {
        "high": Outcome.RESERVED,
        "small": Outcome.PLACED,
    }


@EITHER_WAY
@pytest.mark.parametrize("waited", [3599, 3600])
def test_a_head_without_a_plan_that_waited_too_long_preempts_before_work_behind_it_is_placed(
    waited: int, compiled: bool
):
    nodes = [node("n").cpu(4).used(cpu=3).tasks(1)]
    low = RunningTask(id_of("low"), id_of("low"), id_of("n"), 1, {"cpu": 3000})
    waiting = [workload("high").priority(50).cpu(4).created(waited), workload("small").priority(50).cpu(1)]
    result = run(
        nodes,
        *waiting,
        head_of_line=HeadOfLine.BACKFILL,
        preemption=Preemption(),
        running_tasks=[low],
        compiled=compiled,
    )
    expected = {"high": Outcome.RESERVED, "small": Outcome.WAITING}
    if waited < 3600:
        expected = {"high": Outcome.WAITING, "small": Outcome.PLACED}
    assert {d.workload.name: d.outcome for d in result.decisions} == expected


@EITHER_WAY
def test_admitted_work_is_charged_and_the_tenants_next_workload_waits(compiled: bool):
    usage = limited(cpu=2000)
    waiting = [workload(f"w{n}").cpu(1).created(9 - n) for n in range(3)]
    result = run(FOUR_CORES, *waiting, usage=usage, compiled=compiled)
    assert [decision.outcome for decision in result.decisions] == [Outcome.PLACED, Outcome.PLACED, Outcome.WAITING]
    (rejection,) = result.refused
    assert rejection.awaits.tenants == {Tenant(Scope.USER, str(id_of("someone")))}
    assert usage.used_by(Tenant(Scope.USER, str(id_of("someone")))) == {"cpu": 2000, SESSIONS: 2}


@EITHER_WAY
@pytest.mark.parametrize("head_of_line", HeadOfLine)
def test_an_unplaced_workload_is_refunded_and_lets_others_of_the_tenant_in(compiled: bool, head_of_line: HeadOfLine):
    usage = limited(cpu=8000)
    # No node has 8 cores: the large one takes the quota, fits nowhere, and releases it.
    waiting = [workload("large").cpu(8).created(9), workload("small").cpu(2)]
    result = run(FOUR_CORES, *waiting, usage=usage, compiled=compiled, head_of_line=head_of_line)
    assert outcomes(result)["small"] == "placed"
    assert usage.used_by(Tenant(Scope.USER, str(id_of("someone")))) == {"cpu": 2000, SESSIONS: 1}
    assert not result.refused


def test_independent_tasks_are_placed_up_to_the_quota():
    usage = limited(cpu=3000)
    result = run([node("n").cpu(8)], workload("many").cpu(1).replicas(5), usage=usage)
    (decision,) = result.decisions
    assert (len(decision.placements), len(decision.workload.tasks)) == (3, 5)
    assert usage.used_by(Tenant(Scope.USER, str(id_of("someone"))))["cpu"] == 3000


@EITHER_WAY
def test_shares_of_rejected_workloads_do_not_change(compiled: bool):
    usage = limited(cpu=1000)
    mine = [workload(f"mine{n}").cpu(1).created(99 - n) for n in range(30)]
    others = [workload(f"other{n}").user("other").cpu(1).created(9 - n) for n in range(9)]
    result = run(
        [node("n").cpu(6)],
        *mine,
        *others,
        usage=usage,
        compiled=compiled,
        sequencer=DrfSequencer(),
        head_of_line=HeadOfLine.SKIP,
    )
    assert sum(name.startswith("mine") for name, word in outcomes(result).items() if word == "placed") == 1
    assert sum(name.startswith("other") for name, word in outcomes(result).items() if word == "placed") == 5
    assert len(result.decisions) == 39
    assert len(result.refused) == 29


@settings(max_examples=25, deadline=None)
@given(
    asked=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 5), st.integers(1, 3), st.booleans(), st.sampled_from([1, 9])),
        max_size=25,
    ),
    head_of_line=st.sampled_from(HeadOfLine),
    fair=st.booleans(),
    limit=st.integers(2, 30),
)
def test_the_kernels_decide_as_the_numpy_path_where_one_may_stop_others(
    asked: list[tuple[str, int, int, bool, int]], head_of_line: HeadOfLine, fair: bool, limit: int
) -> None:
    waiting = []
    for number, (user, cpu, tasks, gang, priority) in enumerate(asked):
        built = workload(f"w{number}").user(user).cpu(cpu).replicas(tasks).priority(priority).created(-number)
        waiting.append(built.gang() if gang else built)
    results = []
    for compiled in (False, True):
        usage = Usage()
        usage.update(Tenant(Scope.USER, str(id_of("a"))), limits={"cpu": limit * 1000}, name="a")
        sequencer = DrfSequencer() if fair else None
        nodes = [node("n").cpu(9), node("m").cpu(7)]
        results.append(
            run(nodes, *waiting, usage=usage, head_of_line=head_of_line, compiled=compiled, sequencer=sequencer)
        )
    assert results[0] == results[1]
