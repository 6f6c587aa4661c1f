from __future__ import annotations

from fractions import Fraction
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import numpy as np
import pytest

from mooring.model.decisions import SCORE_ONE, Outcome
from mooring.model.errors import InvalidInput
from mooring.scheduling import Profile, Registry
from mooring.scheduling.plugins import profiles
from mooring.scheduling.plugins.profiles import PRESETS
from mooring.scheduling.plugins.protocols import Candidates, Rejection
from mooring.scheduling.plugins.weights import Weight
from tests.scheduling.builders import chosen, decide, decision_of, node, run, scheduler, workload


class OnlyLabelled:
    """A user's filter: nodes of region `eu-west` only; tasks of region `broken` break it."""

    name = "labelled"
    depends_on = "static"

    def feasible(self, shape, cluster, rows):
        if shape.region == "broken":
            raise ValueError("no such\nregion")
        return cluster.region[rows] == cluster.regions.code("eu-west")

    def explain(self, shape, cluster, rows):
        return Rejection("unlabelled", f"{len(rows)} without the label", "never")


class EmptyClusterFirst:
    """A user's scorer that looks at other nodes: the fewer tasks the whole cluster has, the better any node is."""

    name = "emptiness"
    depends_on = "cluster"

    def score(self, shape, cluster, rows):
        return np.full(len(rows), max(SCORE_ONE - 100_000 * int(cluster.tasks.sum()), 0), dtype=np.int64)


class Gives:
    """Gives whatever it was made with, as a filter and as a scorer."""

    name = "gives"

    def __init__(self, answer: Any = None, depends_on: Any = "row") -> None:
        self.answer = answer
        self.depends_on = depends_on

    def feasible(self, shape, cluster, rows):
        return self.answer(len(rows))

    score = feasible

    def explain(self, shape, cluster, rows):
        raise RuntimeError("cannot say")


def with_filter(plugin) -> Profile:
    registry = Registry()
    registry.add_filter(plugin)
    return registry.profile(extra_filters=[plugin.name])


def with_scorer(plugin) -> Profile:
    registry = Registry()
    registry.add_scorer(plugin)
    return registry.profile(weights={plugin.name: 1})


def test_the_preset_locality_weighs_40_30_30():
    profile = Registry().profile("locality")
    assert [(scorer.name, weight) for scorer, weight in profile.scorers][:3] == [
        ("resources", 40),
        ("load", 30),
        ("locality", 30),
    ]
    assert [plugin.name for plugin in profile.filters] == [
        "ready",
        "runtime",
        "architecture",
        "owner",
        "isolation",
        "node_name",
        "designated",
        "node_selector",
        "node_affinity",
        "taints",
        "machine_image",
        "volumes",
        "volume_zone",
        "resources",
        "devices",
        "tasks_per_node",
        "licence",
        "host_ports",
        "task_affinity",
        "task_anti_affinity",
        "topology_spread",
    ]


@pytest.mark.parametrize(
    ("compose", "message"),
    [
        (
            lambda registry: registry.profile("fastest"),
            "there is no profile 'fastest'; known are balanced, concentrated, ",
        ),
        (lambda registry: registry.profile(extra_filters=["x"]), "there is no filter 'x'; known are architecture, "),
        (
            lambda registry: registry.profile(weights={"x": 1}),
            "there is no scorer 'x'; known are balanced, device",
        ),
        (lambda registry: registry.profile(selector="x"), "there is no selector 'x'; known are concentrated, "),
        (lambda registry: registry.profile(weights={}), "needs scorers with weights above 0"),
        *(
            (
                lambda registry, weight=weight: registry.profile(weights={"load": weight}),
                f"the weight of 'load' is {weight!r}; it must be a whole number above 0",
            )
            for weight in (0, -1, 0.5, float("nan"), "3", None, True)
        ),
        (
            lambda registry: registry.profile(weights={"load": Weight(-1, Fraction(1, 2))}),
            "the weight of 'load' is Fraction(-1, 2); it must be a whole number above 0",
        ),
        (
            lambda registry: registry.profile(weights={"load": 1_000_000, "resources": 1}),
            "sum up to 1,000,001 in whole numbers; the most is 1,000,000",
        ),
    ],
)
def test_an_invalid_profile_is_rejected_with_a_reason(compose, message):
    with pytest.raises(InvalidInput) as error:
        compose(Registry())
    assert message in error.value.message


