"""Translation of requested placement constraints into those of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mooring.model.errors import InvalidInput
from mooring.model.labels import Operator, Requirement, Selector, equal_to
from mooring.model.resources.devices import DeviceDemand
from mooring.model.resources.slots import slot_type
from mooring.model.workloads.constraints import (
    OWN_TAINTS,
    Constraints,
    Effect,
    HostPort,
    MachineImage,
    NodeTerm,
    PreferredNodes,
    PreferredTasks,
    Spread,
    Taint,
    TaskTerm,
    Toleration,
)
from mooring.wire.workloads.placement import (
    DevicesRequest,
    MachineImageRequest,
    PlacementRequest,
    RequirementRequest,
    SpreadRequest,
    TaintRequest,
    TasksRequest,
)

OWN_LABEL = "workload"


def constraints_of(
    asked: PlacementRequest | None, *, name: str, labels: Mapping[str, str], project: str, images: Sequence[str]
) -> Constraints:
    """Return the constraints. `labels` are those of the workload, and the default selector of spread constraints."""
    if asked is None:
        return Constraints(labels=tuple(sorted(labels.items())), project=project, images=tuple(images))
    if asked.nodes_strictly and not asked.nodes:
        raise InvalidInput("nodes_strictly needs nodes: without any, no node is allowed", code="invalid-constraint")
    if not labels and any(not (term.labels or term.match) for term in asked.spread):
        # Spread over its own tasks, which then need a label to be selected by.
        labels = {OWN_LABEL: name}
    return Constraints(
        labels=tuple(sorted(labels.items())),
        project=project,
        images=tuple(images),
        node_selector=tuple(sorted(asked.node_selector.items())),
        node_terms=tuple(NodeTerm(_requirements(term.match)) for term in asked.node_affinity) or None,
        preferred_nodes=tuple(
            PreferredNodes(p.weight, NodeTerm(_requirements(p.match))) for p in asked.preferred_nodes
        ),
        tolerations=tuple(
            Toleration(t.key, t.operator == "Exists", t.value, Effect(t.effect) if t.effect else None, t.seconds)
            for t in asked.tolerations
        ),
        affinity=tuple(_term(term) for term in asked.affinity),
        anti_affinity=tuple(_term(term) for term in asked.anti_affinity),
        preferred_tasks=tuple(PreferredTasks(term.weight, _term(term)) for term in asked.preferred_tasks),
        spread=tuple(_spread(term, labels) for term in asked.spread),
        host_ports=tuple(HostPort(p.port, p.protocol) for p in asked.host_ports),
        ports_wanted=asked.ports,
        devices=tuple(_demand(devices) for devices in asked.devices),
        licence=asked.licence,
        machine_image=_machine_image(asked.machine_image),
        volume_zones=tuple((key, frozenset(zones)) for key, zones in sorted(asked.volume_zones.items())),
        designated=frozenset(asked.nodes),
        designated_strictly=asked.nodes_strictly,
    )


def check_own_taints(keys: Iterable[str]) -> None:
    """Raise InvalidInput for a taint that only Mooring sets and removes."""
    for key in keys:
        if key.startswith(OWN_TAINTS):
            raise InvalidInput(
                f"taints such as {key!r} are reserved for Mooring; `mooring resume NODE` removes them", code="own-taint"
            )


def taints_of(asked: Sequence[TaintRequest]) -> tuple[Taint, ...]:
    check_own_taints(taint.key for taint in asked)
    return tuple(Taint(taint.key, taint.value, Effect(taint.effect)) for taint in asked)


def _demand(asked: DevicesRequest) -> DeviceDemand:
    return DeviceDemand(asked.slot, frozenset(asked.models), slot_type("memory").parse(asked.memory))


def _machine_image(asked: MachineImageRequest | None) -> MachineImage | None:
    return None if asked is None else MachineImage(asked.name, asked.version)


def _requirements(asked: Sequence[RequirementRequest]) -> tuple[Requirement, ...]:
    return tuple(Requirement(r.key, Operator(r.operator), tuple(r.values)) for r in asked)


def _selector(asked: TasksRequest) -> Selector:
    return Selector(equal_to(asked.labels).requirements + _requirements(asked.match))


def _term(asked: TasksRequest) -> TaskTerm:
    return TaskTerm(asked.topology_key, _selector(asked))


def _spread(asked: SpreadRequest, labels: Mapping[str, str]) -> Spread:
    selector = _selector(asked) if asked.labels or asked.match else equal_to(labels)
    return Spread(asked.topology_key, asked.max_skew, selector, hard=asked.hard, min_domains=asked.min_domains)
