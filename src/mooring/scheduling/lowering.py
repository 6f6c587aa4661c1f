"""Profiles and shapes in the kernels' terms: what is static, what is a share of resources, what counts tasks.

What has no such terms is left to the NumPy face, with the same decisions: `lower_profile` answers None for the profile,
and `LoweredProfile.accepts` no for a shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mooring.model.constraints import HostPort, PreferredTasks, TaskTerm
from mooring.model.decisions import SCORE_ONE
from mooring.model.devices import WHOLE
from mooring.model.labels import equal_to
from mooring.scheduling import kernels
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import NODE_NAME, Cluster
from mooring.scheduling.device_requests import DeviceRequest, device_requests
from mooring.scheduling.evaluation import DESIGNATED, tiers
from mooring.scheduling.filters.devices import DevicesFilter
from mooring.scheduling.filters.host_ports import HostPortsFilter
from mooring.scheduling.filters.licence import LicenceFilter
from mooring.scheduling.filters.resources import ResourcesFilter
from mooring.scheduling.filters.task_affinity import TaskAffinityFilter
from mooring.scheduling.filters.task_anti_affinity import TaskAntiAffinityFilter
from mooring.scheduling.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.filters.topology_spread import TopologySpreadFilter
from mooring.scheduling.normalised import KUBERNETES, Normalised, normalised_of
from mooring.scheduling.placed import Counts, Matcher, TermKind, excludes, matcher_of, matcher_of_all
from mooring.scheduling.plugins import Filter, Scorer, ask_filter, ask_scorer, is_concerned
from mooring.scheduling.profiles import Profile
from mooring.scheduling.scorers.balanced import BalancedScorer
from mooring.scheduling.scorers.fragmentation import SLOT, FragmentationScorer, typical_of
from mooring.scheduling.scorers.most_allocated import MostAllocatedScorer
from mooring.scheduling.scorers.resources import ResourcesScorer
from mooring.scheduling.scorers.spreading import SpreadingScorer
from mooring.scheduling.scorers.task_affinity import TaskAffinityScorer
from mooring.scheduling.scorers.topology_spread import TopologySpreadScorer
from mooring.scheduling.scorers.unused_capability import UnusedCapabilityScorer
from mooring.scheduling.shapes import Shape
from mooring.scheduling.spreading import counts_itself, labelled_for_all, matcher_of_spread, taking_part

DEVICE_SLOT = SLOT
"""The slot of devices that the kernels know."""

StaticKey: TypeAlias = tuple[object, ...]


@runtime_checkable
class Compiled(Protocol):
    """A scorer that depends on the row and brings the same formula for the kernels, made by `kernels.row_score`."""

    @property
    def kernel(self) -> kernels.RowScore: ...


@dataclass(frozen=True, slots=True)
class Matching:
    """Counts the tasks that a matcher means."""

    matcher: Matcher

    concerns_others = False

    def counts(self, cluster: Cluster) -> Counts | None:
        return cluster.placed.counts(self.matcher)


@dataclass(frozen=True, slots=True)
class Carrying:
    """Counts the tasks of a project that carry a term, by which they concern others."""

    kind: TermKind
    term: TaskTerm | PreferredTasks
    project: str

    concerns_others = True

    def counts(self, cluster: Cluster) -> Counts | None:
        for term, project, counts in cluster.placed.owners(self.kind):
            if term == self.term and project == self.project:
                return counts
        return None


@dataclass(frozen=True, slots=True)
class Using:
    """Counts the ports in use that exclude one."""

    port: HostPort

    concerns_others = False

    def counts(self, cluster: Cluster) -> Counts | None:
        return cluster.placed.conflicts(self.port)


Source: TypeAlias = Matching | Carrying | Using


@dataclass(frozen=True, slots=True)
class Label:
    """What a task shows to others once it is placed."""

    project: str
    labels: tuple[tuple[str, str], ...]
    anti_affinity: tuple[TaskTerm, ...]
    host_ports: tuple[HostPort, ...]

    @classmethod
    def of(cls, shape: Shape) -> Label:
        constraints = shape.constraints
        return cls(constraints.project, constraints.labels, constraints.anti_affinity, constraints.host_ports)


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One thing that a shape asks of the counts in a domain."""

    kind: int
    source: Source
    key: str
    mask: Mask | None = None
    """The rows that count; None for all."""
    limit: int = 0
    counts_itself: int = 0
    min_domains: int = 0
    base: int = 0
    weight: int = 0


