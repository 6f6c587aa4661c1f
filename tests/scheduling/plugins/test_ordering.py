"""The order of workloads: priority bands, the sequencers within them, and blocking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.decisions import Decision, Outcome
from mooring.model.errors import InvalidInput
from mooring.model.policy.pools import PoolPolicy
from mooring.model.tenancy.fair_share import Factors, Weights
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Registry, Scheduler
from mooring.scheduling.plugins.ordering import BUILT_IN_SEQUENCERS
from mooring.scheduling.plugins.ordering.bands import ordered
from mooring.scheduling.plugins.ordering.drf import DrfSequencer, dominant_share
from mooring.scheduling.plugins.ordering.fair_queue import FairQueueSequencer
from mooring.scheduling.plugins.ordering.multi_factor import MultiFactorSequencer
from mooring.scheduling.plugins.protocols import SHARE_ONE, Offer, OrderingContext
from tests.scheduling.builders import NOW, WorkloadBuilder, id_of, node, workload
from tests.selection import examples


def names(sequencer: str, *waiting: WorkloadBuilder, factors: Factors | None = None, ageing: int = 0) -> list[str]:
    """Return the order of a sequencer in a pool of 10 cores."""
    chosen = Registry().sequencer(PoolPolicy("locality", sequencer=sequencer))
    context = OrderingContext(NOW, capacity=lambda _: {"cpu": 10_000}, factors=factors or Factors())
    return [each.name for each in ordered(chosen, [builder.workload for builder in waiting], context, ageing)]


@pytest.mark.parametrize("sequencer", sorted(BUILT_IN_SEQUENCERS))
def test_the_highest_priority_comes_first_whatever_the_sequencer(sequencer: str):
    waiting = [workload(f"p{priority}").priority(priority).cpu(1) for priority in (0, 10, 100, 55)]
    assert names(sequencer, *waiting) == ["p100", "p55", "p10", "p0"]


def test_first_come_first_served_or_the_other_way_round():
    waiting = [workload(f"after-{60 - age}").created(age) for age in (20, 60, 40)]
    assert names("fifo", *waiting) == ["after-0", "after-20", "after-40"]
    assert names("lifo", *waiting) == ["after-40", "after-20", "after-0"]


def test_waiting_raises_the_priority_up_to_the_highest():
    fresh, old = workload("fresh").priority(12), workload("old").priority(10).created(30)
    assert names("fifo", fresh, old, ageing=16) == ["fresh", "old"]
    assert names("fifo", fresh, old, ageing=10) == ["old", "fresh"]
    ancient, highest = workload("ancient").priority(0).created(1e6), workload("highest").priority(100).created(2e6)
    assert names("fifo", ancient, highest, ageing=1) == ["highest", "ancient"]
    assert names("fifo", ancient, highest) == ["highest", "ancient"]


def test_the_least_usage_comes_first_by_domain_then_project_then_user():
    def of(name: str, domain: str, project: str, user: str) -> WorkloadBuilder:
        built = workload(name).user(user).workload
        return WorkloadBuilder(replace(built, domain_id=id_of(domain), project_id=id_of(project)))

    factors = Factors(
        domains={id_of("idle"): 0.9, id_of("busy"): 0.1},
        projects={id_of("p-idle"): 0.8, id_of("p-busy"): 0.2},
        users={(id_of("p-idle"), id_of("ann")): 0.3, (id_of("p-busy"), id_of("ann")): 0.7},
    )
    waiting = [
        of("e", "busy", "p-new", "bob"),
        of("d", "idle", "p-busy", "ann"),
        of("c", "idle", "p-idle", "ann"),
        of("b", "idle", "p-idle", "bob"),
        of("a", "new", "p-idle", "ann"),
    ]
    # Nobody knows the domain of `a` and the user of `b`: they come first, not last.
    assert names("fair_share", *waiting, factors=factors) == ["a", "b", "c", "d", "e"]


def fair_queue(
    *waiting: WorkloadBuilder, used: dict[str, int] | None = None, weights: Weights | None = None
) -> list[str]:
    """The order under `fair_queue` in a pool of 10 cores, of which users hold so many."""
    held = {id_of(user): {"cpu": cores * 1000} for user, cores in (used or {}).items()}
    context = OrderingContext(
        NOW,
        capacity=lambda _: {"cpu": 10_000},
        used=lambda _pool, user: held.get(user, {}),
        factors=Factors(weights=weights or Weights()),
    )
    return [each.name for each in ordered(FairQueueSequencer(), [b.workload for b in waiting], context)]


def many(user: str, number: int, age: float) -> list[WorkloadBuilder]:
    return [workload(f"{user}{place}").user(user).cpu(1).created(age - place) for place in range(number)]


def test_a_fair_queue_alternates_users_however_much_one_of_them_queues():
    order = fair_queue(*many("ann", 10_000, 20_000), *many("bob", 2, 100))
    assert order.index("bob0") == 1
    assert order.index("bob1") == 3
    assert [name for name in order if name.startswith("ann")] == [f"ann{place}" for place in range(10_000)]


def test_a_fair_queue_starts_with_the_user_with_the_lowest_share_of_the_pool():
    order = fair_queue(*many("ann", 3, 100), *many("bob", 4, 50), used={"ann": 2})
    # Bob's third starts at the two cores that Ann holds already, as does her first.
    assert order == ["bob0", "bob1", "ann0", "bob2", "ann1", "bob3", "ann2"]


def test_a_fair_queue_counts_large_workloads_for_more_than_small_ones():
    large = [workload(f"ann{place}").user("ann").cpu(4).created(100 - place) for place in range(2)]
    assert fair_queue(*large, *many("bob", 5, 50)) == ["ann0", "bob0", "bob1", "bob2", "bob3", "ann1", "bob4"]


def test_a_fair_queue_gives_twice_the_weight_twice_the_placements():
    weights = Weights(users={id_of("ann"): 200})
    assert fair_queue(*many("bob", 3, 100), *many("ann", 4, 50), weights=weights) == [
        "bob0", "ann0", "ann1", "bob1", "ann2", "ann3", "bob2",
    ]  # fmt: skip


def test_a_fair_queue_alternates_users_whose_workloads_request_nothing():
    odd = [workload(f"ann{place}").user("ann").slot("gpu", 1).created(100 - place) for place in range(3)]
    assert fair_queue(*odd, workload("bob0").user("bob").slot("gpu", 1).created(10))[:2] == ["ann0", "bob0"]


def test_factors_are_weighted_by_the_policy_of_the_pool():
    old = workload("old").cpu(1).created(3.5 * 86_400).workload
    large = workload("large").cpu(8).workload
    context = OrderingContext(NOW, capacity=lambda _: {"cpu": 10_000})

    def first(**weights: int) -> str:
        return ordered(MultiFactorSequencer(weights), [old, large], context)[0].name

    # age: 1/2 and 0; size: 1/10 and 8/10
    assert [first(age=1), first(size=1), first(smallness=1)] == ["old", "large", "old"]
    assert [first(age=8, size=5), first(age=6, size=5)] == ["old", "large"]
    assert ordered(MultiFactorSequencer(), [old, large], context)[0].name == "large"


def test_unknown_sequencers_and_factors_are_rejected_with_the_known_ones():
    with pytest.raises(InvalidInput, match="no sequencer 'random'; known are drf, fair_queue, fair_share, fifo, lifo"):
        Registry().sequencer(PoolPolicy("locality", sequencer="random"))
    with pytest.raises(InvalidInput, match="no factor 'luck'; known are age, fair_share, size, smallness"):
        Registry().sequencer(PoolPolicy("locality", sequencer="multi_factor", factors=(("luck", 1),)))


def test_a_registered_sequencer_is_chosen_by_its_name():
    class ByName:
        name = "by_name"

        def offers(self, bands: Sequence[Sequence[Workload]], context: OrderingContext) -> Iterator[Offer]:
            yield Offer([each for band in bands for each in sorted(band, key=lambda each: each.name)])

    registry = Registry()
    registry.add_sequencer("by_name", lambda policy: ByName())
    chosen = registry.sequencer(PoolPolicy("locality", sequencer="by_name"))
    result = Scheduler([node("n").cpu(1).node], sequencer=chosen, compiled=False).run(
        [workload("b").cpu(1).created(9).workload, workload("a").cpu(1).workload], NOW
    )
    assert [decision.workload.name for decision in result.decisions if decision.placements] == ["a"]
    with pytest.raises(InvalidInput, match="already"):
        registry.add_sequencer("by_name", lambda policy: ByName())


# --- dominant resource fairness ------------------------------------------------------------------------------------


def placed(decisions: Sequence[Decision]) -> list[str]:
    return [decision.workload.name for decision in decisions if decision.placements]


@pytest.mark.parametrize("compiled", [False, True])
def test_dominant_shares_change_with_every_placement(compiled: bool):
    """9 cores and 18 of memory; A asks for 1 and 4, B for 3 and 1: A, B, A, B, A, and both have 2/3 then."""
    a = [workload(f"a{n}").user("a").cpu(1).slot("units", 4).created(100 - n).workload for n in range(5)]
    b = [workload(f"b{n}").user("b").cpu(3).slot("units", 1).created(50 - n).workload for n in range(5)]
    pool = [node("n").cpu(9).slot("units", 18).node]
    fair = Scheduler(pool, sequencer=DrfSequencer(), compiled=compiled).run([*a, *b], NOW)
    assert placed(fair.decisions) == ["a0", "b0", "a1", "b1", "a2"]
    assert len(fair.decisions) == 10
    in_order = Scheduler(pool, compiled=compiled).run([*a, *b], NOW)
    assert placed(in_order.decisions)[:4] == ["a0", "a1", "a2", "a3"]


def test_only_usage_in_the_same_pool_counts_for_the_dominant_share():
    used = {("default", id_of("a")): {"cpu": 2000}, ("elsewhere", id_of("b")): {"cpu": 9000}}
    context = OrderingContext(NOW, lambda _: {"cpu": 10_000}, lambda pool, user: used.get((pool, user), {}))
    waiting = [workload(f"{user}{n}").user(user).cpu(1).created(9 - n).workload for user in "ab" for n in range(3)]
    assert [each.name for each in ordered(DrfSequencer(), waiting, context)] == ["b0", "b1", "a0", "b2", "a1", "a2"]


def test_a_workload_that_does_not_fit_does_not_raise_the_share_of_its_user():
    huge = [workload(f"huge{n}").user("a").cpu(50).created(99 - n).workload for n in range(40)]
    small = [workload(f"{user}{n}").user(user).cpu(1).created(9 - n).workload for user in "ab" for n in range(4)]
    result = Scheduler([node("n").cpu(6).node], sequencer=DrfSequencer(), compiled=False).run([*huge, *small], NOW)
    # `b` came before the small ones of `a`, and nothing of `a` had been placed.
    assert sorted(placed(result.decisions)) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert len(result.decisions) == 48


@pytest.mark.parametrize("compiled", [False, True])
def test_independent_tasks_alternate_with_those_of_other_users(compiled: bool):
    array = workload("array").user("a").cpu(1).replicas(50).created(99).workload
    gang = workload("gang").user("c").cpu(1).replicas(3).gang().created(1).workload
    single = [workload(f"b{n}").user("b").cpu(1).created(9 - n).workload for n in range(50)]
    pool = [node("n").cpu(6).node, node("m").cpu(5).node]
    result = Scheduler(pool, sequencer=DrfSequencer(), compiled=compiled).run([array, gang, *single], NOW)
    found = {decision.workload.name: decision for decision in result.decisions}
    assert len(result.decisions) == 52
    assert len(found["gang"].placements) == 3
    assert len(found["array"].placements) == 4
    assert (found["array"].workload, found["array"].outcome) == (array, Outcome.PLACED)
    assert len({placement.task_id for placement in found["array"].placements}) == 4
    assert sum(bool(found[f"b{n}"].placements) for n in range(50)) == 4
    assert found["array"].reason is not None


def test_pieces_of_one_workload_keep_its_limit_per_node():
    array = workload("array").user("a").cpu(1).replicas(6).max_per_node(1).created(99).workload
    other = [workload(f"b{n}").user("b").cpu(1).created(9 - n).workload for n in range(6)]
    pool = [node(name).cpu(4).node for name in "xyz"]
    result = Scheduler(pool, sequencer=DrfSequencer(), compiled=False).run([array, *other], NOW)
    nodes = [placement.node_name for placement in result.decisions[0].placements]
    assert sorted(nodes) == ["x", "y", "z"]


requests = st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(any)


class Recording(DrfSequencer):
    """Remembers in which order tasks were placed, and where."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[tuple[Workload, UUID]] = []

    def placed(self, decisions: Sequence[Decision]) -> None:
        super().placed(decisions)
        self.order += [(each.workload, placement.node_id) for each in decisions for placement in each.placements]


