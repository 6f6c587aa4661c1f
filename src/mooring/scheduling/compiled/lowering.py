"""Lowering of profiles and shapes: which rules the kernels apply, and the static answers that they look up.

The kernels cannot apply every rule. The NumPy path decides then, with the same result: `lower_profile` returns None for
such a profile, and `LoweredProfile.accepts` False for such a shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mooring.model.resources.devices import WHOLE
from mooring.scheduling.cluster.arrays import Rows
from mooring.scheduling.cluster.device_requests import DeviceRequest, device_requests
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster.typical_requests import DEVICE_SLOT
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.compiled import layout, scorer_kernel
from mooring.scheduling.compiled.normalised_scores import NormalisedScores, lower_normalised_scores
from mooring.scheduling.plugins.evaluation import DESIGNATED, tiers
from mooring.scheduling.plugins.kernel_rules import (
    CounterSource,
    HasKernelTerms,
    KernelFilter,
    KernelFormula,
    KernelTerm,
    has_kernel_filter,
    has_kernel_formula,
    has_kernel_terms,
)
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.plugins.protocols import (
    Filter,
    Named,
    Scorer,
    ask_filter,
    ask_scorer,
    is_concerned,
)

StaticKey: TypeAlias = tuple[object, ...]


@runtime_checkable
class HasScorerKernel(Protocol):
    """A scorer that depends on the row and has the same formula compiled (`scorer_kernel.row_score`)."""

    @property
    def kernel(self) -> layout.RowScore: ...


@dataclass(frozen=True, slots=True)
class LoweredProfile:
    total_weight: int
    """Of all scorers together."""
    static_filters: tuple[Filter, ...] = ()
    static_scorers: tuple[tuple[Scorer, int], ...] = ()
    kernel_filters: frozenset[KernelFilter] = frozenset()
    excluding: tuple[Filter, ...] = ()
    """The kernels place only shapes that these do not concern."""
    counting_filters: tuple[HasKernelTerms, ...] = ()
    counting_scorers: tuple[tuple[HasKernelTerms, int], ...] = ()
    formula_weight: int = 0
    """Of the scorers that the kernels have a formula for; they concern every shape."""
    least_allocated: int = 0
    least_allocated_weights: tuple[int, int] = (1, 1)
    most_allocated: int = 0
    most_allocated_weights: tuple[int, int] = (1, 1)
    balanced: int = 0
    unused_capability: int = 0
    fragmentation: int = 0
    expected_fill: int = 0
    plugin: int = 0
    """The weight of the scorer that has its own compiled formula."""
    kernel: layout.RowScore = scorer_kernel.NO_ROW_SCORE
    normalised: NormalisedScores | None = None
    shape_is_static: bool = False
    """A static plugin from another package may read everything in a shape; the built-in ones read what `static_key`
    names."""
    reads_load: bool = False

    def accepts(self, shape: Shape, cluster: Cluster) -> bool:
        """Return whether the kernels can place a shape."""
        if shape.constraints.ports_wanted:
            return False
        if self.normalised is not None and not self.normalised.accepts(shape, cluster):
            return False
        if any(is_concerned(plugin, shape, cluster) for plugin in self.excluding):
            return False
        return self._accepts_devices(shape, cluster)

    def _accepts_devices(self, shape: Shape, cluster: Cluster) -> bool:
        """The kernels know one slot of devices, requested as whole devices or as a share of one, alike on each node."""
        column = cluster.devices.columns.get(DEVICE_SLOT)
        unequal = column is not None and bool(column.unequal)
        typical = cluster.devices.typical_of(shape.pool)
        if self.fragmentation and unequal and any(each.models for each in typical):
            return False
        requests = self.device_requests(shape, cluster)
        return not requests or (
            len(requests) == 1
            and requests[0].column is column
            and column.free.shape[1] <= layout.MAX_DEVICES
            and not column.odd
            and not (requests[0].demand is not None and unequal)
            and requests[0].times == 1
            and requests[0].valid
            and not requests[0].fragmentation
            and (requests[0].amount < WHOLE or requests[0].amount % WHOLE == 0)
        )

    def device_requests(self, shape: Shape, cluster: Cluster) -> list[DeviceRequest]:
        """Return the device requests of the shape, if the profile filters by devices."""
        return device_requests(shape, cluster) if "devices" in self.kernel_filters else []

    def weight_of(self, shape: Shape, cluster: Cluster) -> int:
        """Return the total weight of the scorers that concern a shape."""
        weight = self.formula_weight
        if self.normalised is not None:
            weight += self.normalised.least_allocated + self.normalised.balanced
            weight += sum(self.normalised.weights(shape, cluster))
        scorers: tuple[tuple[Named, int], ...] = (*self.static_scorers, *self.counting_scorers)
        return weight + sum(of_scorer for scorer, of_scorer in scorers if is_concerned(scorer, shape, cluster))

    def static_key(self, shape: Shape, cluster: Cluster) -> StaticKey:
        """Return everything that the static answers depend on."""
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
        """Return the tier and the weighted sum of the static scores per row; -1 where the row is infeasible."""
        keys = np.full(len(rows), -1, dtype=np.int64)
        at = np.flatnonzero(cluster.pool[rows] == cluster.pools.code(shape.pool))
        for plugin in self.static_filters:
            if not len(at):
                return keys
            if is_concerned(plugin, shape, cluster):
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

    def terms(self, shape: Shape, cluster: Cluster, sources: Iterable[CounterSource]) -> list[KernelTerm]:
        """Return the shape's rules about numbers of tasks."""
        terms = [term for plugin in self.counting_filters for term in plugin.kernel_terms(shape, cluster, sources)]
        for scorer, weight in self.counting_scorers:
            of_scorer = scorer.kernel_terms(shape, cluster, sources)
            terms.extend(replace(term, weight=weight) for term in of_scorer)
        return terms


