"""Groups: work of one user that is spread over nodes or packed onto one, under every profile."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from mooring.model.decisions import Outcome
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.groups import (
    Direction,
    Enforcement,
    Group,
    group_of,
    grouped,
    is_of_group,
)
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Registry, Scheduler
from mooring.scheduling.plugins.profiles import PRESETS
from tests.scheduling.builders import NOW, chosen, id_of, node, workload

PACK, SPREAD = Direction.PACK, Direction.SPREAD
STRICT, PREFERRED = Enforcement.STRICT, Enforcement.PREFERRED


def member(
    name: str,
    direction: Direction = SPREAD,
    enforcement: Enforcement = PREFERRED,
    *,
    group: str = "g",
    user: str = "ann",
    tasks: int = 1,
) -> Workload:
    owner = id_of(user)
    constraints = grouped(Constraints(), Group(group, direction, enforcement), owner)
    asks = workload(name).cpu("100m").memory("128Mi").replicas(tasks).user(user).workload
    return replace(asks, constraints=constraints)


def lab(preset: str = "locality", nodes: int = 3, *, compiled: bool = True) -> Scheduler:
    machines = [node(f"n{number}").cpu(16).memory("64Gi").node for number in range(nodes)]
    return Scheduler(machines, profile=Registry().profile(preset), compiled=compiled)


def nodes_of(scheduler: Scheduler, *members: Workload) -> list[str]:
    return [name for each in members for name in chosen(scheduler.decide(each, NOW))]


@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_profile_spreads_a_group_that_wishes_it(preset: str, compiled: bool) -> None:
    scheduler = lab(preset, compiled=compiled)
    assert len(set(nodes_of(scheduler, *(member(f"m{number}") for number in range(3))))) == 3
    # Beyond one each, the members are counted.
    assert len(set(nodes_of(scheduler, *(member(f"m{number}") for number in range(3, 6))))) == 3


@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_profile_packs_a_group_that_wishes_it(preset: str, compiled: bool) -> None:
    scheduler = lab(preset, compiled=compiled)
    assert len(set(nodes_of(scheduler, *(member(f"m{number}", PACK) for number in range(4))))) == 1


def test_a_wish_gives_way_where_there_is_no_other_node() -> None:
    assert nodes_of(lab(nodes=1), member("a"), member("b")) == ["n0", "n0"]


@pytest.mark.parametrize("direction", Direction)
def test_a_strict_group_says_that_its_members_are_in_the_way(direction: Direction) -> None:
    scheduler = lab(nodes=2)
    first = nodes_of(scheduler, member("first", direction, STRICT))
    if direction is PACK:
        full = next(n for n in scheduler.cluster.nodes if n is not None and n.name == first[0])
        scheduler.cluster.upsert(replace(full, schedulable=False))
        scheduler.cluster.set_tasks(full.id, [(member("first", PACK, STRICT).constraints, 1)])
    else:
        assert set(nodes_of(scheduler, member("second", SPREAD, STRICT))) == {"n0", "n1"} - set(first)
    decision = scheduler.decide(member("last", direction, STRICT), NOW)
    assert decision.outcome is Outcome.WAITING
    assert decision.reason is not None
    expected = "1 without the members of its group 'g'" if direction is PACK else "2 with a member of its group 'g'"
    assert expected in decision.reason.message
    # Nobody is preempted for a group.
    assert decision.reason.details["preemption"] is False


def test_a_strict_member_also_excludes_members_with_a_preference() -> None:
    scheduler = lab(nodes=1)
    assert nodes_of(scheduler, member("strict", SPREAD, STRICT)) == ["n0"]
    reason = scheduler.decide(member("wishing"), NOW).reason
    assert reason is not None
    assert reason.code == "strict-group"


def test_a_gang_of_a_strictly_packed_group_shares_the_node_of_its_first_task() -> None:
    nodes = nodes_of(lab(), member("gang", PACK, STRICT, tasks=5), member("more", PACK, STRICT, tasks=2))
    assert len(nodes) == 7
    assert len(set(nodes)) == 1


@pytest.mark.parametrize("others", [{"user": "ben"}, {"group": "h"}])
def test_members_are_of_one_owner_and_one_name(others: dict[str, str]) -> None:
    scheduler = lab(nodes=1)
    mine = member("mine", SPREAD, STRICT)
    assert nodes_of(scheduler, mine) == ["n0"]
    assert nodes_of(scheduler, member("other", SPREAD, STRICT, **others)) == ["n0"]  # type: ignore[arg-type]


def test_a_group_is_known_by_its_name_and_its_demands() -> None:
    constraints = grouped(Constraints(labels=(("app", "x"),)), Group("train-1", PACK, STRICT), UUID(int=7))
    assert group_of(constraints) == "train-1"
    assert ("app", "x") in constraints.labels
    assert all(map(is_of_group, constraints.affinity))
    assert group_of(Constraints()) is None
