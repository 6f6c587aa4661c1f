"""Kubernetes' scorers for the kernels: points relative to the highest raw score among the feasible nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.compiled import layout
from mooring.scheduling.plugins.kernel_rules import (
    HasRawScores,
    KernelPoints,
    has_kernel_points,
    has_raw_scores,
)
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.plugins.protocols import Filter, Scorer, is_concerned


@dataclass(frozen=True, slots=True)
class NormalisedScores:
    """The weights of Kubernetes' scorers that the kernels compute, and the plugins that rule a shape out.

    Points are relative to all feasible nodes, so the kernels cannot place shapes that another rule concerns which
    reaches beyond one node.
    """

    least_allocated: int
    balanced: int
    taints: tuple[HasRawScores, int]
    preferred_nodes: tuple[HasRawScores, int]
    excluding: tuple[Filter | Scorer, ...]

    def accepts(self, shape: Shape, cluster: Cluster) -> bool:
        constraints = shape.constraints
        requested = dict(shape.request)
        return (
            bool(requested.get("cpu") or requested.get("memory"))
            and not (constraints.spread or constraints.affinity or constraints.preferred_tasks)
            and not any(is_concerned(plugin, shape, cluster) for plugin in self.excluding)
            and not any(preference.term.problem or preference.weight < 0 for preference in constraints.preferred_nodes)
            and all(len(np.unique(raw)) <= layout.LEVELS for raw in self.raw_scores(shape, cluster))
        )

    def raw_scores(self, shape: Shape, cluster: Cluster) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the raw scores for soft taints and for preferred nodes, per row."""
        rows = np.arange(cluster.capacity)
        taints, _ = self.taints
        preferred, _ = self.preferred_nodes
        return taints.raw_scores(shape, cluster, rows), preferred.raw_scores(shape, cluster, rows)

    def weights(self, shape: Shape, cluster: Cluster) -> tuple[int, int]:
        """Return the weights of soft taints and of preferred nodes, 0 if they do not concern the shape."""
        taints, of_taints = self.taints
        preferred, of_preferred = self.preferred_nodes
        return of_taints * taints.concerns(shape, cluster), of_preferred * preferred.concerns(shape, cluster)


def lower_normalised_scores(profile: Profile) -> NormalisedScores | None:
    """Return the profile's scorers if all are Kubernetes' and the kernels compute them with these settings."""
    by_points: dict[KernelPoints, tuple[Scorer, int]] = {}
    excluding: list[Filter | Scorer] = [each for each in profile.filters if each.depends_on in ("domain", "cluster")]
    for scorer, weight in profile.scorers:
        points = scorer.kernel_points if has_kernel_points(scorer) else None
        if points is None or points in by_points:
            return None
        if points == "unconcerned":
            excluding.append(scorer)
        else:
            by_points[points] = (scorer, weight)
    if len(by_points) != 4:
        return None
    taints, of_taints = by_points["taints"]
    preferred, of_preferred = by_points["preferred_nodes"]
    assert has_raw_scores(taints)
    assert has_raw_scores(preferred)
    return NormalisedScores(
        by_points["least_allocated"][1],
        by_points["balanced"][1],
        (taints, of_taints),
        (preferred, of_preferred),
        tuple(excluding),
    )