@settings(max_examples=examples(60), deadline=None)
@given(
    tenants=st.lists(st.lists(st.tuples(requests, st.integers(1, 4)), min_size=1, max_size=6), min_size=2, max_size=4),
    sizes=st.lists(st.tuples(st.integers(3, 12), st.integers(3, 12)), min_size=1, max_size=3),
)
def test_no_user_gets_ahead_by_more_than_one_task_while_others_have_work_that_fits(
    tenants: list[list[tuple[tuple[int, int], int]]], sizes: list[tuple[int, int]]
):
    nodes = [node(f"n{at}").cpu(cpu).slot("units", units).node for at, (cpu, units) in enumerate(sizes)]
    work = {
        (tenant, at): workload(f"{tenant}-{at}")
        .user(str(tenant))
        .cpu(cpu)
        .slot("units", units)
        .replicas(tasks)
        .workload
        for tenant, asked in enumerate(tenants)
        for at, ((cpu, units), tasks) in enumerate(asked)
    }
    waiting = {each.id: len(each.tasks) for each in work.values()}
    tenant_of = {each.id: tenant for (tenant, _), each in work.items()}
    sequencer = Recording()
    scheduler = Scheduler(nodes, sequencer=sequencer, compiled=False)
    capacity = scheduler.cluster.capacity_of("default")
    result = scheduler.run(list(work.values()), NOW)
    assert result.placements == len(sequencer.order)
    assert len(result.decisions) == len(work)
    used = [dict.fromkeys(capacity, 0) for _ in tenants]
    free = {each.id: dict(each.allocatable) for each in nodes}
    largest = [0 for _ in tenants]
    for each in work.values():
        tenant = tenant_of[each.id]
        largest[tenant] = max(largest[tenant], dominant_share(each.request, capacity))

    def fits(each: Workload) -> bool:
        return any(all(left[slot] >= amount for slot, amount in each.request.items()) for left in free.values())

    for placed_one, node_id in sequencer.order:
        waiting[placed_one.id] -= 1
        for slot, amount in placed_one.request.items():
            used[tenant_of[placed_one.id]][slot] += amount
            free[node_id][slot] -= amount
        shares = [dominant_share(each, capacity) for each in used]
        active = {tenant_of[each.id] for each in work.values() if waiting[each.id] and fits(each)}
        for one in active:
            # Shares are rounded down, hence the one.
            assert all(shares[one] - shares[other] <= largest[one] + 1 for other in active)
    assert not any(fits(each) for each in work.values() if waiting[each.id])


def test_shares_are_fractions_of_the_capacity_of_the_pool():
    assert dominant_share({"cpu": 3000, "gpu": 1000}, {"cpu": 12_000, "gpu": 2000, "storage": 0}) == SHARE_ONE // 2
    assert dominant_share({"licence": 5}, {"cpu": 12_000}) == 0