@pytest.mark.parametrize(
    ("compose", "known"),
    [
        (lambda registry: registry.profile("x"), {"locality", "kubernetes", "pack", "lab"}),
        (lambda registry: registry.profile(extra_filters=["x"]), {"resources", "taints", "topology_spread"}),
        (lambda registry: registry.profile(weights={"load": 1, "x": 1}), {"load", "resources", "spreading"}),
        (lambda registry: registry.profile(selector="x"), {"highest", "round_robin", "highest_random"}),
    ],
)
def test_an_unknown_name_is_rejected_with_all_known_ones(compose, known):
    registry = Registry()
    labelled: Any = OnlyLabelled()
    registry.add_filter(labelled)
    with pytest.raises(InvalidInput) as error:
        compose(registry)
    names = error.value.details["known"]
    assert known <= set(names)
    assert error.value.message.endswith(f"known are {', '.join(names)}")
    assert error.value.code in {"unknown-profile", "unknown-filter", "unknown-scorer", "unknown-selector"}
    # What a user added is known, too.
    assert ("labelled" in names) == (error.value.code == "unknown-filter")


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_composed(preset):
    assert Registry().profile(preset).name == preset


def test_other_weights_make_other_choices():
    idle_and_small = node("a").cpu(2).memory("2Gi")
    busy_and_big = node("b").cpu(64).memory("64Gi").load(99, 99)
    asks = workload("w").cpu(1).memory("1Gi")
    registry = Registry()
    for weights, expected in (({"load": 1}, "a"), ({"resources": 1}, "b")):
        profile = registry.profile(weights=weights)
        assert chosen(decide([idle_and_small, busy_and_big], asks, profile=profile)) == [expected]


def test_a_registered_filter_applies_in_addition_to_the_built_in_ones():
    nodes = [node("a").cpu(8), node("b").cpu(1).region("eu-west")]
    assert chosen(decide(nodes, workload("w").cpu(1), profile=with_filter(OnlyLabelled()))) == ["b"]
    reason = decide(nodes[:1], workload("w"), profile=with_filter(OnlyLabelled())).reason
    assert reason is not None
    assert (reason.message, reason.cure) == ("0 of 1 node: 1 without the label", "never")


def test_a_scorer_that_depends_on_the_cluster_is_called_after_every_placement():
    decision = decide(
        [node("a"), node("b"), node("c")],
        workload("w").replicas(3).max_per_node(1),
        profile=with_scorer(EmptyClusterFirst()),
    )
    # One task more in the cluster each time.
    assert [placement.score for placement in decision.placements] == [1_000_000, 900_000, 800_000]
    assert chosen(decision) == ["a", "b", "c"]


def test_a_plugin_that_raises_fails_its_workload_and_no_other():
    lab = scheduler([node("a").cpu(4).region("eu-west")], profile=with_filter(OnlyLabelled()))
    result = run(
        lab,
        workload("first").cpu(1).priority(90),
        workload("broken").cpu(1).region("broken").priority(50),
        workload("last").cpu(1).priority(0),
    )
    assert result.outcomes == {Outcome.PLACED: 2, Outcome.ERROR: 1}
    broken = decision_of(result.decisions, "broken")
    assert broken.outcome is Outcome.ERROR
    assert broken.placements == ()
    assert broken.reason is not None
    assert (broken.reason.code, broken.reason.by) == ("constraint-evaluation-failed", "labelled")
    assert broken.reason.message == r"the filter 'labelled' raised ValueError: no such\nregion"


@pytest.mark.parametrize(
    ("name", "answer", "problem"),
    [
        ("a list", lambda count: [True] * count, "returned a list instead of an array"),
        ("numbers", lambda count: np.ones(count, dtype=np.int8), "returned an array of int8 instead of bool"),
        ("too many", lambda count: np.ones(count + 1, dtype=np.bool_), "returned an array of shape (2,) for 1 nodes"),
        (
            "two axes",
            lambda count: np.ones((1, count), dtype=np.bool_),
            "returned an array of shape (1, 1) for 1 nodes",
        ),
        ("no words for its no", lambda count: np.zeros(count, dtype=np.bool_), "raised RuntimeError: cannot say"),
    ],
)
def test_a_filter_that_returns_a_wrong_array_fails_the_workload(name, answer, problem):
    decision = decide([node("a")], workload("w"), profile=with_filter(Gives(answer)))
    assert decision.outcome is Outcome.ERROR, name
    assert decision.reason is not None
    assert decision.reason.message == f"the filter 'gives' {problem}"


