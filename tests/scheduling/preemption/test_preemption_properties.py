"""For every world: the definition, the kernels and the plain reference plan the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from uuid import UUID

import pytest

from mooring.model.decisions import Decision
from mooring.model.labels import equal_to
from mooring.model.nodes.node import Node
from mooring.model.policy.preemption import (
    Budgets,
    Preemption,
    RunningTask,
    VictimScope,
)
from mooring.model.resources.devices import WHOLE, Device, DeviceShare
from mooring.model.workloads.constraints import (
    Constraints,
    HostPort,
    Spread,
    TaskTerm,
)
from mooring.model.workloads.workload import NO_CONSTRAINTS, Workload
from mooring.scheduling import Cluster, Registry
from mooring.scheduling.compiled import compilation
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.preemption import victim_search
from mooring.scheduling.preemption.preemption import Preemptor
from mooring.scheduling.preemption.running_tasks import register_running_tasks
from mooring.scheduling.preemption.victim_search import Candidate
from tests.scheduling.builders import NOW, id_of, node, workload
from tests.scheduling.preemption.preemption_reference import World

USERS = ("ann", "ben")
NODES = ("a", "b", "c", "d")
PROFILE = Registry().profile("spread")
ALIKE = equal_to({"app": "web"})
WEB = Constraints(labels=(("app", "web"),))
OWNERS = ("w0", "w1", "w2", "w3", "w4", "w5")


@dataclass(frozen=True)
class Given:
    nodes: list[Node]
    running_tasks: list[RunningTask]
    rules: Preemption
    budgets: Budgets
    preemptors: list[Workload]


def world_of(chance: Random, *, plain: bool = False) -> Given:
    """Four nodes that are full or nearly; `plain`: no budgets, and gangs only if they are not preemptible."""
    owners = {owner: (chance.randint(0, 3), chance.choice(USERS), chance.random() < 0.3) for owner in OWNERS}
    if plain:
        owners |= {owner: (9 if whole else low, user, whole) for owner, (low, user, whole) in owners.items()}
    running_tasks = [
        _running_task(number, owner, *owners[owner], chance)
        for number, owner in enumerate(chance.choices(OWNERS, k=chance.randint(1, 14)))
    ]
    budgets = {} if plain else {id_of(owner): chance.randint(0, 2) for owner in OWNERS if chance.random() < 0.3}
    rules = Preemption(
        scope=chance.choice([VictimScope.POOL, VictimScope.POOL, VictimScope.USER]),
        min_runtime_seconds=chance.choice([0, 0, 2]),
    )
    nodes = [_node(name, [each for each in running_tasks if each.node_id == id_of(name)], chance) for name in NODES]
    preemptors = [
        replace(
            workload(f"p{number}").workload,
            request=_amounts(chance),
            constraints=chance.choice((NO_CONSTRAINTS, WEB)),
            priority=chance.randint(1, 4),
            user_id=id_of(chance.choice(USERS)),
        )
        for number in range(chance.randint(1, 6))
    ]
    return Given(nodes, running_tasks, rules, Budgets(budgets), preemptors)


def _running_task(number: int, owner: str, priority: int, user: str, whole: bool, chance: Random) -> RunningTask:
    return RunningTask(
        task_id=UUID(int=number + 1),
        workload_id=id_of(owner),
        node_id=id_of(chance.choice(NODES)),
        priority=priority,
        request=_amounts(chance),
        constraints=chance.choice((NO_CONSTRAINTS, WEB)),
        user_id=id_of(user),
        project_id=id_of("project"),
        domain_id=id_of("domain"),
        preemptible=chance.random() < 0.9,
        started_at=chance.choice([None, *(NOW - timedelta(seconds=seconds) for seconds in range(4))]),
        whole=whole,
    )


def _node(name: str, here: list[RunningTask], chance: Random) -> Node:
    used: Counter[str] = Counter()
    for task in here:
        used.update(task.request)
    return replace(
        node(name).node,
        pool=chance.choice(["default"] * 9 + ["other"]),
        allocatable={slot: used[slot] + chance.choice((0, 0, 0, 1, 2)) for slot in ("cpu", "memory")},
        used=dict(used),
        tasks=len(here),
        max_tasks=chance.choice([None, None, max(len(here), 1)]),
        schedulable=chance.random() < 0.9,
    )


def _amounts(chance: Random) -> dict[str, int]:
    return {"cpu": chance.randint(0, 3)} | ({"memory": chance.randint(0, 3)} if chance.random() < 0.6 else {})


Answer = tuple[str, frozenset[UUID], frozenset[UUID]] | None


def answer(decision: Decision | None) -> Answer:
    if decision is None:
        return None
    violating = frozenset(victim.task_id for victim in decision.victims if victim.violates_budget)
    leaving = frozenset(victim.task_id for victim in decision.victims)
    return decision.placements[0].node_name, leaving, violating


def preemptor_of(world: Given, profile: Profile = PROFILE) -> Preemptor:
    cluster = Cluster(world.nodes)
    running_tasks = register_running_tasks(cluster, world.running_tasks)
    return Preemptor(cluster, profile, running_tasks, world.rules, world.budgets)


def by_definition(preemptor: Preemptor) -> Callable[[Workload], Decision | None]:
    return lambda each: preemptor.plan(each, each.tasks, NOW)


def worlds(number: int, *, plain: bool = False) -> Iterator[Given]:
    return (world_of(Random(seed), plain=plain) for seed in range(number))


def test_plans_are_those_of_the_plain_reference():
    planned = 0
    for seed, world in enumerate(worlds(1000)):
        reference = World(world.nodes, world.running_tasks, world.rules, dict(world.budgets.allowed))
        plan = by_definition(preemptor_of(world))
        lowest = min((task.priority for task in world.running_tasks if task.preemptible), default=99)
        for each in world.preemptors:
            expected = reference.plan(each, NOW) if lowest < each.priority else None
            assert answer(plan(each)) == expected, f"world {seed}"
            planned += expected is not None
    assert planned > 1000


def compare_kernels_and_definition(
    given: Iterable[Given], profile: Profile = PROFILE, *, one_by_one: bool = False
) -> Counter[str]:
    """Plan every world both ways, with changes between the batches. Return the numbers of plans by their victims.

    `one_by_one`: the kernels may leave workloads to the definition.
    """
    assert compilation.wait()
    from mooring.scheduling.compiled.engine import CompiledEngine
    from mooring.scheduling.compiled.preemption import CompiledPreemptor, plan_in_batches

    found: Counter[str] = Counter()
    for seed, world in enumerate(given):
        definition, preemptor = preemptor_of(world, profile), preemptor_of(world, profile)
        compiled = CompiledPreemptor(CompiledEngine(preemptor.cluster, profile), preemptor)
        gangs = {task.task_id for task in world.running_tasks if task.whole}
        chance, size = Random(seed), 1 + seed % 3

        def fall_back(one: Workload, least: int, preemptor: Preemptor = preemptor) -> Decision | None:
            assert one_by_one, f"{one.name} is for the kernels"
            found["by definition"] += 1
            return preemptor.plan(one, one.tasks, NOW)

        for first in range(0, len(world.preemptors), size):
            batch = world.preemptors[first : first + size]
            expected = list(map(by_definition(definition), batch))
            planned = plan_in_batches(compiled, [(each, 1) for each in batch], NOW, one_by_one=fall_back)
            assert planned == expected, f"world {seed}"
            found["preemptors"] += len(batch)
            decisions = [each for each in expected if each is not None]
            for decision in decisions:
                found["plans"] += 1
                found["violations"] += any(victim.violates_budget for victim in decision.victims)
                found["gangs"] += any(victim.task_id in gangs for victim in decision.victims)
                found["devices"] += any(placement.devices for placement in decision.placements)
            _change(chance, [definition, preemptor], world, decisions)
            assert _state(preemptor, world) == _state(definition, world), f"world {seed}"
    return found


def test_the_kernels_plan_as_the_definition_does():
    assert compare_kernels_and_definition(worlds(200, plain=True))["plans"] > 150


@pytest.mark.slow
def test_the_kernels_spend_budgets_and_preempt_gangs_as_the_definition_does():
    found = compare_kernels_and_definition(worlds(600))
    assert min(found["violations"], found["gangs"]) > 60


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["spread", "gpu"])
def test_the_kernels_preempt_for_devices_as_the_definition_does(profile: str):
    given = [with_devices(world, Random(seed)) for seed, world in enumerate(worlds(300))]
    assert compare_kernels_and_definition(given, Registry().profile(profile))["devices"] > 100


@pytest.mark.slow
def test_the_kernels_keep_hard_spread_and_anti_affinity_as_the_definition_does():
    found = compare_kernels_and_definition(map(with_constraints, range(600)), one_by_one=True)
    assert found["plans"] > 300
    assert 50 < found["by definition"] < found["preemptors"] / 2


def with_constraints(seed: int) -> Given:
    """A world with zones whose preemptors count other tasks; some of these are possible victims."""
    chance = Random(seed)
    world = world_of(chance, plain=True)
    wishes = (
        NO_CONSTRAINTS,
        Constraints(labels=WEB.labels, spread=(Spread("zone", 1, ALIKE),)),
        Constraints(labels=WEB.labels, spread=(Spread("zone", 2, ALIKE), Spread("host", 1, ALIKE))),
        Constraints(labels=WEB.labels, anti_affinity=(TaskTerm("zone", ALIKE),)),
        Constraints(host_ports=(HostPort(80),)),
    )
    counted = chance.choice((0, 0.1, 0.5))
    nodes = [
        replace(each, labels={"host": each.name} | ({"zone": chance.choice("xyz")} if chance.random() < 0.9 else {}))
        for each in world.nodes
    ]
    running_tasks = [
        replace(each, constraints=chance.choice((WEB, *wishes)) if chance.random() < counted else NO_CONSTRAINTS)
        for each in world.running_tasks
    ]
    preemptors = [replace(each, constraints=chance.choice(wishes)) for each in world.preemptors * 2]
    preemptors = [replace(each, id=id_of(f"preemptor {at}")) for at, each in enumerate(preemptors)]
    return replace(world, nodes=nodes, running_tasks=running_tasks, preemptors=preemptors)


def test_the_kernels_follow_a_device_that_left_its_node():
    """The devices behind it move up in the columns, although no running task changed."""
    chance = Random(1)
    held = [
        replace(
            _running_task(index, "w0", 1 - index, "ann", False, chance),
            node_id=id_of("a"),
            request={"cpu": 1},
            devices=(DeviceShare("gpu", index, WHOLE),),
            preemptible=True,
            started_at=NOW,
        )
        for index in range(2)
    ]
    full = replace(
        node("a").node,
        allocatable={"cpu": 2, "gpu": 2 * WHOLE},
        used={"cpu": 2, "gpu": WHOLE},
        tasks=2,
        devices={"gpu": (Device(0, taken=WHOLE), Device(1, taken=WHOLE))},
    )
    left = replace(full, devices={"gpu": (Device(1, taken=WHOLE),)})
    wanting = [
        replace(workload(name).workload, request={"gpu": WHOLE}, priority=priority)
        for name, priority in (("first", 0), ("second", 2))
    ]
    world = Given([full], held, Preemption(), Budgets(), wanting)
    assert compilation.wait()
    from mooring.scheduling.compiled.engine import CompiledEngine
    from mooring.scheduling.compiled.preemption import CompiledPreemptor

    preemptor = preemptor_of(world)
    compiled = CompiledPreemptor(CompiledEngine(preemptor.cluster, PROFILE), preemptor)
    for now_there, each, expected in zip((full, left), wanting, (None, [held[1].task_id]), strict=True):
        preemptor.cluster.upsert(now_there)
        assert compiled.sync()
        code = compiled.code_of(each)
        assert code is not None
        [decision] = compiled.plan([(each, code)], NOW)
        assert (None if decision is None else [victim.task_id for victim in decision.victims]) == expected


def with_devices(world: Given, chance: Random) -> Given:
    """The same world with devices on its nodes, of which the running tasks hold shares."""
    nodes, running_tasks = [], []
    for each in world.nodes:
        free = [WHOLE] * chance.randint(0, 3)
        for task in world.running_tasks:
            if task.node_id != each.id:
                continue
            amount = chance.choice((0, 200, 500, WHOLE))
            fitting = [index for index, left in enumerate(free) if left >= amount]
            if amount and fitting:
                index = chance.choice(fitting)
                free[index] -= amount
                task = replace(
                    task, request={**task.request, "gpu": amount}, devices=(DeviceShare("gpu", index + 4, amount),)
                )
            running_tasks.append(task)
        devices = tuple(Device(index + 4, taken=WHOLE - left) for index, left in enumerate(free))
        nodes.append(
            replace(
                each,
                allocatable={**each.allocatable, "gpu": WHOLE * len(free)},
                used={**each.used, "gpu": WHOLE * len(free) - sum(free)},
                devices={"gpu": devices},
            )
        )
    amounts = (300, 500, WHOLE, 2 * WHOLE)
    preemptors = [replace(each, request={**each.request, "gpu": chance.choice(amounts)}) for each in world.preemptors]
    return replace(world, nodes=nodes, running_tasks=running_tasks, preemptors=preemptors)


def _change(chance: Random, preemptors: list[Preemptor], world: Given, decisions: list[Decision]) -> None:
    """Apply changes between two passes: withdraw a plan, replace the tasks of a node, replace the budgets."""
    withdrawn = chance.choice([None, *decisions])
    changed_node, raised = chance.choice([None, *world.nodes]), chance.randint(-1, 1)
    owner, allowed = chance.choice(OWNERS), chance.randint(0, 2)
    for preemptor in preemptors:
        if withdrawn is not None:
            preemptor.withdraw(withdrawn)
        if changed_node is not None:
            here = preemptor.running_tasks.on(changed_node.id)
            preemptor.running_tasks.update(
                changed_node.id, [replace(each, priority=each.priority + raised) for each in here]
            )
        if world.budgets.allowed:
            preemptor.set_budgets(Budgets({**preemptor.allowed, id_of(owner): allowed}))


def test_nodes_side_by_side_are_seen_as_each_alone(monkeypatch: pytest.MonkeyPatch):
    """Evaluating nodes together finds the same victims as one by one, also if filters depend on other tasks."""
    wishes = (
        Constraints(labels=WEB.labels, spread=(Spread("zone", 1, ALIKE),)),
        Constraints(labels=WEB.labels, anti_affinity=(TaskTerm("zone", ALIKE),)),
        Constraints(host_ports=(HostPort(80),)),
    )
    found: list[list[tuple[list[Candidate], Answer]]] = []
    for easing in (victim_search._EASING, ()):
        monkeypatch.setattr(victim_search, "_EASING", easing)
        answers = []
        for seed, world in enumerate(worlds(150)):
            chance = Random(seed)
            running_tasks = [replace(each, constraints=chance.choice((WEB, *wishes))) for each in world.running_tasks]
            zones = [replace(each, labels={"zone": chance.choice("xy")}) for each in world.nodes]
            preemptor = preemptor_of(replace(world, nodes=zones, running_tasks=running_tasks))
            plan = by_definition(preemptor)
            for each in world.preemptors:
                wishing = replace(each, constraints=chance.choice(wishes))
                answers.append((preemptor.candidates(wishing, NOW), answer(plan(wishing))))
        found.append(answers)
    assert found[0] == found[1]
    assert sum(planned is not None for _, planned in found[0]) > 80


def test_a_withdrawn_decision_leaves_the_state_unchanged():
    for seed, world in enumerate(worlds(120)):
        preemptor = preemptor_of(world)
        plan = by_definition(preemptor)
        first, *others = world.preemptors
        plan(first)
        before = _state(preemptor, world)
        for each in others:
            decision = plan(each)
            if decision is not None:
                preemptor.withdraw(decision)
            assert _state(preemptor, world) == before, f"world {seed}"


def _state(preemptor: Preemptor, world: Given) -> tuple[object, ...]:
    on = [preemptor.running_tasks.on(each.id) for each in world.nodes]
    cluster = preemptor.cluster
    devices = {slot: column.free.tolist() for slot, column in cluster.devices.columns.items()}
    return cluster.taken.tolist(), cluster.tasks.tolist(), devices, dict(preemptor.allowed), on


def test_once_the_victims_have_left_nothing_is_over_capacity():
    for seed, world in enumerate(worlds(200)):
        preemptor = preemptor_of(world)
        used = {each.id: Counter(each.used) for each in world.nodes}
        offered = {each.id: each.allocatable for each in world.nodes}
        running_tasks = {task.task_id: task for task in world.running_tasks}
        for each in world.preemptors:
            gang = replace(each, tasks=workload(each.name).replicas(1 + seed % 3).workload.tasks)
            decision = preemptor.plan(gang, gang.tasks, NOW, least=len(gang.tasks))
            if decision is None:
                continue
            assert len(decision.placements) == len(gang.tasks)
            for victim in decision.victims:
                # Each is taken once.
                leaving = running_tasks.pop(victim.task_id)
                used[leaving.node_id].subtract(leaving.request)
            for placement in decision.placements:
                used[placement.node_id].update(each.request)
            for placement in decision.placements:
                for slot in each.request:
                    assert used[placement.node_id][slot] <= offered[placement.node_id][slot], f"world {seed}"
