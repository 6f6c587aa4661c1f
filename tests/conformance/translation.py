"""Kubernetes objects in their JSON form, as the core's nouns. A namespace there is a project here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import ceil
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from mooring.model.errors import InvalidInput
from mooring.model.labels import Operator, Requirement, Selector, equal_to
from mooring.model.nodes.node import Node
from mooring.model.policy.preemption import Budgets, RunningTask
from mooring.model.resources.devices import WHOLE, Device
from mooring.model.resources.quantity import INT64_MAX, parse_quantity
from mooring.model.resources.slots import UNITS_PER_ONE, slot_type, total
from mooring.model.resources.task_resources import UNASKED, requests_of
from mooring.model.workloads.constraints import (
    Constraints,
    Effect,
    HostPort,
    NodeTerm,
    PreferredNodes,
    PreferredTasks,
    Spread,
    Taint,
    TaskTerm,
    Toleration,
)
from mooring.model.workloads.containers import Container, TaskTemplate
from mooring.model.workloads.workload import NOBODY, Workload
from mooring.scheduling import Cluster
from mooring.scheduling.cluster.typical_requests import TypicalRequest
from mooring.scheduling.queue.requeue_hints import (
    Change,
    Described,
    NodeChange,
    OwnChange,
    TaskChange,
)

Json = Mapping[str, Any]
DEFAULT_PROJECT = "default"


def cluster_of(case: Json) -> Cluster:
    """The nodes of a case with the pods that run on them, and the labels of the namespaces."""
    running: dict[str, list[Json]] = {}
    for pod in case.get("pods", ()):
        running.setdefault(pod.get("spec", {}).get("nodeName", ""), []).append(pod)
    cluster = Cluster()
    for namespace in case.get("namespaces", ()):
        cluster.label_project(namespace["metadata"]["name"], namespace["metadata"].get("labels", {}))
    for described in (*case.get("nodes", ()), *case.get("infeasibleNodes", ())):
        pods = running.get(described["metadata"]["name"], [])
        node = node_of(described, pods)
        cluster.upsert(node)
        staying = [(constraints_of(pod), 1) for pod in pods if not _leaves(pod)]
        leaving = [(constraints_of(pod), 1) for pod in pods if _leaves(pod)]
        cluster.set_tasks(node.id, staying, leaving=leaving)
    return cluster


def node_of(described: Json, pods: Sequence[Json] = ()) -> Node:
    metadata, spec, status = described.get("metadata", {}), described.get("spec", {}), described.get("status", {})
    written = status.get("allocatable", status.get("capacity", {}))
    templates = [template_of(pod) for pod in pods]
    used = total(requests_of(template) for template in templates)
    scored = total(scoring_requests_of(template) for template in templates)
    return Node(
        name=metadata.get("name") or "unnamed",
        labels=metadata.get("labels", {}),
        schedulable=not spec.get("unschedulable", False),
        taints=tuple(taint_of(taint) for taint in spec.get("taints", ()) if taint.get("effect")),
        images={name: image["sizeBytes"] for image in status.get("images", ()) for name in image["names"]},
        allocatable=amounts_of({name: value for name, value in written.items() if name != "pods"}),
        max_tasks=int(written.get("pods", 0)),
        used=used,
        uncounted={slot: scored.get(slot, 0) - used.get(slot, 0) for slot in ("cpu", "memory")},
        tasks=len(pods),
    )


def scoring_requests_of(template: TaskTemplate) -> dict[str, int]:
    """Return CPU and memory of a task for scoring, with defaults for containers that request none."""
    whole = requests_of(template, unasked=UNASKED)
    return {name: whole.get(name, 0) for name in UNASKED}


def workload_of(pod: Json, services: Sequence[Json] = (), defaults: Sequence[Json] = ()) -> Workload:
    template = template_of(pod)
    return Workload(
        name=pod.get("metadata", {}).get("name") or "incoming",
        request={name: units for name, units in requests_of(template).items() if units},
        scoring_request=scoring_requests_of(template),
        constraints=constraints_of(pod, services, defaults),
        gates=tuple(gate["name"] for gate in pod.get("spec", {}).get("schedulingGates", ())),
        priority=_priority(pod),
        preempts=pod.get("spec", {}).get("preemptionPolicy") != "Never",
    )


def change_of(case: Json) -> Change | None:
    """The change of a `requeue` case; None for one of a pod that has no node and is not the one that waits."""
    given = case["input"]
    old, new = given["old"], given["new"]
    if given["kind"] == "node":
        return NodeChange(*(None if described is None else node_of(described) for described in (old, new)))
    if old is not None and new is not None and _is_same(new, case["pod"]):
        return OwnChange(_described(old), _described(new))
    before, after = (
        None if pod is None or not pod.get("spec", {}).get("nodeName") else _described(pod) for pod in (old, new)
    )
    return None if before is None and after is None else TaskChange(before, after)


def _is_same(pod: Json, waiting: Json) -> bool:
    one, other = pod.get("metadata", {}), waiting.get("metadata", {})
    return (one.get("uid"), one.get("name")) == (other.get("uid"), other.get("name")) or (
        one.get("uid") is not None and one.get("uid") == other.get("uid")
    )


def _described(pod: Json) -> Described:
    return Described(constraints_of(pod), requests_of(template_of(pod)))


def running_tasks_of(case: Json) -> list[RunningTask]:
    """The running pods as preemption asks about them. A disruption budget there is a workload with a budget here."""
    return [
        RunningTask(
            task_id=task_id(pod),
            workload_id=_budgeted(pod, case),
            node_id=node_of({"metadata": {"name": pod["spec"]["nodeName"]}}).id,
            priority=_priority(pod),
            request=requests_of(template_of(pod)),
            constraints=constraints_of(pod),
            user_id=NOBODY,
            project_id=NOBODY,
            domain_id=NOBODY,
            started_at=_started_at(pod),
            leaving_for=_leaves_for(pod, case),
        )
        for pod in case.get("pods", ())
    ]


def budgets_of(case: Json) -> Budgets:
    budgets = enumerate(case.get("pdbs", ()))
    return Budgets({_budget(number): pdb.get("status", {}).get("disruptionsAllowed", 0) for number, pdb in budgets})


def task_id(pod: Json) -> UUID:
    metadata = pod["metadata"]
    return uuid5(NAMESPACE_OID, f"pod:{metadata.get('namespace') or DEFAULT_PROJECT}:{metadata['name']}")


def template_of(pod: Json) -> TaskTemplate:
    spec = pod.get("spec", {})
    whole = spec.get("resources", {})
    return TaskTemplate(
        containers=tuple(_container(container) for container in spec.get("containers", ())),
        init_containers=tuple(_container(container) for container in spec.get("initContainers", ())),
        overhead=amounts_of(spec.get("overhead", {})),
        requests=amounts_of(whole.get("requests", {})),
        limits=amounts_of(whole.get("limits", {})),
    )


def amounts_of(written: Mapping[str, str]) -> dict[str, int]:
    """Whole base units; finer amounts are rounded up, as Kubernetes does."""
    return {name: units_of(name, value) for name, value in written.items() if name != "pods"}


def units_of(slot: str, written: str) -> int:
    return min(ceil(parse_quantity(str(written)) * UNITS_PER_ONE[slot_type(slot).kind]), INT64_MAX)


def constraints_of(pod: Json, services: Sequence[Json] = (), defaults: Sequence[Json] = ()) -> Constraints:
    metadata, spec = pod.get("metadata", {}), pod.get("spec", {})
    labels: Mapping[str, str] = metadata.get("labels", {})
    affinity = spec.get("affinity", {})
    nodes, near, apart = (affinity.get(kind, {}) for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity"))
    required = nodes.get("requiredDuringSchedulingIgnoredDuringExecution")
    spread = spec.get("topologySpreadConstraints") or default_spread(labels, services, defaults)
    initial = spec.get("initContainers", ())
    running = [*(c for c in initial if c.get("restartPolicy") == "Always"), *spec.get("containers", ())]
    return Constraints(
        labels=tuple(sorted(labels.items())),
        project=metadata.get("namespace") or DEFAULT_PROJECT,
        node_name=spec.get("nodeName"),
        node_selector=tuple(sorted(spec.get("nodeSelector", {}).items())),
        node_terms=None if required is None else node_terms_of(required),
        preferred_nodes=preferred_nodes_of(nodes),
        tolerations=tuple(toleration_of(toleration) for toleration in spec.get("tolerations", ())),
        affinity=_terms(near, labels),
        anti_affinity=_terms(apart, labels),
        preferred_tasks=(*_wishes(near, labels, 1), *_wishes(apart, labels, -1)),
        spread=tuple(spread_of(constraint) for constraint in spread),
        host_ports=tuple(
            HostPort(port["hostPort"], port.get("protocol") or "TCP", port.get("hostIP") or "0.0.0.0")
            for container in running
            for port in container.get("ports", ())
            if port.get("hostPort")
        ),
        images=tuple(container.get("image", "") for container in (*initial, *spec.get("containers", ()))),
    )


def default_spread(labels: Mapping[str, str], services: Sequence[Json], defaults: Sequence[Json]) -> list[Json]:
    """The constraints that a profile adds, for pods that a service selects."""
    selectors = [service.get("spec", {}).get("selector", {}) for service in services]
    chosen: dict[str, str] = {}
    for selector in selectors:
        if selector and selector.items() <= labels.items():
            chosen.update(selector)
    return [{**constraint, "labelSelector": {"matchLabels": chosen}} for constraint in defaults] if chosen else []


def node_terms_of(selector: Json) -> tuple[NodeTerm, ...]:
    return tuple(node_term_of(term) for term in selector.get("nodeSelectorTerms", ()))


def node_term_of(term: Json) -> NodeTerm:
    return NodeTerm(_requirements(term.get("matchExpressions", ())), _requirements(term.get("matchFields", ())))


def preferred_nodes_of(affinity: Json) -> tuple[PreferredNodes, ...]:
    wishes = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ())
    return tuple(PreferredNodes(wish.get("weight", 0), node_term_of(wish.get("preference", {}))) for wish in wishes)


def taint_of(taint: Json) -> Taint:
    return Taint(taint.get("key", ""), taint.get("value", ""), Effect(taint.get("effect") or "NoSchedule"))


def toleration_of(toleration: Json) -> Toleration:
    effect = toleration.get("effect")
    return Toleration(
        toleration.get("key", ""),
        toleration.get("operator") == "Exists",
        toleration.get("value", ""),
        Effect(effect) if effect else None,
    )


def spread_of(constraint: Json) -> Spread:
    return Spread(
        topology_key=constraint["topologyKey"],
        max_skew=constraint["maxSkew"],
        selector=selector_of(constraint.get("labelSelector")),
        hard=constraint.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
        min_domains=constraint.get("minDomains"),
        honor_node_affinity=constraint.get("nodeAffinityPolicy", "Honor") == "Honor",
        honor_node_taints=constraint.get("nodeTaintsPolicy", "Ignore") == "Honor",
        match_label_keys=tuple(constraint.get("matchLabelKeys", ())),
    )


def selector_of(selector: Json | None) -> Selector | None:
    if selector is None:
        return None
    equal = equal_to(selector.get("matchLabels", {})).requirements
    return Selector((*equal, *_requirements(selector.get("matchExpressions", ()))))


def _priority(pod: Json) -> int:
    priority: int = pod.get("spec", {}).get("priority", 0)
    return priority


def _started_at(pod: Json) -> datetime | None:
    written = pod.get("status", {}).get("startTime")
    return None if written is None else datetime.fromisoformat(written)


def _budget(number: int) -> UUID:
    return uuid5(NAMESPACE_OID, f"budget:{number}")


def _budgeted(pod: Json, case: Json) -> UUID:
    """The budget that a pod counts for; one whose eviction was processed counts for none."""
    metadata = pod["metadata"]
    for number, pdb in enumerate(case.get("pdbs", ())):
        same = pdb.get("metadata", {}).get("namespace") == metadata.get("namespace")
        selector = selector_of(pdb.get("spec", {}).get("selector"))
        selected = selector is not None and selector.requirements and selector.matches(metadata.get("labels", {}))
        if same and selected and metadata["name"] not in pdb.get("status", {}).get("disruptedPods", {}):
            return _budget(number)
    return task_id(pod)


def _leaves_for(pod: Json, case: Json) -> UUID | None:
    """A pod that ends as the victim of a preemption leaves for the pod that was promised its node."""
    conditions = pod.get("status", {}).get("conditions", ())
    victim = any(
        condition.get("type") == "DisruptionTarget" and condition.get("reason") == "PreemptionByScheduler"
        for condition in conditions
    )
    promised = case.get("pod", {}).get("status", {}).get("nominatedNodeName") == pod["spec"]["nodeName"]
    return workload_of(case["pod"]).id if victim and promised and _leaves(pod) else None


def _requirements(expressions: Iterable[Json]) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(expression["key"], _operator(expression["operator"]), tuple(expression.get("values") or ()))
        for expression in expressions
    )


def _operator(text: str) -> Operator:
    try:
        return Operator(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is not an operator; there are {', '.join(Operator)}") from None


def _container(container: Json) -> Container:
    resources = container.get("resources", {})
    return Container(
        name=container.get("name", "main"),
        slots=amounts_of(resources.get("requests", {})),
        limits=amounts_of(resources.get("limits", {})),
        sidecar=container.get("restartPolicy") == "Always",
    )


def _terms(affinity: Json, labels: Mapping[str, str]) -> tuple[TaskTerm, ...]:
    return tuple(_term(term, labels) for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution", ()))


def _wishes(affinity: Json, labels: Mapping[str, str], sign: int) -> tuple[PreferredTasks, ...]:
    return tuple(
        PreferredTasks(sign * wish["weight"], _term(wish["podAffinityTerm"], labels))
        for wish in affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ())
    )


def _term(term: Json, labels: Mapping[str, str]) -> TaskTerm:
    """`matchLabelKeys` and `mismatchLabelKeys` become part of the selector, as the API server does it."""
    selector = selector_of(term.get("labelSelector"))
    if selector is not None:
        keys = (("matchLabelKeys", Operator.IN), ("mismatchLabelKeys", Operator.NOT_IN))
        own = [
            Requirement(key, operator, (labels[key],))
            for name, operator in keys
            for key in term.get(name, ())
            if key in labels
        ]
        selector = Selector((*selector.requirements, *own))
    return TaskTerm(
        topology_key=term.get("topologyKey", ""),
        selector=selector,
        projects=frozenset(term.get("namespaces", ())),
        project_selector=selector_of(term.get("namespaceSelector")),
    )


def _leaves(pod: Json) -> bool:
    return pod.get("metadata", {}).get("deletionTimestamp") is not None


def gpu_node_of(described: Json) -> Node:
    """A node of the experiments on fragmented GPUs: what is left of its processor and of each GPU."""
    devices = tuple(
        Device(index, model=described["gpu_model"], taken=WHOLE - left)
        for index, left in enumerate(described["gpu_milli_left"])
    )
    offered = {"cpu": described["cpu_milli_left"], "gpu": WHOLE * len(devices)}
    return Node(name="gpus", allocatable=offered, devices={"gpu": devices})


def typical_of(pods: Sequence[Json]) -> tuple[list[TypicalRequest], int]:
    """Typical requests with their popularity in whole numbers, and how many of these are a popularity of one."""
    one = 10_000
    typical = [
        TypicalRequest(
            {"cpu": pod["cpu_milli"], "gpu": pod["gpu_milli"] * pod["num_gpu"]},
            round(pod["weight"] * one),
            frozenset(filter(None, pod["gpu_spec"].split("|"))),
        )
        for pod in pods
    ]
    return typical, one
