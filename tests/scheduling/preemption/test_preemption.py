"""Who leaves for whom, rule by rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from mooring.model.constraints import Constraints, HostPort, Spread, Taint, TaskTerm
from mooring.model.decisions import Decision, Outcome
from mooring.model.devices import Device, DeviceShare
from mooring.model.errors import InvalidInput
from mooring.model.labels import equal_to
from mooring.model.nodes import Node
from mooring.model.preemption import Budgets, Preemption, Resident, VictimScope
from mooring.model.reasons import Reason
from mooring.model.slots import parse_amounts
from mooring.model.workloads import NO_CONSTRAINTS, Workload
from mooring.scheduling import Cluster, Registry, Scheduler
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.residents import Residents
from mooring.scheduling.shapes import Shape
from tests.scheduling.builders import NOW, NodeBuilder, WorkloadBuilder, chosen, id_of, node, workload

WEB = (("app", "web"),)


def running(name: str, on: str, cpu: int | str = 2, *, priority: int = 0, seconds: int = 100, **other: Any) -> Resident:
    """A task of a workload of its own, unless another is named."""
    given: dict[str, Any] = {
        "workload_id": id_of(f"of-{name}"),
        "constraints": NO_CONSTRAINTS,
        "user_id": id_of("someone"),
        "project_id": id_of("project"),
        "domain_id": id_of("domain"),
        "started_at": NOW - timedelta(seconds=seconds),
    }
    return Resident(
        task_id=id_of(name),
        node_id=id_of(on),
        priority=priority,
        request=parse_amounts({"cpu": cpu}),
        **(given | other),
    )


def machine(built: NodeBuilder, residents: Iterable[Resident]) -> Node:
    """The node with what its residents occupy."""
    here = [resident for resident in residents if resident.node_id == built.node.id]
    used = {"cpu": sum(resident.request["cpu"] for resident in here)}
    return replace(built.node, used=used, tasks=len(here))


def scheduler(
    nodes: Iterable[NodeBuilder], residents: list[Resident], *, rules: Preemption | None = None, **other: Any
) -> Scheduler:
    machines = [machine(built, residents) for built in nodes]
    rules = Preemption() if rules is None else rules
    return Scheduler(machines, preemption=rules, residents=residents, **({"compiled": False} | other))


def urgent(name: str = "urgent", cpu: int | str = 2, priority: int = 10) -> WorkloadBuilder:
    return workload(name).cpu(cpu).priority(priority)


def decide(given: Scheduler, built: WorkloadBuilder) -> Decision:
    return given.decide(built.workload, NOW)


def victims(decision: Decision) -> list[str]:
    """The names behind the ids, as far as these tests use them."""
    names = {id_of(name): name for name in (f"{kind}{number}" for kind in "abcdeg" for number in ("", *range(12)))}
    return [names[victim.task_id] for victim in decision.victims]


def test_without_a_policy_nobody_leaves():
    residents = [running("a", "n")]
    given = Scheduler([machine(node("n").cpu(2), residents)], residents=residents)
    assert decide(given, urgent()).outcome is Outcome.WAITING


def test_a_task_of_lower_priority_leaves_and_its_place_is_reserved():
    decision = decide(scheduler([node("n").cpu(2)], [running("a", "n")]), urgent())
    assert decision.outcome is Outcome.RESERVED
    assert chosen(decision) == ["n"]
    assert victims(decision) == ["a"]
    assert decision.victims[0].workload_id == id_of("of-a")


def test_free_room_comes_before_victims():
    decision = decide(scheduler([node("m").cpu(2), node("n").cpu(4)], [running("a", "n")]), urgent())
    assert decision.outcome is Outcome.PLACED


@pytest.mark.parametrize("priority", [10, 11])
def test_nobody_leaves_for_the_same_or_a_lower_priority(priority):
    given = scheduler([node("n").cpu(2)], [running("a", "n", priority=priority)])
    assert decide(given, urgent()).outcome is Outcome.WAITING


def test_who_must_not_be_preempted_stays():
    given = scheduler([node("n").cpu(2)], [running("a", "n", preemptible=False)])
    assert decide(given, urgent()).outcome is Outcome.WAITING


def test_a_workload_that_does_not_preempt_waits():
    given = scheduler([node("n").cpu(2)], [running("a", "n")])
    assert given.decide(replace(urgent().workload, preempts=False), NOW).outcome is Outcome.WAITING


@pytest.mark.parametrize(("seconds", "outcome"), [(59, Outcome.WAITING), (60, Outcome.RESERVED)])
def test_who_has_not_run_long_enough_is_left_alone(seconds, outcome):
    rules = Preemption(min_runtime_seconds=60)
    given = scheduler([node("n").cpu(2)], [running("a", "n", seconds=seconds)], rules=rules)
    assert decide(given, urgent()).outcome is outcome


def test_who_has_not_started_may_leave_at_once():
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
    for resident, outcome in (
        (running("a", "n", **ours_alone), Outcome.RESERVED),
        (running("a", "n", **strangers), Outcome.RESERVED if scope is VictimScope.POOL else Outcome.WAITING),
    ):
        given = scheduler([node("n").cpu(2)], [resident], rules=Preemption(scope=scope))
        assert given.decide(work, NOW).outcome is outcome


def test_who_need_not_leave_is_reprieved_the_most_important_first():
    residents = [
        running("a", "n", 1, priority=1),
        running("b", "n", 2, priority=2),
        running("c", "n", 1, priority=3),
    ]
    assert victims(decide(scheduler([node("n").cpu(4)], residents), urgent(cpu=2))) == ["b"]
    assert victims(decide(scheduler([node("n").cpu(4)], residents), urgent(cpu=1))) == ["a"]


def test_among_equals_the_longest_running_is_reprieved():
    residents = [running("a", "n", 1, seconds=50), running("b", "n", 1, seconds=100), running("c", "n", 1, seconds=10)]
    assert victims(decide(scheduler([node("n").cpu(3)], residents), urgent(cpu=1))) == ["c"]


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
    residents = [running("a", "n"), running("b", "m")]
    assert chosen(decide(scheduler([node("n").cpu(2), node("m").cpu(2)], residents), urgent())) == ["m"]


def test_the_place_of_a_plan_is_kept_and_its_victims_are_claimed_once():
    residents = [running("a", "m"), running("b", "n")]
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], residents)
    decisions = given.run([urgent(name).workload for name in ("x", "y", "z")], NOW).decisions
    assert [victims(decision) for decision in decisions] == [["a"], ["b"], []]
    assert [decision.outcome.value for decision in decisions] == ["reserved", "reserved", "waiting"]


def test_room_that_a_victim_leaves_over_serves_the_next_preemptor_and_nobody_else():
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
    assert given.residents.on(id_of("n"))[0].leaving_for is None
    assert victims(decide(given, urgent("other"))) == ["a"]


def test_the_victims_of_a_workload_that_waits_again_still_make_room_for_it_alone():
    residents = [running("a", "m", leaving_for=id_of("urgent")), running("b", "n")]
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], residents)
    assert decide(given, urgent()).outcome is Outcome.WAITING
    assert victims(decide(given, urgent("other"))) == []


def test_a_node_that_leaving_tasks_cannot_cure_is_no_candidate():
    tainted = replace(node("m").cpu(2).node, taints=(Taint("dedicated", "db"),))
    residents = [running("a", "m"), running("b", "n", priority=9)]
    machines = [machine(NodeBuilder(tainted), residents), machine(node("n").cpu(2), residents)]
    given = Scheduler(machines, preemption=Preemption(), residents=residents, compiled=False)
    assert victims(decide(given, urgent())) == ["b"]


class Closed:
    """A filter that says no as long as anybody is on the node, and that nobody leaving is to cure it."""

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


def test_who_carries_an_anti_affinity_leaves_for_whom_it_keeps_out():
    apart = Constraints(anti_affinity=(TaskTerm("metadata.name", equal_to(dict(WEB))),))
    residents = [running("a", "n", 1, constraints=apart), running("b", "n", 1)]
    work = replace(urgent(cpu=1).workload, constraints=Constraints(labels=WEB))
    assert victims(scheduler([node("n").cpu(4)], residents).decide(work, NOW)) == ["a"]


def test_who_uses_the_port_leaves():
    taken = Constraints(host_ports=(HostPort(8080),))
    residents = [running("a", "n", 1, constraints=taken), running("b", "n", 1)]
    work = replace(urgent(cpu=1).workload, constraints=taken)
    assert victims(scheduler([node("n").cpu(4)], residents).decide(work, NOW)) == ["a"]


def on_device(name: str, index: int, amount: int, **other: Any) -> Resident:
    share = DeviceShare("gpu", index, amount)
    return replace(
        running(name, "n", 1, devices=(share,), **other), request=parse_amounts({"cpu": 1}) | {"gpu": amount}
    )


def with_devices(residents: list[Resident], count: int = 2) -> Scheduler:
    """A node with so many devices and these tasks on them."""
    taken = Counter(dict.fromkeys(range(count), 0))
    for resident in residents:
        for share in resident.devices:
            taken[share.device] += share.amount
    devices = tuple(Device(index, taken=taken[index]) for index in range(count))
    used = {"cpu": 1000 * len(residents), "gpu": sum(taken.values())}
    machine = replace(
        node("n").cpu(16).slot("gpu", count).node, used=used, tasks=len(residents), devices={"gpu": devices}
    )
    return Scheduler([machine], preemption=Preemption(), residents=residents, compiled=False)


def test_who_has_the_device_leaves_though_the_amount_is_free():
    """Half of each device is free, which no whole device is: one of the two leaves, the less important."""
    residents = [on_device("a", 0, 500, priority=3), on_device("b", 1, 500, priority=1)]
    decision = with_devices(residents).decide(replace(urgent().workload, request=parse_amounts({"gpu": 1})), NOW)
    assert victims(decision) == ["b"]
    assert decision.placements[0].devices == (DeviceShare("gpu", 1, 1000),)


def test_the_devices_of_victims_are_given_once():
    residents = [on_device("a", 0, 1000), on_device("b", 1, 1000, priority=5)]
    given = with_devices(residents)
    half = parse_amounts({"gpu": "0.5"})
    plans = [given.decide(replace(urgent(name).workload, request=half), NOW) for name in ("one", "two", "three")]
    assert [victims(plan) for plan in plans] == [["a"], [], ["b"]]
    assert [plan.placements[0].devices[0].device for plan in plans] == [0, 0, 1]
    given.preemptor.withdraw(plans[2])  # type: ignore[union-attr]
    assert victims(given.decide(replace(urgent("four").workload, request=half), NOW)) == ["b"]


def test_who_makes_the_spread_uneven_leaves():
    alike = Constraints(labels=WEB, spread=(Spread("zone", 1, equal_to(dict(WEB))),))
    residents = [
        running("a", "m", 1, constraints=alike),
        running("b", "m", 1, priority=1, constraints=alike),
        running("c", "n", 3, preemptible=False),
    ]
    machines = [replace(machine(node(name).cpu(3), residents), labels={"zone": name}) for name in ("m", "n")]
    given = Scheduler(machines, preemption=Preemption(), residents=residents, compiled=False)
    decision = given.decide(replace(urgent(cpu=1).workload, constraints=alike), NOW)
    assert (chosen(decision), victims(decision)) == (["m"], ["b", "a"])


def test_a_place_next_to_who_is_wanted_keeps_them():
    near = Constraints(affinity=(TaskTerm("metadata.name", equal_to(dict(WEB))),))
    residents = [running("a", "n", 1, constraints=Constraints(labels=WEB)), running("b", "n", 1, priority=5)]
    work = replace(urgent(cpu=1).workload, constraints=near)
    given = scheduler([node("n").cpu(2)], residents)
    # All thought away, nobody would be left to be near to.
    assert given.decide(work, NOW).outcome is Outcome.WAITING
    kept = [replace(residents[0], preemptible=False), residents[1]]
    assert victims(scheduler([node("n").cpu(2)], kept).decide(work, NOW)) == ["b"]


def test_those_whose_loss_breaks_a_budget_are_reprieved_first():
    guarded = id_of("guarded")
    residents = [
        running("a", "n", 1, priority=1, workload_id=guarded),
        running("b", "n", 1, priority=2),
        running("c", "n", 1, priority=1, workload_id=guarded, seconds=10),
    ]
    given = scheduler([node("n").cpu(3)], residents, budgets=Budgets({guarded: 1}))
    # The longest-running uses up what the budget allows, so c would break it.
    decision = decide(given, urgent(cpu=1))
    assert victims(decision) == ["a"]
    assert not decision.victims[0].violates_budget


def test_a_budget_may_be_broken_where_nothing_else_helps_and_is_then_said_so():
    guarded = id_of("guarded")
    residents = [running("a", "m", workload_id=guarded), running("b", "n", priority=5, workload_id=guarded)]
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], residents, budgets=Budgets({guarded: 1}))
    first, second, third = (decide(given, urgent(name)) for name in ("x", "y", "z"))
    assert [(victims(each), each.victims[0].violates_budget) for each in (first, second)] == [
        (["a"], False),
        (["b"], True),
    ]
    assert third.outcome is Outcome.WAITING


def test_the_node_with_the_fewest_broken_budgets_is_chosen():
    guarded = id_of("guarded")
    residents = [running("a", "m", workload_id=guarded), running("b", "n", priority=9)]
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], residents, budgets=Budgets({guarded: 0}))
    assert victims(decide(given, urgent())) == ["b"]


def test_a_gang_spends_budgets_task_by_task():
    guarded = id_of("guarded")
    residents = [running("a", "m", workload_id=guarded), running("b", "n", workload_id=guarded)]
    residents += [running("c", "o", priority=9)]
    given = scheduler([node(name).cpu(2) for name in "mno"], residents, budgets=Budgets({guarded: 1}))
    assert sorted(victims(decide(given, urgent().replicas(2).gang()))) == ["a", "c"]


def test_budgets_can_be_told_anew():
    guarded = id_of("guarded")
    residents = [running("a", "m", workload_id=guarded), running("b", "n", priority=9)]
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], residents, budgets=Budgets({guarded: 0}))
    assert given.preemptor is not None
    first = decide(given, urgent())
    given.preemptor.withdraw(first)
    given.preemptor.tell_budgets(Budgets({guarded: 1}))
    assert (victims(first), victims(decide(given, urgent("next")))) == (["b"], ["a"])


def test_a_whole_leaves_wholly_and_its_room_elsewhere_is_used():
    whole: dict[str, Any] = {"workload_id": id_of("whole"), "whole": True}
    residents = [running("a", "m", **whole), running("b", "n", **whole), running("c", "n", priority=5)]
    given = scheduler([node("m").cpu(2), node("n").cpu(4)], residents)
    first, second = given.run([urgent("x").workload, urgent("y").workload], NOW).decisions
    assert sorted(victims(first)) == ["a", "b"]
    assert (second.outcome, second.victims) == (Outcome.RESERVED, ())
    assert sorted(chosen(first) + chosen(second)) == ["m", "n"]


def test_a_whole_counts_with_all_its_tasks():
    whole: dict[str, Any] = {"workload_id": id_of("whole"), "whole": True}
    residents = [running("a", "m", **whole), running("b", "n", **whole), running("c", "o")]
    given = scheduler([node(name).cpu(2) for name in "mno"], residents)
    assert victims(decide(given, urgent())) == ["c"]


def test_a_whole_of_which_one_task_may_not_leave_stays():
    whole: dict[str, Any] = {"workload_id": id_of("whole"), "whole": True}
    residents = [running("a", "m", **whole), running("b", "n", seconds=1, **whole)]
    rules = Preemption(min_runtime_seconds=60)
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], residents, rules=rules)
    assert decide(given, urgent()).outcome is Outcome.WAITING


def test_a_gang_gets_all_its_places_or_none_and_uses_free_room():
    residents = [running("a", "m"), running("b", "n")]
    nodes = [node("m").cpu(2), node("n").cpu(2), node("o").cpu(2)]
    decision = decide(scheduler(nodes, residents), urgent().replicas(3).gang())
    assert decision.outcome is Outcome.RESERVED
    assert sorted(chosen(decision)) == ["m", "n", "o"]
    assert sorted(victims(decision)) == ["a", "b"]
    given = scheduler(nodes, residents)
    before = given.cluster.taken.copy()
    assert decide(given, urgent().replicas(4).gang()).outcome is Outcome.WAITING
    assert np.array_equal(given.cluster.taken, before)


@pytest.mark.parametrize(("least", "places"), [(1, 2), (2, 2), (3, 0)])
def test_the_least_that_start_together_get_places_and_the_others_where_there_are_any(least, places):
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], [running("a", "m"), running("b", "n")])
    work = urgent().replicas(3).workload
    assert given.preemptor is not None
    decision = given.preemptor.plan(work, work.tasks, NOW, least=least)
    assert (0 if decision is None else len(decision.placements)) == places


def test_a_gang_gives_back_whom_it_needs_no_longer():
    whole: dict[str, Any] = {"workload_id": id_of("whole"), "whole": True, "priority": 2}
    residents = [running("a", "m", 1, priority=1), running("g1", "m", 1, **whole), running("g2", "n", 2, **whole)]
    # The first task has a leave m; the second needs n, and with g2 its fellow g1 leaves m, which is room enough.
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], residents)
    decision = decide(given, urgent(cpu=1).replicas(2).max_per_node(1).gang())
    assert victims(decision) == ["g1", "g2"]


def test_all_tasks_of_a_single_node_workload_get_one_node():
    residents = [running("a", "m"), running("b", "n"), running("c", "n")]
    work = replace(urgent().replicas(2).workload, single_node=True, gang=True)
    given = scheduler([node("m").cpu(2), node("n").cpu(4)], residents)
    assert given.preemptor is not None
    decision = given.preemptor.plan(work, work.tasks, NOW, least=2)
    assert decision is not None
    assert chosen(decision) == ["n", "n"]
    assert sorted(victims(decision)) == ["b", "c"]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_single_node_workload_makes_room_only_where_its_other_tasks_are(compiled: bool):
    residents = [running("a", "m"), running("b", "n", priority=5)]
    work = urgent().single_node().occupying(n=1)
    decision = decide(scheduler([node("m").cpu(2), node("n").cpu(2)], residents, compiled=compiled), work)
    assert (chosen(decision), victims(decision)) == (["n"], ["b"])


def test_the_limit_per_node_holds_for_reserved_places_too():
    residents = [running("a", "n"), running("b", "n")]
    decision = decide(scheduler([node("n").cpu(4)], residents), urgent().replicas(2).max_per_node(1))
    assert len(decision.placements) == 1


def test_a_port_is_given_that_no_victim_has_if_there_is_one():
    ports = replace(node("n").cpu(2).node, port_range=(2000, 2001))
    resident = running("a", "n", constraints=Constraints(ports_wanted=1), ports=(("TCP", 2000),))
    given = Scheduler(
        [machine(NodeBuilder(ports), [resident])], preemption=Preemption(), residents=[resident], compiled=False
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
    assert given.residents.on(id_of("n"))[0].leaving_for is None


def test_a_node_that_is_told_anew_is_seen_as_told():
    given = scheduler([node("m").cpu(2), node("n").cpu(2)], [running("a", "m"), running("b", "n", priority=5)])
    assert given.preemptor is not None
    given.preemptor.withdraw(decide(given, urgent()))
    given.residents.tell(id_of("m"), [running("c", "m", priority=7)])
    assert victims(decide(given, urgent("next"))) == ["b"]
    given.residents.remove(id_of("m"))
    assert given.residents.on(id_of("m")) == ()


def test_a_task_told_on_a_node_where_it_is_not_is_refused():
    residents = Residents([running("a", "n")])
    with pytest.raises(InvalidInput, match="is on another"):
        residents.tell(id_of("m"), [running("b", "n")])
    assert residents.on(id_of("m")) == ()
    assert len(residents.on(id_of("n"))) == 1


def _mixed() -> tuple[list[NodeBuilder], list[Resident], list[Workload]]:
    """Work for the kernels and for the definition, in turns."""
    residents = [running(f"a{number}", f"n{number % 4}", 1, priority=number % 3) for number in range(12)]
    queue = [urgent(f"w{number}", 1 + number % 2).workload for number in range(8)]
    queue[3] = replace(urgent("w3", 1).replicas(2).gang().workload, created_at=NOW)
    queue[5] = replace(queue[5], constraints=Constraints(host_ports=(HostPort(80),)))
    return [node(f"n{number}").cpu(3) for number in range(4)], residents, queue


def test_a_pass_through_the_kernels_plans_as_one_without_them():
    nodes, residents, queue = _mixed()
    plain = scheduler(nodes, residents, compiled=False).run(queue, NOW)
    compiled = scheduler(nodes, residents, compiled=True)
    assert compiled.run(queue, NOW) == plain
    assert plain.outcomes[Outcome.RESERVED] > 5
    # What comes later is decided on what was planned.
    more = [urgent(f"more{number}", 1, priority=20).workload for number in range(4)]
    after = scheduler(nodes, residents, compiled=False)
    after.run(queue, NOW)
    assert compiled.run(more, NOW) == after.run(more, NOW)