@pytest.mark.parametrize(
    ("name", "answer", "problem"),
    [
        ("an error", lambda count: 1 // 0, "raised ZeroDivisionError: integer division or modulo by zero"),
        ("floats", lambda count: np.ones(count), "returned an array of float64 instead of int64"),
        ("too few", lambda count: np.empty(0, dtype=np.int64), "returned an array of shape (0,) for 1 nodes"),
        ("below the scale", lambda count: np.full(count, -1), "returned a score outside 0 to 1000000"),
        ("above the scale", lambda count: np.full(count, SCORE_ONE + 1), "returned a score outside 0 to 1000000"),
    ],
)
def test_a_scorer_that_returns_a_wrong_array_fails_the_workload(name, answer, problem):
    decision = decide([node("a")], workload("w"), profile=with_scorer(Gives(answer)))
    assert decision.outcome is Outcome.ERROR, name
    assert decision.reason is not None
    assert decision.reason.message == f"the scorer 'gives' {problem}"


def test_a_plugin_that_fails_halfway_leaves_nothing_assumed():
    class FailsOnSecondLook(Gives):
        def feasible(self, shape, cluster, rows):
            if cluster.tasks.sum():
                raise ValueError("second")
            return np.ones(len(rows), dtype=np.bool_)

    lab = scheduler([node("a").cpu(4)], profile=with_filter(FailsOnSecondLook()))
    assert run(lab, workload("w").cpu(1).replicas(2)).outcomes == {Outcome.ERROR: 1}
    assert lab.cluster.tasks.sum() == 0
    assert lab.cluster.taken.sum() == 0


def test_a_plugin_that_recovers_is_used_again():
    class FailsWhileCrowded(Gives):
        def feasible(self, shape, cluster, rows):
            if self.answer:
                raise ValueError("crowded")
            return np.ones(len(rows), dtype=np.bool_)

    plugin = FailsWhileCrowded(False)
    # The first size of the columns is filled, so that the node which comes makes every answer stale at once.
    lab = scheduler([node(f"n{number:02}").cpu(1) for number in range(64)], profile=with_filter(plugin))
    assert chosen(run(lab, workload("w").cpu(1)).decisions[0]) == ["n00"]
    lab.cluster.upsert(node("small").node)
    plugin.answer = True
    assert run(lab, workload("w").cpu(1)).outcomes == {Outcome.ERROR: 1}
    plugin.answer = False
    assert chosen(run(lab, workload("w").cpu(1)).decisions[0]) == ["n01"]


def test_plugin_names_are_unique_and_dependencies_are_valid():
    registry = Registry()
    registry.add_filter(Gives())
    with pytest.raises(InvalidInput, match="there is a filter 'gives' already"):
        registry.add_filter(Gives())
    with pytest.raises(InvalidInput, match="depends on 'weather'"):
        registry.add_scorer(Gives(depends_on="weather"))


class TheLast:
    """Chooses the worst of the nodes that may take the task."""

    name = "last"

    def choose(self, candidates: Candidates) -> int:
        return len(candidates.rows) - 1


class Astray(TheLast):
    name = "astray"

    def choose(self, candidates: Candidates) -> int:
        return len(candidates.rows)


def test_a_registered_selector_decides_and_a_wrong_choice_fails_the_workload():
    nodes = [node("a").cpu(4), node("b").cpu(4)]
    work = workload("w").cpu(1)
    assert chosen(decide(nodes, work, profile=Registry().profile(selector=TheLast()))) == ["b"]
    failed = decide(nodes, work, profile=Registry().profile(selector=Astray()))
    assert failed.outcome is Outcome.ERROR
    assert failed.reason is not None
    assert failed.reason.message == "the selector 'astray' chose number 2 of 2 nodes"


def test_plugins_of_installed_packages_are_found(monkeypatch):
    offered = EntryPoints(
        [
            EntryPoint("labelled", f"{__name__}:OnlyLabelled", "mooring.filters"),
            EntryPoint("emptiness", f"{__name__}:EmptyClusterFirst", "mooring.scorers"),
            EntryPoint("last", f"{__name__}:TheLast", "mooring.selectors"),
        ]
    )
    monkeypatch.setattr(profiles, "entry_points", lambda group: offered.select(group=group))
    registry = Registry()
    registry.discover()
    profile = registry.profile(extra_filters=["labelled"], weights={"emptiness": 1}, selector="last")
    assert isinstance(profile.selector, TheLast)
    # What is asked for by name comes before the filters of capacity.
    names = [plugin.name for plugin in profile.filters]
    at = names.index("labelled")
    assert names[at - 1 : at + 2] == ["volume_zone", "labelled", "resources"]
    assert [scorer.name for scorer, _ in profile.scorers] == ["emptiness"]
