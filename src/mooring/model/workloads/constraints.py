"""Placement constraints of a task, with Kubernetes' meaning where Kubernetes has them.

A namespace there is a project here. Everything is frozen and hashable: equal constraints make equal shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from mooring.model.errors import InvalidInput
from mooring.model.labels import Labels, Operator, Requirement, Selector, check_selector, key_problem, value_problem
from mooring.model.resources.devices import DeviceDemand

NODE_NAME_FIELD = "metadata.name"
OWN_TAINTS = "mooring/"
"""The prefix of the keys of taints that Mooring sets."""


class Effect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: Effect = Effect.NO_SCHEDULE

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """An empty key with `exists` tolerates everything; no effect means all effects."""

    key: str = ""
    exists: bool = False
    value: str = ""
    effect: Effect | None = None
    seconds: int | None = None
    """The time that a running task tolerates a NoExecute taint; None: indefinitely."""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect is not None and self.effect is not taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.exists or self.value == taint.value


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """All requirements on the node's labels and fields (`metadata.name`) hold; a term without any matches nothing."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Labels, name: str) -> bool:
        if self.problem is not None or not (self.labels or self.fields):
            return False
        fields = {NODE_NAME_FIELD: name}
        return all(r.matches(labels) for r in self.labels) and all(r.matches(fields) for r in self.fields)

    @property
    def problem(self) -> str | None:
        """The problem, if it is invalid; an invalid one matches no node."""
        for requirement in self.labels:
            if requirement.problem is not None:
                return requirement.problem
        for requirement in self.fields:
            if requirement.key != NODE_NAME_FIELD:
                return f"{requirement.key!r} is not a field of a node; there is {NODE_NAME_FIELD}"
            if requirement.operator not in (Operator.IN, Operator.NOT_IN) or len(requirement.values) != 1:
                return f"{requirement.key}: fields support only In and NotIn with one value"
        return None


@dataclass(frozen=True, slots=True)
class PreferredNodes:
    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class TaskTerm:
    """Tasks that match, seen from a topology domain. No selector matches nothing; no projects mean the task's own.

    `project_selector` adds the projects whose labels it matches; an empty one adds all projects.
    """

    topology_key: str
    selector: Selector | None
    projects: frozenset[str] = frozenset()
    project_selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class PreferredTasks:
    """A negative weight prefers to be apart."""

    weight: int
    term: TaskTerm


@dataclass(frozen=True, slots=True)
class Spread:
    topology_key: str
    max_skew: int
    selector: Selector | None
    hard: bool = True
    """DoNotSchedule; otherwise ScheduleAnyway."""
    min_domains: int | None = None
    honor_node_affinity: bool = True
    honor_node_taints: bool = False
    match_label_keys: tuple[str, ...] = ()


PROTOCOLS = ("TCP", "UDP", "SCTP")


@dataclass(frozen=True, slots=True)
class HostPort:
    port: int
    protocol: str = "TCP"
    address: str = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class MachineImage:
    """A machine image by name and a pattern of versions: globs, or comparisons such as `>=2.4,<3`."""

    name: str
    version: str = "*"


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """A volume on one node. Without a node, the first task that mounts it decides."""

    name: str
    node_id: UUID | None = None
    node: str | None = None
    """Its name; without an id, the node was removed."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """`node_terms`: any of them must hold; None demands nothing, an empty tuple matches no node."""

    labels: tuple[tuple[str, str], ...] = ()
    project: str = "default"
    node_name: str | None = None
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeTerm, ...] | None = None
    preferred_nodes: tuple[PreferredNodes, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[TaskTerm, ...] = ()
    anti_affinity: tuple[TaskTerm, ...] = ()
    preferred_tasks: tuple[PreferredTasks, ...] = ()
    spread: tuple[Spread, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    ports_wanted: int = 0
    """The number of node ports that it needs; the lowest free ones are assigned."""
    images: tuple[str, ...] = ()
    """Container images, for preferring nodes that have them."""
    machine_image: MachineImage | None = None
    licence: str | None = None
    volume_zones: tuple[tuple[str, frozenset[str]], ...] = ()
    """By label key, the values that its volumes allow."""
    volumes: tuple[MountedVolume, ...] = ()
    volume_bytes: int = 0
    """Storage beyond the request: volumes that are created on the node with the task."""
    devices: tuple[DeviceDemand, ...] = ()
    """Requirements for the devices of its slots."""
    designated: frozenset[str] = frozenset()
    """Node names; required if `designated_strictly`, otherwise preferred regardless of score."""
    designated_strictly: bool = False
    failed_on: frozenset[UUID] = frozenset()
    """Nodes where this workload has failed; they come last."""


def check_constraints(constraints: Constraints) -> None:
    """Raise InvalidInput for the first invalid constraint."""
    for key, value in (*constraints.labels, *constraints.node_selector):
        problem = key_problem(key) or value_problem(value)
        if problem is not None:
            raise InvalidInput(problem, code="invalid-label")
    for toleration in constraints.tolerations:
        if not toleration.key and not toleration.exists:
            raise InvalidInput("a toleration without a key must have the operator Exists", code="invalid-constraint")
        if toleration.seconds is not None and toleration.effect is not Effect.NO_EXECUTE:
            raise InvalidInput("seconds of a toleration require the effect NoExecute", code="invalid-constraint")
    for node_term in constraints.node_terms or ():
        _check_term(node_term)
    for preferred in constraints.preferred_nodes:
        if preferred.weight:
            _check_term(preferred.term)
    check_task_terms(constraints)
    wished = tuple(wish.term for wish in constraints.preferred_tasks)
    for term in (*constraints.affinity, *constraints.anti_affinity, *wished):
        if not term.topology_key:
            raise InvalidInput("affinity: a topology key is needed", code="invalid-constraint")
    check_spread(constraints)
    for port in constraints.host_ports:
        if not 1 <= port.port <= 65535:
            raise InvalidInput(f"{port.port} is not a port", code="invalid-constraint")
    if constraints.ports_wanted < 0:
        raise InvalidInput("ports: the number cannot be negative", code="invalid-constraint")


def check_task_terms(constraints: Constraints) -> None:
    """Raise InvalidInput for an invalid selector of an affinity term."""
    for what, terms in (
        ("affinity", constraints.affinity),
        ("anti-affinity", constraints.anti_affinity),
        ("preferred tasks", tuple(wish.term for wish in constraints.preferred_tasks)),
    ):
        for term in terms:
            check_selector(term.selector, what=what)
            check_selector(term.project_selector, what=f"{what}, project selector")


def check_spread(constraints: Constraints) -> None:
    """Raise InvalidInput for an invalid spread constraint."""
    for spread in constraints.spread:
        if spread.max_skew < 1 or (spread.min_domains is not None and spread.min_domains < 1):
            raise InvalidInput("spread: max_skew and min_domains must be at least 1", code="invalid-constraint")
        check_selector(spread.selector, what="spread")


def _check_term(term: NodeTerm) -> None:
    if term.problem is not None:
        raise InvalidInput(f"node affinity: {term.problem}", code="invalid-selector")
