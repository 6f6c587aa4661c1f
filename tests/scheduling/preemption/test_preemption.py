"""The choice of preemption victims, rule by rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from mooring.model.decisions import Decision, Outcome
from mooring.model.errors import InvalidInput
from mooring.model.labels import equal_to
from mooring.model.nodes.node import Node
from mooring.model.policy.preemption import (
    Budgets,
    Preemption,
    RunningTask,
    VictimScope,
)
from mooring.model.reasons import Reason
from mooring.model.resources.devices import Device, DeviceShare
from mooring.model.resources.slots import parse_amounts
from mooring.model.workloads.constraints import (
    Constraints,
    HostPort,
    Spread,
    Taint,
    TaskTerm,
)
from mooring.model.workloads.workload import NO_CONSTRAINTS, Workload
from mooring.scheduling import Cluster, Registry, Scheduler
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.plugins.protocols import DependsOn, Rejection
from mooring.scheduling.preemption.running_tasks import RunningTasks
from tests.scheduling.builders import NOW, NodeBuilder, WorkloadBuilder, chosen, id_of, node, workload

WEB = (("app", "web"),)


def running(
    name: str, on: str, cpu: int | str = 2, *, priority: int = 0, seconds: int = 100, **other: Any
) -> RunningTask:
    """A task of a workload of its own, unless another is named."""
    given: dict[str, Any] = {
        "workload_id": id_of(f"of-{name}"),
        "constraints": NO_CONSTRAINTS,
        "user_id": id_of("someone"),
        "project_id": id_of("project"),
        "domain_id": id_of("domain"),
        "started_at": NOW - timedelta(seconds=seconds),
    }
    return RunningTask(
        task_id=id_of(name),
        node_id=id_of(on),
        priority=priority,
        request=parse_amounts({"cpu": cpu}),
        **(given | other),
    )


def machine(built: NodeBuilder, running_tasks: Iterable[RunningTask]) -> Node:
    """The node with the amounts that its running tasks occupy."""
    here = [task for task in running_tasks if task.node_id == built.node.id]
    used = {"cpu": sum(task.request["cpu"] for task in here)}
    return replace(built.node, used=used, tasks=len(here))


def scheduler(
    nodes: Iterable[NodeBuilder], running_tasks: list[RunningTask], *, rules: Preemption | None = None, **other: Any
) -> Scheduler:
    machines = [machine(built, running_tasks) for built in nodes]
    rules = Preemption() if rules is None else rules
    return Scheduler(machines, preemption=rules, running_tasks=running_tasks, **({"compiled": False} | other))


def urgent(name: str = "urgent", cpu: int | str = 2, priority: int = 10) -> WorkloadBuilder:
    return workload(name).cpu(cpu).priority(priority)


def decide(given: Scheduler, built: WorkloadBuilder) -> Decision:
    return given.decide(built.workload, NOW)


def victims(decision: Decision) -> list[str]:
    """The names behind the ids, as far as these tests use them."""
    names = {id_of(name): name for name in (f"{kind}{number}" for kind in "abcdeg" for number in ("", *range(12)))}
    return [names[victim.task_id] for victim in decision.victims]


def test_without_a_policy_nothing_is_preempted():
    running_tasks = [running("a", "n")]
    given = Scheduler([machine(node("n").cpu(2), running_tasks)], running_tasks=running_tasks)
    assert decide(given, urgent()).outcome is Outcome.WAITING


def test_a_task_of_lower_priority_is_preempted_and_its_capacity_reserved():
    decision = decide(scheduler([node("n").cpu(2)], [running("a", "n")]), urgent())
    assert decision.outcome is Outcome.RESERVED
    assert chosen(decision) == ["n"]
    assert victims(decision) == ["a"]
    assert decision.victims[0].workload_id == id_of("of-a")


def test_free_capacity_comes_before_victims():
    decision = decide(scheduler([node("m").cpu(2), node("n").cpu(4)], [running("a", "n")]), urgent())
    assert decision.outcome is Outcome.PLACED


@pytest.mark.parametrize("priority", [10, 11])
def test_equal_and_lower_priorities_preempt_nothing(priority):
    given = scheduler([node("n").cpu(2)], [running("a", "n", priority=priority)])
    assert decide(given, urgent()).outcome is Outcome.WAITING


def test_a_non_preemptible_task_stays():
    given = scheduler([node("n").cpu(2)], [running("a", "n", preemptible=False)])
    assert decide(given, urgent()).outcome is Outcome.WAITING


def test_a_workload_that_does_not_preempt_waits():
    given = scheduler([node("n").cpu(2)], [running("a", "n")])
    assert given.decide(replace(urgent().workload, preempts=False), NOW).outcome is Outcome.WAITING


@pytest.mark.parametrize(("seconds", "outcome"), [(59, Outcome.WAITING), (60, Outcome.RESERVED)])
def test_tasks_that_have_not_run_long_enough_are_not_preempted(seconds, outcome):
    rules = Preemption(min_runtime_seconds=60)
    given = scheduler([node("n").cpu(2)], [running("a", "n", seconds=seconds)], rules=rules)
    assert decide(given, urgent()).outcome is outcome


def test_victims_that_have_not_started_leave_at_once():
    rules = Preemption(min_runtime_seconds=60)
    given = scheduler([node("n").cpu(2)], [running("a", "n", started_at=None)], rules=rules)
    assert decide(given, urgent()).outcome is Outcome.RESERVED


@pytest.mark.parametrize("scope", [scope for scope in VictimScope if scope is not VictimScope.RECLAIM])
def test_only_tasks_in_the_scope_leave(scope):
    ours = {"user": {"user_id"}, "project": {"project_id"}, "domain": {"domain_id"}, "pool": set()}[scope.value]
    owners: dict[str, Any] = {"user_id": id_of("someone"), "project_id": id_of("p"), "domain_id": id_of("d")}
    strangers: dict[str, Any] = {name: id_of("other") for name in owners}
    ours_alone: dict[str, Any] = {name: owners[name] if name in ours else strangers[name] for name in owners}
    work = replace(urgent().workload, **owners)
    for task, outcome in (
        (running("a", "n", **ours_alone), Outcome.RESERVED),
        (running("a", "n", **strangers), Outcome.RESERVED if scope is VictimScope.POOL else Outcome.WAITING),
    ):
        given = scheduler([node("n").cpu(2)], [task], rules=Preemption(scope=scope))
        assert given.decide(work, NOW).outcome is outcome


def test_unneeded_victims_are_reprieved_the_most_important_first():
    running_tasks = [
        running("a", "n", 1, priority=1),
        running("b", "n", 2, priority=2),
        running("c", "n", 1, priority=3),
    ]
    assert victims(decide(scheduler([node("n").cpu(4)], running_tasks), urgent(cpu=2))) == ["b"]
    assert victims(decide(scheduler([node("n").cpu(4)], running_tasks), urgent(cpu=1))) == ["a"]


def test_among_equals_the_longest_running_is_reprieved():
    running_tasks = [
        running("a", "n", 1, seconds=50),
        running("b", "n", 1, seconds=100),
        running("c", "n", 1, seconds=10),
    ]
    assert victims(decide(scheduler([node("n").cpu(3)], running_tasks), urgent(cpu=1))) == ["c"]


@pytest.mark.parametrize(
    ("here", "there"),
    [
        pytest.param([running("a", "m", 2, priority=5)], [running("b", "n", 2, priority=4)], id="lowest-highest"),
        pytest.param(
            [running("a1", "m", 1, priority=4), running("a2", "m", 1, priority=4)],
            [running("b1", "n", 1, priority=4), running("b2", "n", 1, priority=3)],
            id="smallest-sum",
        ),
        pytest.param(
            [running("a1", "m", 1, priority=4), running("a2", "m", 1, priority=3)],
            [running("b", "n", 2, priority=4)],
            id="fewest-victims",
        ),
        pytest.param([running("a", "m", seconds=100)], [running("b", "n", seconds=50)], id="newest"),
    ],
)
def test_the_node_whose_victims_are_worth_least_is_chosen(here, there):
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], [*here, *there])
    assert chosen(decide(given, urgent())) == ["n"]


def test_among_equals_the_name_decides():
    running_tasks = [running("a", "n"), running("b", "m")]
    assert chosen(decide(scheduler([node("n").cpu(2), node("m").cpu(2)], running_tasks), urgent())) == ["m"]


def test_the_placement_of_a_plan_is_reserved_and_its_victims_are_claimed_once():
    running_tasks = [running("a", "m"), running("b", "n")]
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], running_tasks)
    decisions = given.run([urgent(name).workload for name in ("x", "y", "z")], NOW).decisions
    assert [victims(decision) for decision in decisions] == [["a"], ["b"], []]
    assert [decision.outcome.value for decision in decisions] == ["reserved", "reserved", "waiting"]


def test_surplus_capacity_of_a_victim_serves_only_the_next_preemptor():
    given = scheduler([node("n").cpu(4)], [running("a", "n", 4)])
    first = decide(given, urgent("x", 1))
    modest = decide(given, urgent("y", 1, priority=0))
    second = decide(given, urgent("z", 3))
    third = decide(given, urgent("u", 1))
    assert victims(first) == ["a"]
    assert modest.outcome is Outcome.WAITING
    assert (second.outcome, second.victims) == (Outcome.RESERVED, ())
    assert third.outcome is Outcome.WAITING


def test_a_plan_that_is_withdrawn_leaves_no_trace():
    given = scheduler([node("n").cpu(2)], [running("a", "n", constraints=Constraints(labels=WEB))])
    before = given.cluster.taken.copy()
    decision = decide(given, urgent())
    assert given.preemptor is not None
    given.preemptor.withdraw(decision)
    assert np.array_equal(given.cluster.taken, before)
    assert given.running_tasks.on(id_of("n"))[0].leaving_for is None
    assert victims(decide(given, urgent("other"))) == ["a"]


def test_the_victims_of_a_workload_that_is_pending_again_still_free_capacity_for_it_alone():
    running_tasks = [running("a", "m", leaving_for=id_of("urgent")), running("b", "n")]
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], running_tasks)
    assert decide(given, urgent()).outcome is Outcome.WAITING
    assert victims(decide(given, urgent("other"))) == []


def test_a_node_that_leaving_tasks_cannot_cure_is_no_candidate():
    tainted = replace(node("m").cpu(2).node, taints=(Taint("dedicated", "db"),))
    running_tasks = [running("a", "m"), running("b", "n", priority=9)]
    machines = [machine(NodeBuilder(tainted), running_tasks), machine(node("n").cpu(2), running_tasks)]
    given = Scheduler(machines, preemption=Preemption(), running_tasks=running_tasks, compiled=False)
    assert victims(decide(given, urgent())) == ["b"]


class Closed:
    """A filter that rejects any node with tasks, and does not count a leaving task as a cure."""

    name = "closed"
    depends_on: DependsOn = "row"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        empty: Mask = cluster.tasks[rows] == 0
        return empty

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection("closed", f"{len(rows)} closed", cure="change")


def test_a_filter_that_names_another_cure_than_release_never_leads_to_preemption():
    filters = (*Registry().profile().filters, Closed())
    given = scheduler([node("n").cpu(2)], [running("a", "n")], filters=filters)
    assert decide(given, urgent()).outcome is Outcome.WAITING


def test_a_filter_that_fails_fails_the_workload_and_leaves_no_trace():
    class Failing(Closed):
        def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
            raise RuntimeError("cannot say")

    given = scheduler([node("n").cpu(2)], [running("a", "n")], filters=(*Registry().profile().filters, Failing()))
    before = given.cluster.taken.copy()
    decision = decide(given, urgent())
    assert decision.outcome is Outcome.ERROR
    assert decision.reason is not None
    assert decision.reason.by == "closed"
    assert np.array_equal(given.cluster.taken, before)


def test_a_task_with_anti_affinity_is_preempted_by_the_work_that_it_excludes():
    apart = Constraints(anti_affinity=(TaskTerm("metadata.name", equal_to(dict(WEB))),))
    running_tasks = [running("a", "n", 1, constraints=apart), running("b", "n", 1)]
    work = replace(urgent(cpu=1).workload, constraints=Constraints(labels=WEB))
    assert victims(scheduler([node("n").cpu(4)], running_tasks).decide(work, NOW)) == ["a"]


def test_the_task_that_uses_the_port_is_preempted():
    taken = Constraints(host_ports=(HostPort(8080),))
    running_tasks = [running("a", "n", 1, constraints=taken), running("b", "n", 1)]
    work = replace(urgent(cpu=1).workload, constraints=taken)
    assert victims(scheduler([node("n").cpu(4)], running_tasks).decide(work, NOW)) == ["a"]


def on_device(name: str, index: int, amount: int, **other: Any) -> RunningTask:
    share = DeviceShare("gpu", index, amount)
    return replace(
        running(name, "n", 1, devices=(share,), **other), request=parse_amounts({"cpu": 1}) | {"gpu": amount}
    )


def with_devices(running_tasks: list[RunningTask], count: int = 2) -> Scheduler:
    """A node with so many devices and these tasks on them."""
    taken = Counter(dict.fromkeys(range(count), 0))
    for task in running_tasks:
        for share in task.devices:
            taken[share.device] += share.amount
    devices = tuple(Device(index, taken=taken[index]) for index in range(count))
    used = {"cpu": 1000 * len(running_tasks), "gpu": sum(taken.values())}
    machine = replace(
        node("n").cpu(16).slot("gpu", count).node, used=used, tasks=len(running_tasks), devices={"gpu": devices}
    )
    return Scheduler([machine], preemption=Preemption(), running_tasks=running_tasks, compiled=False)


def test_the_holder_of_the_device_is_preempted_although_the_amount_is_free():
    """Half of each device is free, which no whole device is: one of the two leaves, the less important."""
    running_tasks = [on_device("a", 0, 500, priority=3), on_device("b", 1, 500, priority=1)]
    decision = with_devices(running_tasks).decide(replace(urgent().workload, request=parse_amounts({"gpu": 1})), NOW)
    assert victims(decision) == ["b"]
    assert decision.placements[0].devices == (DeviceShare("gpu", 1, 1000),)


def test_the_devices_of_victims_are_given_once():
    running_tasks = [on_device("a", 0, 1000), on_device("b", 1, 1000, priority=5)]
    given = with_devices(running_tasks)
    half = parse_amounts({"gpu": "0.5"})
    plans = [given.decide(replace(urgent(name).workload, request=half), NOW) for name in ("one", "two", "three")]
    assert [victims(plan) for plan in plans] == [["a"], [], ["b"]]
    assert [plan.placements[0].devices[0].device for plan in plans] == [0, 0, 1]
    given.preemptor.withdraw(plans[2])  # type: ignore[union-attr]
    assert victims(given.decide(replace(urgent("four").workload, request=half), NOW)) == ["b"]


def test_the_task_that_makes_the_spread_uneven_is_preempted():
    alike = Constraints(labels=WEB, spread=(Spread("zone", 1, equal_to(dict(WEB))),))
    running_tasks = [
        running("a", "m", 1, constraints=alike),
        running("b", "m", 1, priority=1, constraints=alike),
        running("c", "n", 3, preemptible=False),
    ]
    machines = [replace(machine(node(name).cpu(3), running_tasks), labels={"zone": name}) for name in ("m", "n")]
    given = Scheduler(machines, preemption=Preemption(), running_tasks=running_tasks, compiled=False)
    decision = given.decide(replace(urgent(cpu=1).workload, constraints=alike), NOW)
    assert (chosen(decision), victims(decision)) == (["m"], ["b", "a"])


def test_a_placement_next_to_preferred_tasks_spares_them():
    near = Constraints(affinity=(TaskTerm("metadata.name", equal_to(dict(WEB))),))
    running_tasks = [running("a", "n", 1, constraints=Constraints(labels=WEB)), running("b", "n", 1, priority=5)]
    work = replace(urgent(cpu=1).workload, constraints=near)
    given = scheduler([node("n").cpu(2)], running_tasks)
    # Without all candidate victims, no task would remain to be near to.
    assert given.decide(work, NOW).outcome is Outcome.WAITING
    stored = [replace(running_tasks[0], preemptible=False), running_tasks[1]]
    assert victims(scheduler([node("n").cpu(2)], stored).decide(work, NOW)) == ["b"]


def test_those_whose_loss_breaks_a_budget_are_reprieved_first():
    guarded = id_of("guarded")
    running_tasks = [
        running("a", "n", 1, priority=1, workload_id=guarded),
        running("b", "n", 1, priority=2),
        running("c", "n", 1, priority=1, workload_id=guarded, seconds=10),
    ]
    given = scheduler([node("n").cpu(3)], running_tasks, budgets=Budgets({guarded: 1}))
    # The longest-running uses up what the budget allows, so c would break it.
    decision = decide(given, urgent(cpu=1))
    assert victims(decision) == ["a"]
    assert not decision.victims[0].violates_budget


def test_a_budget_may_be_broken_where_nothing_else_helps_and_is_then_said_so():
    guarded = id_of("guarded")
    running_tasks = [running("a", "m", workload_id=guarded), running("b", "n", priority=5, workload_id=guarded)]
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], running_tasks, budgets=Budgets({guarded: 1}))
    first, second, third = (decide(given, urgent(name)) for name in ("x", "y", "z"))
    assert [(victims(each), each.victims[0].violates_budget) for each in (first, second)] == [
        (["a"], False),
        (["b"], True),
    ]
    assert third.outcome is Outcome.WAITING


def test_the_node_with_the_fewest_broken_budgets_is_chosen():
    guarded = id_of("guarded")
    running_tasks = [running("a", "m", workload_id=guarded), running("b", "n", priority=9)]
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], running_tasks, budgets=Budgets({guarded: 0}))
    assert victims(decide(given, urgent())) == ["b"]


def test_a_gang_spends_budgets_task_by_task():
    guarded = id_of("guarded")
    running_tasks = [running("a", "m", workload_id=guarded), running("b", "n", workload_id=guarded)]
    running_tasks += [running("c", "o", priority=9)]
    given = scheduler([node(name).cpu(2) for name in "mno"], running_tasks, budgets=Budgets({guarded: 1}))
    assert sorted(victims(decide(given, urgent().replicas(2).gang()))) == ["a", "c"]


def test_budgets_can_be_replaced():
    guarded = id_of("guarded")
    running_tasks = [running("a", "m", workload_id=guarded), running("b", "n", priority=9)]
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], running_tasks, budgets=Budgets({guarded: 0}))
    assert given.preemptor is not None
    first = decide(given, urgent())
    given.preemptor.withdraw(first)
    given.preemptor.set_budgets(Budgets({guarded: 1}))
    assert (victims(first), victims(decide(given, urgent("next")))) == (["b"], ["a"])


def test_a_gang_is_preempted_as_a_whole_and_its_capacity_elsewhere_is_used():
    whole: dict[str, Any] = {"workload_id": id_of("whole"), "whole": True}
    running_tasks = [running("a", "m", **whole), running("b", "n", **whole), running("c", "n", priority=5)]
    given = scheduler([node("m").cpu(2), node("n").cpu(4)], running_tasks)
    first, second = given.run([urgent("x").workload, urgent("y").workload], NOW).decisions
    assert sorted(victims(first)) == ["a", "b"]
    assert (second.outcome, second.victims) == (Outcome.RESERVED, ())
    assert sorted(chosen(first) + chosen(second)) == ["m", "n"]


def test_a_whole_counts_with_all_its_tasks():
    whole: dict[str, Any] = {"workload_id": id_of("whole"), "whole": True}
    running_tasks = [running("a", "m", **whole), running("b", "n", **whole), running("c", "o")]
    given = scheduler([node(name).cpu(2) for name in "mno"], running_tasks)
    assert victims(decide(given, urgent())) == ["c"]


def test_a_whole_of_which_one_task_may_not_leave_stays():
    whole: dict[str, Any] = {"workload_id": id_of("whole"), "whole": True}
    running_tasks = [running("a", "m", **whole), running("b", "n", seconds=1, **whole)]
    rules = Preemption(min_runtime_seconds=60)
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], running_tasks, rules=rules)
    assert decide(given, urgent()).outcome is Outcome.WAITING


def test_a_gang_gets_all_its_placements_or_none_and_uses_free_capacity():
    running_tasks = [running("a", "m"), running("b", "n")]
    nodes = [node("m").cpu(2), node("n").cpu(2), node("o").cpu(2)]
    decision = decide(scheduler(nodes, running_tasks), urgent().replicas(3).gang())
    assert decision.outcome is Outcome.RESERVED
    assert sorted(chosen(decision)) == ["m", "n", "o"]
    assert sorted(victims(decision)) == ["a", "b"]
    given = scheduler(nodes, running_tasks)
    before = given.cluster.taken.copy()
    assert decide(given, urgent().replicas(4).gang()).outcome is Outcome.WAITING
    assert np.array_equal(given.cluster.taken, before)


@pytest.mark.parametrize(("least", "placements"), [(1, 2), (2, 2), (3, 0)])
def test_the_gang_size_is_placed_and_other_tasks_where_possible(least, placements):
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], [running("a", "m"), running("b", "n")])
    work = urgent().replicas(3).workload
    assert given.preemptor is not None
    decision = given.preemptor.plan(work, work.tasks, NOW, least=least)
    assert (0 if decision is None else len(decision.placements)) == placements


def test_a_gang_gives_back_whom_it_needs_no_longer():
    whole: dict[str, Any] = {"workload_id": id_of("whole"), "whole": True, "priority": 2}
    running_tasks = [running("a", "m", 1, priority=1), running("g1", "m", 1, **whole), running("g2", "n", 2, **whole)]
    # The first task has a leave m; the second needs n, and with g2 its fellow g1 leaves m, which is enough capacity.
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], running_tasks)
    decision = decide(given, urgent(cpu=1).replicas(2).max_per_node(1).gang())
    assert victims(decision) == ["g1", "g2"]


def test_all_tasks_of_a_single_node_workload_get_one_node():
    running_tasks = [running("a", "m"), running("b", "n"), running("c", "n")]
    work = replace(urgent().replicas(2).workload, single_node=True, gang=True)
    given = scheduler([node("m").cpu(2), node("n").cpu(4)], running_tasks)
    assert given.preemptor is not None
    decision = given.preemptor.plan(work, work.tasks, NOW, least=2)
    assert decision is not None
    assert chosen(decision) == ["n", "n"]
    assert sorted(victims(decision)) == ["b", "c"]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_single_node_workload_preempts_only_where_its_other_tasks_are(compiled: bool):
    running_tasks = [running("a", "m"), running("b", "n", priority=5)]
    work = urgent().single_node().occupying(n=1)
    decision = decide(scheduler([node("m").cpu(2), node("n").cpu(2)], running_tasks, compiled=compiled), work)
    assert (chosen(decision), victims(decision)) == (["n"], ["b"])


def test_the_limit_per_node_holds_for_reserved_placements_too():
    running_tasks = [running("a", "n"), running("b", "n")]
    decision = decide(scheduler([node("n").cpu(4)], running_tasks), urgent().replicas(2).max_per_node(1))
    assert len(decision.placements) == 1


def test_a_port_is_given_that_no_victim_has_if_there_is_one():
    ports = replace(node("n").cpu(2).node, port_range=(2000, 2001))
    task = running("a", "n", constraints=Constraints(ports_wanted=1), ports=(("TCP", 2000),))
    given = Scheduler(
        [machine(NodeBuilder(ports), [task])],
        preemption=Preemption(),
        running_tasks=[task],
        compiled=False,
    )
    work = replace(urgent().workload, constraints=Constraints(ports_wanted=1))
    assert given.decide(work, NOW).placements[0].ports == (2001,)


def test_a_binder_may_refuse_a_plan():
    class Refusing:
        def bind(self, decision: Decision) -> Reason | None:
            return Reason("no", "not now", "binder", "change", {})

    given = scheduler([node("n").cpu(2)], [running("a", "n")], binder=Refusing(), compiled=None)
    before = given.cluster.taken.copy()
    decision = decide(given, urgent())
    assert (decision.outcome, decision.reason and decision.reason.code) == (Outcome.WAITING, "no")
    assert np.array_equal(given.cluster.taken, before)
    assert given.running_tasks.on(id_of("n"))[0].leaving_for is None


def test_the_running_tasks_of_a_node_can_be_replaced():
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], [running("a", "m"), running("b", "n", priority=5)])
    assert given.preemptor is not None
    given.preemptor.withdraw(decide(given, urgent()))
    given.running_tasks.update(id_of("m"), [running("c", "m", priority=7)])
    assert victims(decide(given, urgent("next"))) == ["b"]
    given.running_tasks.remove(id_of("m"))
    assert given.running_tasks.on(id_of("m")) == ()


def test_a_running_task_of_another_node_is_refused():
    running_tasks = RunningTasks([running("a", "n")])
    with pytest.raises(InvalidInput, match="is on another"):
        running_tasks.update(id_of("m"), [running("b", "n")])
    assert running_tasks.on(id_of("m")) == ()
    assert len(running_tasks.on(id_of("n"))) == 1


def _mixed() -> tuple[list[NodeBuilder], list[RunningTask], list[Workload]]:
    """Work for the kernels and for the definition, in turns."""
    running_tasks = [running(f"a{number}", f"n{number % 4}", 1, priority=number % 3) for number in range(12)]
    queue = [urgent(f"w{number}", 1 + number % 2).workload for number in range(8)]
    queue[3] = replace(urgent("w3", 1).replicas(2).gang().workload, created_at=NOW)
    queue[5] = replace(queue[5], constraints=Constraints(host_ports=(HostPort(80),)))
    return [node(f"n{number}").cpu(3) for number in range(4)], running_tasks, queue


def test_a_pass_through_the_kernels_plans_as_one_without_them():
    nodes, running_tasks, queue = _mixed()
    plain = scheduler(nodes, running_tasks, compiled=False).run(queue, NOW)
    compiled = scheduler(nodes, running_tasks, compiled=True)
    assert compiled.run(queue, NOW) == plain
    assert plain.outcomes[Outcome.RESERVED] > 5
    # What comes later is decided on what was planned.
    more = [urgent(f"more{number}", 1, priority=20).workload for number in range(4)]
    after = scheduler(nodes, running_tasks, compiled=False)
    after.run(queue, NOW)
    assert compiled.run(more, NOW) == after.run(more, NOW)
