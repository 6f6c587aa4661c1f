"""For every world: the definition, the kernels and the plain reference plan the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from uuid import UUID

import pytest

from mooring.model.constraints import Constraints, HostPort, Spread, TaskTerm
from mooring.model.decisions import Decision
from mooring.model.labels import equal_to
from mooring.model.nodes import Node
from mooring.model.preemption import Budgets, Preemption, Resident, VictimScope
from mooring.model.workloads import NO_CONSTRAINTS, Workload
from mooring.scheduling import Cluster, Registry, compilation, victims
from mooring.scheduling.preemption import Preemptor
from mooring.scheduling.residents import told_residents
from mooring.scheduling.victims import Candidate
from tests.scheduling.builders import NOW, id_of, node, workload
from tests.scheduling.preemption_reference import World

USERS = ("ann", "ben")
NODES = ("a", "b", "c", "d")
PROFILE = Registry().profile("spread")
ALIKE = equal_to({"app": "web"})
WEB = Constraints(labels=(("app", "web"),))
OWNERS = ("w0", "w1", "w2", "w3", "w4", "w5")


@dataclass(frozen=True)
class Given:
    nodes: list[Node]
    residents: list[Resident]
    rules: Preemption
    budgets: Budgets
    preemptors: list[Workload]


def world_of(chance: Random, *, plain: bool = False) -> Given:
    """Four nodes that are full or nearly; `plain`: no budgets, and only wholes that leave for nobody."""
    owners = {owner: (chance.randint(0, 3), chance.choice(USERS), chance.random() < 0.3) for owner in OWNERS}
    if plain:
        owners |= {owner: (9 if whole else low, user, whole) for owner, (low, user, whole) in owners.items()}
    residents = [
        _resident(number, owner, *owners[owner], chance)
        for number, owner in enumerate(chance.choices(OWNERS, k=chance.randint(1, 14)))
    ]
    budgets = {} if plain else {id_of(owner): chance.randint(0, 2) for owner in OWNERS if chance.random() < 0.3}
    rules = Preemption(
        scope=chance.choice([VictimScope.POOL, VictimScope.POOL, VictimScope.USER]),
        min_runtime_seconds=chance.choice([0, 0, 2]),
    )
    nodes = [_node(name, [each for each in residents if each.node_id == id_of(name)], chance) for name in NODES]
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
    return Given(nodes, residents, rules, Budgets(budgets), preemptors)


def _resident(number: int, owner: str, priority: int, user: str, whole: bool, chance: Random) -> Resident:
    return Resident(
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


def _node(name: str, here: list[Resident], chance: Random) -> Node:
    used: Counter[str] = Counter()
    for resident in here:
        used.update(resident.request)
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


def preemptor_of(world: Given) -> Preemptor:
    cluster = Cluster(world.nodes)
    residents = told_residents(cluster, world.residents)
    return Preemptor(cluster, PROFILE, residents, world.rules, world.budgets)


def by_definition(preemptor: Preemptor) -> Callable[[Workload], Decision | None]:
    return lambda each: preemptor.plan(each, each.tasks, NOW)


def worlds(number: int, *, plain: bool = False) -> Iterator[Given]:
    return (world_of(Random(seed), plain=plain) for seed in range(number))


def test_plans_are_those_of_the_plain_reference():
    planned = 0
    for seed, world in enumerate(worlds(1000)):
        reference = World(world.nodes, world.residents, world.rules, dict(world.budgets.allowed))
        plan = by_definition(preemptor_of(world))
        lowest = min((resident.priority for resident in world.residents if resident.preemptible), default=99)
        for each in world.preemptors:
            expected = reference.plan(each, NOW) if lowest < each.priority else None
            assert answer(plan(each)) == expected, f"world {seed}"
            planned += expected is not None
    assert planned > 1000


def test_the_kernels_plan_as_the_definition_does():
    assert compilation.wait()
    from mooring.scheduling.compiled_preemption import CompiledPreemptor, plan_in_batches
    from mooring.scheduling.engine import Engine

    def never(one: Workload, least: int) -> Decision | None:
        raise AssertionError(f"{one.name} is for the kernels")

    for seed, world in enumerate(worlds(500, plain=True)):
        definition, preemptor = preemptor_of(world), preemptor_of(world)
        compiled = CompiledPreemptor(Engine(preemptor.cluster, PROFILE), preemptor)
        chance, size = Random(seed), 1 + seed % 3
        for first in range(0, len(world.preemptors), size):
            batch = world.preemptors[first : first + size]
            expected = list(map(by_definition(definition), batch))
            assert plan_in_batches(compiled, [(each, 1) for each in batch], NOW, one_by_one=never) == expected, seed
            _change(chance, [definition, preemptor], world, [each for each in expected if each is not None])


def _change(chance: Random, preemptors: list[Preemptor], world: Given, decisions: list[Decision]) -> None:
    """What may happen between two passes: a plan is withdrawn, a node is told anew."""
    withdrawn = chance.choice([None, *decisions])
    told, raised = chance.choice([None, *world.nodes]), chance.randint(-1, 1)
    for preemptor in preemptors:
        if withdrawn is not None:
            preemptor.withdraw(withdrawn)
        if told is not None:
            here = preemptor.residents.on(told.id)
            preemptor.residents.tell(told.id, [replace(each, priority=each.priority + raised) for each in here])


def test_nodes_side_by_side_are_seen_as_each_alone(monkeypatch: pytest.MonkeyPatch):
    """Where filters ask about other tasks, nodes that pass them are looked at together; that changes nothing."""
    wishes = (
        Constraints(labels=WEB.labels, spread=(Spread("zone", 1, ALIKE),)),
        Constraints(labels=WEB.labels, anti_affinity=(TaskTerm("zone", ALIKE),)),
        Constraints(host_ports=(HostPort(80),)),
    )
    found: list[list[tuple[list[Candidate], Answer]]] = []
    for easing in (victims._EASING, ()):
        monkeypatch.setattr(victims, "_EASING", easing)
        answers = []
        for seed, world in enumerate(worlds(150)):
            chance = Random(seed)
            residents = [replace(each, constraints=chance.choice((WEB, *wishes))) for each in world.residents]
            zones = [replace(each, labels={"zone": chance.choice("xy")}) for each in world.nodes]
            preemptor = preemptor_of(replace(world, nodes=zones, residents=residents))
            plan = by_definition(preemptor)
            for each in world.preemptors:
                wishing = replace(each, constraints=chance.choice(wishes))
                answers.append((preemptor.candidates(wishing, NOW), answer(plan(wishing))))
        found.append(answers)
    assert found[0] == found[1]
    assert sum(planned is not None for _, planned in found[0]) > 80


def test_what_is_withdrawn_was_never_planned():
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
    on = [preemptor.residents.on(each.id) for each in world.nodes]
    return preemptor.cluster.taken.tolist(), preemptor.cluster.tasks.tolist(), dict(preemptor.allowed), on


def test_once_the_victims_have_left_nothing_is_over_capacity():
    for seed, world in enumerate(worlds(200)):
        preemptor = preemptor_of(world)
        used = {each.id: Counter(each.used) for each in world.nodes}
        offered = {each.id: each.allocatable for each in world.nodes}
        residents = {resident.task_id: resident for resident in world.residents}
        for each in world.preemptors:
            gang = replace(each, tasks=workload(each.name).replicas(1 + seed % 3).workload.tasks)
            decision = preemptor.plan(gang, gang.tasks, NOW, least=len(gang.tasks))
            if decision is None:
                continue
            assert len(decision.placements) == len(gang.tasks)
            for victim in decision.victims:
                # Each is taken once.
                leaving = residents.pop(victim.task_id)
                used[leaving.node_id].subtract(leaving.request)
            for placement in decision.placements:
                used[placement.node_id].update(each.request)
            for placement in decision.placements:
                for slot in each.request:
                    assert used[placement.node_id][slot] <= offered[placement.node_id][slot], f"world {seed}"