def lower_profile(profile: Profile) -> LoweredProfile | None:
    """Return None if the kernels cannot apply a plugin, or if the highest key does not decide."""
    if profile.selector is not None:
        return None
    normalised = lower_normalised_scores(profile)
    lowered = LoweredProfile(sum(weight for _, weight in profile.scorers), normalised=normalised)
    for plugin in profile.filters:
        with_filter = _with_filter(lowered, plugin)
        if with_filter is None:
            return None
        lowered = with_filter
    for scorer, weight in () if normalised is not None else profile.scorers:
        with_scorer = _with_scorer(lowered, scorer, weight)
        if with_scorer is None:
            return None
        lowered = with_scorer
    if (lowered.fragmentation or lowered.expected_fill) and "devices" not in lowered.kernel_filters:
        return None
    if lowered.fragmentation and lowered.expected_fill:
        # The first scorer that chooses devices decides; the kernels know one of them at a time.
        return None
    if "devices" in lowered.kernel_filters and "resources" not in lowered.kernel_filters:
        # Failed requests are remembered by their amounts: a larger amount of devices fails where a smaller one does.
        return None
    static = [*lowered.static_filters, *(scorer for scorer, _ in lowered.static_scorers)]
    return replace(
        lowered,
        shape_is_static=any(not type(plugin).__module__.startswith("mooring.scheduling.") for plugin in static),
    )


def _with_filter(lowered: LoweredProfile, plugin: Filter) -> LoweredProfile | None:
    kernel_filter = plugin.kernel_filter if has_kernel_filter(plugin) else None
    if kernel_filter == "unconcerned":
        return replace(lowered, excluding=(*lowered.excluding, plugin))
    if kernel_filter is not None:
        return replace(lowered, kernel_filters=lowered.kernel_filters | {kernel_filter})
    if has_kernel_terms(plugin):
        return replace(lowered, counting_filters=(*lowered.counting_filters, plugin))
    if plugin.depends_on == "static":
        return replace(lowered, static_filters=(*lowered.static_filters, plugin))
    return None


def _with_scorer(lowered: LoweredProfile, scorer: Scorer, weight: int) -> LoweredProfile | None:
    formula = scorer.kernel_formula if has_kernel_formula(scorer) else None
    if formula is not None:
        return _with_formula(lowered, formula, weight)
    if has_kernel_terms(scorer):
        return replace(lowered, counting_scorers=(*lowered.counting_scorers, (scorer, weight)))
    if isinstance(scorer, HasScorerKernel) and lowered.plugin == 0 and not hasattr(scorer, "concerns"):
        formula_weight = lowered.formula_weight + weight
        return replace(lowered, plugin=weight, kernel=scorer.kernel, formula_weight=formula_weight)
    reads_load = scorer.depends_on == "row" and not getattr(scorer, "counts_placements", True)
    if scorer.depends_on == "static" or reads_load:
        return replace(
            lowered,
            static_scorers=(*lowered.static_scorers, (scorer, weight)),
            reads_load=lowered.reads_load or reads_load,
        )
    return None


def _with_formula(lowered: LoweredProfile, formula: KernelFormula, weight: int) -> LoweredProfile:
    lowered = replace(lowered, formula_weight=lowered.formula_weight + weight)
    match formula.name:
        case "least_allocated":
            return replace(lowered, least_allocated=weight, least_allocated_weights=formula.weights)
        case "most_allocated":
            return replace(lowered, most_allocated=weight, most_allocated_weights=formula.weights)
        case "balanced":
            return replace(lowered, balanced=weight)
        case "unused_capability":
            return replace(lowered, unused_capability=weight)
        case "fragmentation":
            return replace(lowered, fragmentation=weight)
        case "expected_fill":
            return replace(lowered, expected_fill=weight)


def _tiers(shape: Shape, cluster: Cluster, rows: Rows, steps: tuple[int, int]) -> NDArray[np.int64]:
    """Return what is compared before the scores: designated nodes first, then nodes where the workload did not fail."""
    not_failed, designated = steps
    of_rows = tiers(shape, cluster, rows)
    keys: NDArray[np.int64] = of_rows % DESIGNATED * not_failed + of_rows // DESIGNATED * designated
    return keys
