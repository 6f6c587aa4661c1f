"""Runs one case and says what is wrong with the outcome, if anything is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from mooring.model.decisions import Outcome
from mooring.model.errors import InvalidInput
from mooring.model.labels import Operator
from mooring.model.policy.preemption import Preemption, Victim
from mooring.model.resources.devices import WHOLE
from mooring.model.resources.quantity import canonical, parse_quantity
from mooring.model.resources.task_resources import (
    limits_of,
    quality_of,
    requests_of,
)
from mooring.model.workloads.constraints import NodeTerm, check_spread, check_task_terms
from mooring.model.workloads.workload import LONG_AGO, Workload
from mooring.scheduling import Cluster, Profile, Registry, Scheduler
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.columns import NODE_NAME
from mooring.scheduling.cluster.device_sharing import tightest
from mooring.scheduling.cluster.node_matching import untolerated
from mooring.scheduling.cluster.shapes import Shape, shape_of
from mooring.scheduling.plugins.filters.host_ports import HostPortsFilter
from mooring.scheduling.plugins.filters.node_affinity import NodeAffinityFilter
from mooring.scheduling.plugins.filters.node_name import NodeNameFilter
from mooring.scheduling.plugins.filters.node_selector import NodeSelectorFilter
from mooring.scheduling.plugins.filters.ready import ReadyFilter
from mooring.scheduling.plugins.filters.resources import ResourcesFilter
from mooring.scheduling.plugins.filters.taints import TaintsFilter
from mooring.scheduling.plugins.filters.task_affinity import TaskAffinityFilter
from mooring.scheduling.plugins.filters.task_anti_affinity import TaskAntiAffinityFilter
from mooring.scheduling.plugins.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.plugins.filters.topology_spread import TopologySpreadFilter
from mooring.scheduling.plugins.ordering.bands import ordered
from mooring.scheduling.plugins.ordering.fifo import FifoSequencer
from mooring.scheduling.plugins.protocols import (
    DependsOn,
    Filter,
    OrderingContext,
    PluginFailed,
    Rejection,
    Scorer,
    ask_scorer,
    is_concerned,
)
from mooring.scheduling.plugins.scorers.device_packing import packing_points
from mooring.scheduling.plugins.scorers.fragmentation import fragment
from mooring.scheduling.plugins.scorers.kubernetes import (
    KubernetesBalanced,
    KubernetesFit,
    KubernetesImageLocality,
    KubernetesNodeAffinity,
    KubernetesTaints,
    KubernetesTaskAffinity,
    KubernetesTopologySpread,
)
from mooring.scheduling.plugins.scorers.kubernetes.node_affinity import preferred_sum
from mooring.scheduling.plugins.scorers.kubernetes.points import ONE_POINT, by_largest
from mooring.scheduling.preemption.preemption import Preemptor
from mooring.scheduling.queue.requeue_hints import worth_trying
from tests.conformance import translation
from tests.conformance.translation import Json

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_SYSTEM_SPREAD = {("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5)}


def cases_in(folder: Path) -> dict[str, list[Json]]:
    """The cases of every file that is about placing, by the file's name."""
    files = sorted(folder.glob("*.json"))
    return {path.stem: json.loads(path.read_text()) for path in files}


def problem_of(case: Json) -> str | None:
    """None if the core gives the outcome that the case expects."""
    run = _OPERATIONS.get(case["op"])
    if run is None:
        return f"the operation {case['op']!r} is not known"
    try:
        return run(case)
    except (InvalidInput, PluginFailed) as error:
        return None if case["expect"].get("error") else f"refused: {error}"


class Excluded:
    """The nodes that other filters are said to have rejected."""

    name = "excluded"
    depends_on: DependsOn = "static"

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        return np.array([cluster.node(row).name not in self._names for row in rows.tolist()], dtype=np.bool_)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection("excluded", f"{len(rows)} excluded")


class Failing:
    """The plugin with which Kubernetes tests that no pod is moved in thought on a node labelled so."""

    name = "failing"
    depends_on: DependsOn = "static"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        labels = [cluster.node(row).labels.get("error") for row in rows.tolist()]
        return np.array([label != "true" for label in labels], dtype=np.bool_)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection("failing", f"{len(rows)} failing")


class Indifferent:
    """A scorer to fill a profile in which only filters are asked."""

    name = "indifferent"
    depends_on: DependsOn = "static"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Any:
        return np.zeros(len(rows), dtype=np.int64)