@dataclass(frozen=True, slots=True)
class LoweredProfile:
    static_filters: tuple[Filter, ...]
    static_scorers: tuple[tuple[Scorer, int], ...]
    weight: int
    """Of all scorers together."""
    counted_scorers: tuple[tuple[Scorer, int], ...] = ()
    always: int = 0
    """The weight of the scorers that the kernels have a formula for; they concern every shape."""
    least: int = 0
    least_shares: tuple[int, int] = (1, 1)
    most: int = 0
    most_shares: tuple[int, int] = (1, 1)
    balanced: int = 0
    unused: int = 0
    fragmentation: int = 0
    filters: frozenset[type] = frozenset()
    """The filters that are asked by counting."""
    shape_is_static: bool = False
    """A static plugin of the user may look at everything in a shape; the built-in ones look at what is named below."""
    reads_load: bool = False

    normalised: Normalised | None = None
    plugin: int = 0
    """The weight of a scorer that brings its own formula for the kernels."""
    kernel: kernels.RowScore = kernels.NO_PLUGIN

    def accepts(self, shape: Shape, cluster: Cluster) -> bool:
        constraints = shape.constraints
        if constraints.ports_wanted or (self.normalised is not None and not self.normalised.accepts(shape, cluster)):
            return False
        if constraints.licence is not None and LicenceFilter in self.filters:
            return False
        return self._accepts_devices(shape, cluster)

    def _accepts_devices(self, shape: Shape, cluster: Cluster) -> bool:
        """The kernels know one slot of devices, asked for as whole ones or as a share of one, alike on each node."""
        column = cluster.devices.columns.get(DEVICE_SLOT)
        unequal = column is not None and bool(column.unequal)
        if self.fragmentation and unequal and any(typical.models for typical in typical_of(shape.pool, cluster)):
            return False
        requests = self.device_requests(shape, cluster)
        return not requests or (
            len(requests) == 1
            and requests[0].column is column
            and column.free.shape[1] <= kernels.MOST_DEVICES
            and not column.odd
            and not (requests[0].demand is not None and unequal)
            and requests[0].times == 1
            and requests[0].valid
            and not requests[0].fragmentation
            and (requests[0].amount < WHOLE or requests[0].amount % WHOLE == 0)
        )

    def device_requests(self, shape: Shape, cluster: Cluster) -> list[DeviceRequest]:
        """What the shape asks of devices, if the profile looks at them."""
        return device_requests(shape, cluster) if DevicesFilter in self.filters else []

    def weight_of(self, shape: Shape, cluster: Cluster) -> int:
        """The weights of the scorers that concern a shape."""
        asked = (*self.static_scorers, *self.counted_scorers)
        normalised = 0
        if self.normalised is not None:
            normalised = self.normalised.left + self.normalised.even + sum(self.normalised.weights(shape, cluster))
        return (
            normalised + self.always + sum(weight for scorer, weight in asked if is_concerned(scorer, shape, cluster))
        )

    def static_key(self, shape: Shape, cluster: Cluster) -> StaticKey:
        """What the static answers depend on."""
        constraints = shape.constraints
        amount = dict(shape.request).get(DEVICE_SLOT) if constraints.devices else None
        return (
            tuple(is_concerned(scorer, shape, cluster) for scorer, _ in self.static_scorers),
            shape.pool,
            shape.runtime,
            shape.architecture,
            shape.region,
            shape.owner,
            shape if self.shape_is_static else None,
            constraints.node_name,
            constraints.node_selector,
            constraints.node_terms,
            constraints.preferred_nodes,
            constraints.tolerations,
            constraints.images,
            constraints.machine_image,
            constraints.volume_zones,
            constraints.volumes,
            constraints.devices,
            amount,
            constraints.designated,
            constraints.designated_strictly,
            constraints.failed_on,
        )

    def static_keys(self, shape: Shape, cluster: Cluster, rows: Rows, steps: tuple[int, int]) -> NDArray[np.int64]:
        """Tier and weighted sum of the static scores per row; -1 where it may not run."""
        keys = np.full(len(rows), -1, dtype=np.int64)
        at = np.flatnonzero(cluster.pool[rows] == cluster.pools.code(shape.pool))
        for plugin in self.static_filters:
            if not len(at):
                return keys
            at = at[ask_filter(plugin, shape, cluster, rows[at])]
        if shape.constraints.devices:
            for request in self.device_requests(shape, cluster):
                at = at[request.suitable(rows[at])]
        if len(at):
            passing = rows[at]
            weighted = np.zeros(len(at), dtype=np.int64)
            for scorer, weight in self.static_scorers:
                if is_concerned(scorer, shape, cluster):
                    weighted += weight * ask_scorer(scorer, shape, cluster, passing)
            keys[at] = weighted + _tiers(shape, cluster, passing, steps)
        return keys

    def terms(self, shape: Shape, cluster: Cluster, sources: Iterable[Source]) -> list[Term]:
        """What the shape asks of the counts of tasks."""
        terms: list[Term] = []
        if TopologySpreadFilter in self.filters:
            terms.extend(_spread(shape, cluster))
        if TaskAffinityFilter in self.filters:
            terms.extend(_affinity(shape, cluster))
        if TaskAntiAffinityFilter in self.filters:
            terms.extend(_apart(shape, cluster, sources))
        if HostPortsFilter in self.filters:
            terms.extend(Term(kernels.APART, Using(port), NODE_NAME) for port in shape.constraints.host_ports)
        for scorer, weight in self.counted_scorers:
            if isinstance(scorer, TopologySpreadScorer):
                terms.extend(_soft_spread(shape, cluster, weight))
            elif isinstance(scorer, TaskAffinityScorer):
                terms.extend(_preferred(shape, weight))
            elif isinstance(scorer, SpreadingScorer):
                terms.extend(_alike(scorer, shape, cluster, weight))
        return terms