def _filters(case: Json, plugin: str | None = None) -> tuple[Filter, ...]:
    config = case.get("config") or {}
    match plugin or case["plugin"]:
        case "NodeName":
            return (NodeNameFilter(),)
        case "NodeUnschedulable":
            return (ReadyFilter(),)
        case "TaintToleration":
            return (TaintsFilter(),)
        case "NodeAffinity":
            added = config.get("addedAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
            return (
                NodeAffinityFilter(None if added is None else translation.node_terms_of(added)),
                NodeSelectorFilter(),
            )
        case "NodePorts":
            return (HostPortsFilter(),)
        case "NodeResourcesFit":
            ignored = (*config.get("ignoredResources", ()), *config.get("ignoredResourceGroups", ()))
            return ResourcesFilter(frozenset(ignored)), TasksPerNodeFilter()
        case "PodTopologySpread":
            return (TopologySpreadFilter(),)
        case "InterPodAffinity":
            return TaskAffinityFilter(), TaskAntiAffinityFilter()
    raise KeyError(f"there is no filter for {case['plugin']!r}")


def _scorer(plugin: str, case: Json) -> Scorer:
    config = case.get("config") or {}
    match plugin:
        case "TaintToleration":
            return KubernetesTaints()
        case "NodeAffinity":
            return KubernetesNodeAffinity(translation.preferred_nodes_of(config.get("addedAffinity", {})))
        case "NodeResourcesFit":
            strategy = config.get("scoringStrategy", {})
            slots = strategy.get("resources") or [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
            points = strategy.get("requestedToCapacityRatio", {}).get("shape", ())
            return KubernetesFit(
                strategy.get("type", "LeastAllocated"),
                tuple((slot["name"], slot.get("weight", 1)) for slot in slots),
                tuple((point.get("utilization", 0), point.get("score", 0)) for point in points) or ((0, 0), (100, 10)),
            )
        case "NodeResourcesBalancedAllocation":
            slots = config.get("resources") or [{"name": "cpu"}, {"name": "memory"}]
            return KubernetesBalanced(tuple(slot["name"] for slot in slots))
        case "PodTopologySpread":
            defaults = translation.default_spread(_labels(case), case.get("services", ()), _system_spread(config))
            return KubernetesTopologySpread(tuple(map(translation.spread_of, defaults)))
        case "InterPodAffinity":
            return KubernetesTaskAffinity(
                config.get("hardPodAffinityWeight", 1),
                only_for_wishes=config.get("ignorePreferredTermsOfExistingPods", False),
            )
        case "ImageLocality":
            return KubernetesImageLocality()
    raise KeyError(f"there is no scorer for {plugin!r}")


def _system_spread(config: Json) -> Sequence[Json]:
    """Kubernetes' own default constraints, which are looser about labels than configured ones."""
    defaults = config.get("defaultConstraints", ())
    return defaults if {(c["topologyKey"], c["maxSkew"]) for c in defaults} == _SYSTEM_SPREAD else ()


def _labels(case: Json) -> Mapping[str, str]:
    labels: Mapping[str, str] = case.get("pod", {}).get("metadata", {}).get("labels", {})
    return labels


def _workload(case: Json) -> Workload:
    config = case.get("config") or {}
    defaults = () if _system_spread(config) else config.get("defaultConstraints", ())
    workload = translation.workload_of(case.get("pod", {}), case.get("services", ()), defaults)
    if case["plugin"] in ("InterPodAffinity", "*"):
        check_task_terms(workload.constraints)
    if case["plugin"] in ("PodTopologySpread", "*"):
        check_spread(workload.constraints)
    return workload


def _filter(case: Json) -> str | None:
    expect = case["expect"]
    workload = _workload(case)
    if expect.get("error"):
        return "invalid input was accepted"
    cluster = translation.cluster_of(case)
    filters = _filters(case)
    scheduler = Scheduler(cluster=cluster, filters=filters, scorers=[(Indifferent(), 1)])
    inspection = scheduler.inspect(workload)
    for name, wanted in expect.get("nodes", {}).items():
        code = _code(inspection.of(name).rejections)
        if code != wanted["code"] and not (wanted["code"] == "Rejected" and code != "Success"):
            return f"{name}: {code} instead of {wanted['code']}"
    if "pod" in expect and inspection.candidates:
        return f"the pod should be rejected as a whole; {len(inspection.candidates)} nodes take it"
    if "candidateNodes" in expect:
        names = _candidate_names(workload.constraints.node_terms)
        if names is None or sorted(names) != sorted(expect["candidateNodes"]):
            return f"candidates {names} instead of {expect['candidateNodes']}"
    for name, lacking in expect.get("insufficient", {}).items():
        found = _missing_amounts(filters, workload, cluster, name)
        if found != sorted(map(_comparable, lacking)):
            return f"{name} lacks {found} instead of {lacking}"
    return None


def _candidate_names(terms: Sequence[NodeTerm] | None) -> frozenset[str] | None:
    """Return the only node names that can match the terms; None if any can."""
    if not terms:
        return None
    names: set[str] = set()
    for term in terms:
        named = [
            frozenset(field.values) for field in term.fields if field.key == NODE_NAME and field.operator is Operator.IN
        ]
        if not named:
            return None
        names |= frozenset.intersection(*named)
    return frozenset(names)


def _code(rejections: Mapping[str, Rejection]) -> str:
    if not rejections:
        return "Success"
    unresolvable = any(why.cure != "release" for by, why in rejections.items() if by != "tasks_per_node")
    return "UnschedulableAndUnresolvable" if unresolvable else "Unschedulable"


def _missing_amounts(
    filters: Sequence[Filter], workload: Workload, cluster: Cluster, name: str
) -> list[tuple[Any, ...]]:
    row = next(row for row in cluster.rows.tolist() if cluster.node(row).name == name)
    resources = next(plugin for plugin in filters if isinstance(plugin, ResourcesFilter))
    demand = resources.demand(shape_of(workload, cluster), cluster)
    found: list[tuple[Any, ...]] = []
    for slot in np.flatnonzero(~cluster.fits(demand, np.array([row], dtype=np.intp))[:, 0]).tolist():
        needs, column = int(demand.amounts[slot, 0]), demand.slots[slot, 0]
        allocatable = int(cluster.allocatable[column, row])
        # The last one: even the empty node is too small.
        found.append((demand.names[slot], needs, int(cluster.taken[column, row]), allocatable, needs > allocatable))
    if cluster.tasks[row] >= cluster.max_tasks[row]:
        found.append(("pods", 1, int(cluster.tasks[row]), int(cluster.max_tasks[row]), False))
    return sorted(found)


def _comparable(lacking: Json) -> tuple[Any, ...]:
    return (
        lacking["resource"],
        lacking["requested"],
        lacking["used"],
        lacking["capacity"],
        lacking.get("unresolvable", False),
    )


def _score(case: Json) -> str | None:
    expect = case["expect"]
    workload = _workload(case)
    cluster = translation.cluster_of(case)
    scorer = _scorer(case["plugin"], case)
    excluded = [node["metadata"]["name"] for node in case.get("infeasibleNodes", ())]
    scheduler = Scheduler(cluster=cluster, filters=[Excluded(excluded)], scorers=[(scorer, 1)])
    shape = shape_of(workload, cluster)
    inspection = scheduler.inspect(workload)
    if is_concerned(scorer, shape, cluster):
        scores = {verdict.node: (verdict.scores or {})[scorer.name] for verdict in inspection.candidates}
    else:
        names = [verdict.node for verdict in inspection.candidates]
        rows = np.array([cluster.row_of(_id(name)) for name in names], dtype=np.intp)
        scores = dict(zip(names, ask_scorer(scorer, shape, cluster, rows).tolist(), strict=True))
    if expect.get("error"):
        return "invalid input was accepted"
    if expect.get("skip"):
        return None if not is_concerned(scorer, shape, cluster) or not any(scores.values()) else f"took part: {scores}"
    points = {name: score // ONE_POINT for name, score in scores.items()}
    return None if points == expect["scores"] else f"{points} instead of {expect['scores']}"


def _id(name: str) -> Any:
    return translation.node_of({"metadata": {"name": name}}).id


def _schedule(case: Json) -> str | None:
    expect, config = case["expect"], case.get("config") or {}
    profile = Registry().profile("kubernetes")
    wanted = config.get("scorers")
    scorers = profile.scorers if wanted is None else tuple((_scorer(name, case), 1) for name in wanted)
    workload = _workload(case)
    scheduler = Scheduler(
        cluster=translation.cluster_of(case), profile=Profile("conformance", profile.filters, scorers)
    )
    tied = _best(scheduler, workload)
    decision = scheduler.decide(workload)
    placed = decision.outcome is Outcome.PLACED
    if placed != expect["schedulable"]:
        why = "" if decision.reason is None else f": {decision.reason.message}"
        return f"{'placed' if placed else 'not placed'}{why}"
    anywhere = expect.get("onAnyOf")
    if placed and anywhere:
        # Kubernetes chooses at random among equals, so all the equals must be among those that are right.
        if not tied <= set(anywhere):
            return f"placed on one of {sorted(tied)} instead of {anywhere}"
        if decision.placements[0].node_name not in tied:
            return f"placed on {decision.placements[0].node_name}, which is not one of the best"
    return None


def _best(scheduler: Scheduler, workload: Workload) -> set[str]:
    candidates = scheduler.inspect(workload).candidates
    return {verdict.node for verdict in candidates if verdict.score == candidates[0].score}


def _preemptor(case: Json) -> Preemptor:
    config = case.get("config") or {}
    filters = [each for name in config.get("filters", ()) for each in _filters(case, name)]
    names = [node["metadata"]["name"] for node in case.get("nodes", ())]
    if "filterStatus" in config:
        unresolvable = [name for name in names if config["filterStatus"].get(name) != "Unschedulable"]
        filters.append(Excluded(unresolvable))
    scheduler = Scheduler(
        cluster=translation.cluster_of(case),
        filters=[*filters, Failing()],
        scorers=[(Indifferent(), 1)],
        preemption=Preemption(),
        running_tasks=translation.running_tasks_of(case),
        budgets=translation.budgets_of(case),
    )
    assert scheduler.preemptor is not None
    return scheduler.preemptor


def _preempt_candidates(case: Json) -> str | None:
    candidates = _preemptor(case).candidates(_workload(case), NOW)
    found = {
        candidate.node_name: (_names(case, candidate.victims), candidate.cost.violations) for candidate in candidates
    }
    wanted = {
        candidate["node"]: (sorted(candidate["victims"]), candidate["numPDBViolations"])
        for candidate in case["expect"]["candidates"]
    }
    return _same(found, wanted)


def _preempt_pick(case: Json) -> str | None:
    workload, expect = _workload(case), case["expect"]
    decision = _preemptor(case).plan(workload, workload.tasks, NOW)
    if decision is None:
        return f"nobody has to leave instead of {expect['nominatedAnyOf']}" if expect["nominatedAnyOf"] else None
    if decision.placements[0].node_name not in expect["nominatedAnyOf"]:
        return f"{decision.placements[0].node_name} instead of {expect['nominatedAnyOf']}"
    victims = _names(case, decision.victims)
    return _same(victims, sorted(expect["victims"])) if "victims" in expect else None


def _preempt_eligible(case: Json) -> str | None:
    return _same(_preemptor(case).may_preempt(_workload(case)), case["expect"]["eligible"])


def _names(case: Json, victims: Sequence[Victim]) -> list[str]:
    names = {translation.task_id(pod): pod["metadata"]["name"] for pod in case.get("pods", ())}
    return sorted(names[victim.task_id] for victim in victims)


def _requests(case: Json) -> str | None:
    config = case.get("config") or {}
    with_overhead = not config.get("excludeOverhead", False)
    with_task_level = not config.get("skipPodLevelResources", False)
    template = translation.template_of(case.get("pod", {}))
    if case["op"] == "requests":
        unasked = translation.amounts_of(config.get("nonMissingContainerRequests", {}))
        found = requests_of(template, unasked=unasked, with_overhead=with_overhead, with_task_level=with_task_level)
    else:
        found = limits_of(template, with_overhead=with_overhead, with_task_level=with_task_level)
    wanted = translation.amounts_of(case["expect"][case["op"]])
    return None if found == wanted else f"{found} instead of {wanted}"


def _requests_nonzero(case: Json) -> str | None:
    scored = translation.scoring_requests_of(translation.template_of(case.get("pod", {})))
    found = {"cpu_milli": scored["cpu"], "memory": scored["memory"]}
    wanted = case["expect"]["requests"]
    return None if found == {**found, **wanted} else f"{found} instead of {wanted}"


def _qos(case: Json) -> str | None:
    found = quality_of(translation.template_of(case.get("pod", {}))).value
    return None if found == case["expect"]["qos"] else f"{found} instead of {case['expect']['qos']}"


def _tolerates(case: Json) -> str | None:
    given = case["input"]
    tolerated = translation.toleration_of(given["toleration"]).tolerates(translation.taint_of(given["taint"]))
    return _same(tolerated, case["expect"]["tolerated"])


def _tolerates_all(case: Json) -> str | None:
    given = case["input"]
    taints = [translation.taint_of(taint) for taint in given.get("taints") or ()]
    tolerations = [translation.toleration_of(toleration) for toleration in given.get("tolerations") or ()]
    left = untolerated(taints, tolerations, [taint.effect for taint in taints])
    return _same(not left, case["expect"]["tolerated"])


def _selector_match(case: Json) -> str | None:
    node = translation.node_of(case["input"].get("node") or {})
    terms = translation.node_terms_of(case["input"].get("nodeSelector") or {})
    matched = any(term.matches(node.labels, node.name) for term in terms)
    wrong = not matched and any(term.problem for term in terms)
    if case["expect"].get("error") or wrong:
        return _same(wrong, bool(case["expect"].get("error")))
    return _same(matched, case["expect"]["match"])


def _preferred_sum(case: Json) -> str | None:
    wishes = translation.preferred_nodes_of(
        {"preferredDuringSchedulingIgnoredDuringExecution": case["input"].get("preferred") or ()}
    )
    wrong = any(wish.weight and wish.term.problem for wish in wishes)
    if case["expect"].get("error") or wrong:
        return _same(wrong, bool(case["expect"].get("error")))
    cluster = Cluster([translation.node_of(case["input"].get("node") or {})])
    return _same(int(preferred_sum(wishes, cluster, cluster.rows)[0]), case["expect"]["sum"])


def _quantity(case: Json) -> str | None:
    text, expect = case["input"]["text"], case["expect"]
    if case["op"] == "quantity-canonical":
        return _same(canonical(text), expect["text"])
    nano = parse_quantity(text) * Fraction(10**9)
    if expect.get("error"):
        return "invalid input was accepted"
    return _same(str(ceil(nano) if nano > 0 else floor(nano)), str(expect["value_nano"]))


def _gpu_fragment(case: Json) -> str | None:
    given, expect = case["input"], case["expect"]
    cluster = Cluster([translation.gpu_node_of(given["node"])])
    typical, weights_in_one = translation.typical_of(given["typical_pods"])
    cluster.set_typical_requests("default", typical)
    found = int(fragment(cluster.devices.typical["default"], cluster, cluster.rows)[0]) / weights_in_one
    difference = abs(found - expect["frag_gpu_milli"])
    return None if difference <= expect["tolerance"] else f"{found} instead of {expect['frag_gpu_milli']}"


def _gpu_packing(case: Json) -> str | None:
    node, pod = case["input"]["node"], case["input"]["pod"]
    free = node["gpu_milli_left"]
    chosen = tightest(free, [pod["gpu_milli"]] * pod["num_gpu"])
    if chosen is None:
        return "it does not fit"
    return _same(packing_points(free, [WHOLE] * len(free), chosen), case["expect"]["score"])


def _requeue(case: Json) -> str | None:
    cluster = translation.cluster_of(case)
    workload = _workload(case)
    change = translation.change_of(case)
    worth = change is not None and worth_trying(_filters(case), shape_of(workload, cluster), cluster, change)
    return _same(worth, case["expect"]["requeue"])


def _less(case: Json) -> str | None:
    # Among equals the ids decide: one is before the other only if that holds for both orders of the ids.
    firsts = []
    for ids in ((1, 2), (2, 1)):
        a, b = (
            Workload(
                id=UUID(int=number),
                priority=given["priority"],
                created_at=LONG_AGO + timedelta(seconds=given["queued_at_s"]),
            )
            for number, given in zip(ids, (case["input"]["a"], case["input"]["b"]), strict=True)
        )
        firsts.append(ordered(FifoSequencer(), [a, b], OrderingContext())[0] is a)
    return _same(all(firsts), case["expect"]["a_before_b"])


def _normalize(case: Json) -> str | None:
    given = case["input"]
    raw = np.array(given["scores"], dtype=np.int64)
    return _same(by_largest(raw, reverse=given["reverse"]).tolist(), case["expect"]["scores"])


def _preenqueue(case: Json) -> str | None:
    return _same(not _workload(case).gates, case["expect"]["may_enqueue"])


def _same(found: object, wanted: object) -> str | None:
    return None if found == wanted else f"{found} instead of {wanted}"


_OPERATIONS: Mapping[str, Callable[[Json], str | None]] = {
    "filter": _filter,
    "score": _score,
    "schedule": _schedule,
    "preempt-candidates": _preempt_candidates,
    "preempt-pick": _preempt_pick,
    "preempt-eligible": _preempt_eligible,
    "requests": _requests,
    "limits": _requests,
    "requests-nonzero": _requests_nonzero,
    "qos": _qos,
    "tolerates": _tolerates,
    "tolerates-all": _tolerates_all,
    "selector-match": _selector_match,
    "preferred-sum": _preferred_sum,
    "gpu-fragment": _gpu_fragment,
    "gpu-packing-score": _gpu_packing,
    "requeue": _requeue,
    "less": _less,
    "normalize": _normalize,
    "preenqueue": _preenqueue,
    "quantity-parse": _quantity,
    "quantity-canonical": _quantity,
}