_COUNTED = (TopologySpreadFilter, TaskAffinityFilter, TaskAntiAffinityFilter, HostPortsFilter, LicenceFilter)
_COUNTED_SCORERS = (TopologySpreadScorer, TaskAffinityScorer, SpreadingScorer)


def lower_profile(profile: Profile) -> LoweredProfile | None:
    """None if a plugin cannot be put into the kernels' terms, or if the highest key does not decide."""
    if profile.selector is not None:
        return None
    normalised = normalised_of(profile)
    kubernetes = () if normalised is None else KUBERNETES
    static_filters: list[Filter] = []
    static_scorers: list[tuple[Scorer, int]] = []
    counted_scorers: list[tuple[Scorer, int]] = []
    counted: set[type] = set()
    lowered = LoweredProfile((), (), sum(weight for _, weight in profile.scorers))
    for plugin in profile.filters:
        kind = type(plugin)
        if kind in _COUNTED or kind in (ResourcesFilter, DevicesFilter, TasksPerNodeFilter):
            counted.add(kind)
        elif plugin.depends_on == "static":
            static_filters.append(plugin)
        else:
            return None
    for scorer, weight in profile.scorers:
        if isinstance(scorer, kubernetes):
            continue
        if isinstance(scorer, ResourcesScorer):
            lowered = replace(lowered, least=weight, least_shares=scorer.weights, always=lowered.always + weight)
        elif isinstance(scorer, MostAllocatedScorer) and scorer.target_percent == 100:
            lowered = replace(lowered, most=weight, most_shares=scorer.weights, always=lowered.always + weight)
        elif isinstance(scorer, BalancedScorer):
            lowered = replace(lowered, balanced=weight, always=lowered.always + weight)
        elif isinstance(scorer, UnusedCapabilityScorer):
            lowered = replace(lowered, unused=weight, always=lowered.always + weight)
        elif isinstance(scorer, FragmentationScorer):
            lowered = replace(lowered, fragmentation=weight, always=lowered.always + weight)
        elif isinstance(scorer, _COUNTED_SCORERS):
            counted_scorers.append((scorer, weight))
        elif isinstance(scorer, Compiled) and lowered.plugin == 0 and not hasattr(scorer, "concerns"):
            lowered = replace(lowered, plugin=weight, kernel=scorer.kernel, always=lowered.always + weight)
        elif scorer.depends_on == "static" or (scorer.depends_on == "row" and not _counts_placements(scorer)):
            static_scorers.append((scorer, weight))
            lowered = replace(lowered, reads_load=lowered.reads_load or scorer.depends_on == "row")
        else:
            return None
    if lowered.fragmentation and DevicesFilter not in counted:
        return None
    if DevicesFilter in counted and ResourcesFilter not in counted:
        # What is known to fail is told by amounts: a larger amount of devices fails where a smaller one does.
        return None
    static = [*static_filters, *(scorer for scorer, _ in static_scorers)]
    return replace(
        lowered,
        static_filters=tuple(static_filters),
        static_scorers=tuple(static_scorers),
        counted_scorers=tuple(counted_scorers),
        normalised=normalised,
        filters=frozenset(counted),
        shape_is_static=any(not type(plugin).__module__.startswith("mooring.scheduling.") for plugin in static),
    )


def _counts_placements(scorer: Scorer) -> bool:
    return bool(getattr(scorer, "counts_placements", True))


def _tiers(shape: Shape, cluster: Cluster, rows: Rows, steps: tuple[int, int]) -> NDArray[np.int64]:
    """What is compared before the scores: nodes where the workload did not fail, and before that designated ones."""
    not_failed, designated = steps
    of_rows = tiers(shape, cluster, rows)
    keys: NDArray[np.int64] = of_rows % DESIGNATED * not_failed + of_rows // DESIGNATED * designated
    return keys


def moves(label: Label, source: Source, cluster: Cluster) -> int:
    """By how much a placed task with this label moves the counter of the source."""
    match source:
        case Matching(matcher):
            labels = cluster.placed.project_labels(label.project)
            return int(matcher.matches(label.project, labels, dict(label.labels)))
        case Carrying(_, term, project):
            return label.anti_affinity.count(term) if project == label.project and isinstance(term, TaskTerm) else 0
        case Using(port):
            return sum(excludes(used, port) for used in label.host_ports)


def carried(label: Label) -> Iterator[Source]:
    """The counters by which a placed task with this label concerns others."""
    for term in label.anti_affinity:
        yield Carrying("anti_affinity", term, label.project)


def carried_by_placed(cluster: Cluster) -> Iterator[Source]:
    for term, project, _ in cluster.placed.owners("anti_affinity"):
        yield Carrying("anti_affinity", term, project)


def _spread(shape: Shape, cluster: Cluster) -> Iterator[Term]:
    constraints = shape.constraints
    spreads = tuple(spread for spread in constraints.spread if spread.hard)
    if not spreads:
        return
    members = cluster.rows_of_pool(shape.pool)
    members = members[labelled_for_all(spreads, cluster, members)]
    for spread in spreads:
        mask = np.zeros(cluster.capacity, dtype=np.bool_)
        mask[members[taking_part(spread, constraints, cluster, members)]] = True
        yield Term(
            kernels.SPREAD,
            Matching(matcher_of_spread(spread, constraints)),
            spread.topology_key,
            mask,
            limit=spread.max_skew,
            counts_itself=counts_itself(spread, constraints),
            min_domains=spread.min_domains or 0,
        )


def _affinity(shape: Shape, cluster: Cluster) -> Iterator[Term]:
    constraints = shape.constraints
    if not constraints.affinity:
        return
    matcher = matcher_of_all(constraints.affinity, constraints.project)
    labels = cluster.placed.project_labels(constraints.project)
    itself = matcher.matches(constraints.project, labels, dict(constraints.labels))
    for term in constraints.affinity:
        yield Term(kernels.AFFINITY, Matching(matcher), term.topology_key, counts_itself=int(itself))


def _apart(shape: Shape, cluster: Cluster, sources: Iterable[Source]) -> Iterator[Term]:
    constraints = shape.constraints
    for term in constraints.anti_affinity:
        yield Term(kernels.APART, Matching(matcher_of(term, constraints.project)), term.topology_key)
    labels, project_labels = dict(constraints.labels), cluster.placed.project_labels(constraints.project)
    for source in sources:
        if (
            isinstance(source, Carrying)
            and isinstance(source.term, TaskTerm)
            and matcher_of(source.term, source.project).matches(constraints.project, project_labels, labels)
        ):
            yield Term(kernels.APART, source, source.term.topology_key)


def _soft_spread(shape: Shape, cluster: Cluster, weight: int) -> Iterator[Term]:
    constraints = shape.constraints
    soft = [spread for spread in constraints.spread if not spread.hard]
    members = cluster.rows_of_pool(shape.pool)
    for spread in soft:
        mask = np.zeros(cluster.capacity, dtype=np.bool_)
        mask[members[taking_part(spread, constraints, cluster, members)]] = True
        yield Term(
            kernels.FEWER,
            Matching(matcher_of_spread(spread, constraints)),
            spread.topology_key,
            mask,
            limit=spread.max_skew,
            base=SCORE_ONE // len(soft),
            weight=weight,
        )


def _preferred(shape: Shape, weight: int) -> Iterator[Term]:
    constraints = shape.constraints
    wishes = constraints.preferred_tasks
    asked = max(sum(abs(wish.weight) for wish in wishes), 1)
    for wish in wishes:
        yield Term(
            kernels.BESIDE,
            Matching(matcher_of(wish.term, constraints.project)),
            wish.term.topology_key,
            limit=int(wish.weight > 0),
            base=SCORE_ONE * abs(wish.weight) // asked,
            weight=weight,
        )


def _alike(scorer: SpreadingScorer, shape: Shape, cluster: Cluster, weight: int) -> Iterator[Term]:
    constraints = shape.constraints
    alike = Matcher(equal_to(dict(constraints.labels)), frozenset((constraints.project,)), staying=True)
    levels = [key for key in scorer.levels if (cluster.domains(key)[0] >= 0).any()]
    for key in levels:
        yield Term(kernels.FEWER, Matching(alike), key, limit=1, base=SCORE_ONE // len(levels), weight=weight)
