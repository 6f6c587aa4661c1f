"""Kubernetes' scorers in the kernels' terms: points as shares of the largest among the nodes to choose from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mooring.scheduling import kernels
from mooring.scheduling.columns import Cluster
from mooring.scheduling.filters.task_anti_affinity import TaskAntiAffinityFilter
from mooring.scheduling.plugins import Scorer, is_concerned
from mooring.scheduling.profiles import Profile
from mooring.scheduling.scorers.kubernetes import (
    KubernetesBalanced,
    KubernetesFit,
    KubernetesImageLocality,
    KubernetesNodeAffinity,
    KubernetesTaints,
    KubernetesTaskAffinity,
    KubernetesTopologySpread,
)
from mooring.scheduling.scorers.kubernetes.node_affinity import preferred_sum
from mooring.scheduling.scorers.taints import untolerated_by_set
from mooring.scheduling.shapes import Shape

KUBERNETES = (
    KubernetesFit,
    KubernetesBalanced,
    KubernetesTaints,
    KubernetesNodeAffinity,
    KubernetesTopologySpread,
    KubernetesTaskAffinity,
    KubernetesImageLocality,
)


@dataclass(frozen=True, slots=True)
class Normalised:
    """Kubernetes' scorers. The kernels know those of processor, memory, soft taints and preferred nodes.

    What they normalise by is looked at over all nodes that can be chosen, so shapes that anything else concerns which
    reaches beyond one node are not for the kernels.
    """

    left: int
    even: int
    taints: tuple[KubernetesTaints, int]
    wishes: tuple[KubernetesNodeAffinity, int]
    others: tuple[tuple[Scorer, int], ...]

    def accepts(self, shape: Shape, cluster: Cluster) -> bool:
        constraints = shape.constraints
        asked = dict(shape.request)
        return (
            bool(asked.get("cpu") or asked.get("memory"))
            and not (constraints.spread or constraints.affinity or constraints.preferred_tasks)
            and not TaskAntiAffinityFilter().concerns(shape, cluster)
            and not any(is_concerned(scorer, shape, cluster) for scorer, _ in self.others)
            and not any(wish.term.problem or wish.weight < 0 for wish in constraints.preferred_nodes)
            and all(len(np.unique(raw)) <= kernels.LEVELS for raw in self.raw(shape, cluster))
        )

    def raw(self, shape: Shape, cluster: Cluster) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The number of soft taints and the weight of the preferred terms, per row."""
        rows = np.arange(cluster.capacity)
        taints = untolerated_by_set(shape, cluster)
        wishes = preferred_sum(shape.constraints.preferred_nodes, cluster, rows)
        return (taints[cluster.taints] if len(taints) else np.zeros(len(rows), dtype=np.int64)), wishes

    def weights(self, shape: Shape, cluster: Cluster) -> tuple[int, int]:
        """Of taints and of preferred nodes, as far as they concern the shape."""
        taints, of_taints = self.taints
        wishes, of_wishes = self.wishes
        return of_taints * taints.concerns(shape, cluster), of_wishes * wishes.concerns(shape, cluster)


def normalised_of(profile: Profile) -> Normalised | None:
    """The profile's scorers of Kubernetes, if they are as the kernels know them."""
    of_kind = {type(scorer): (scorer, weight) for scorer, weight in profile.scorers if isinstance(scorer, KUBERNETES)}
    if len(of_kind) != len(KUBERNETES) or len(profile.scorers) != len(KUBERNETES):
        return None
    fit, left = of_kind[KubernetesFit]
    balanced, even = of_kind[KubernetesBalanced]
    wishes, of_wishes = of_kind[KubernetesNodeAffinity]
    taints, of_taints = of_kind[KubernetesTaints]
    if (
        not isinstance(fit, KubernetesFit)
        or not isinstance(balanced, KubernetesBalanced)
        or not isinstance(wishes, KubernetesNodeAffinity)
        or not isinstance(taints, KubernetesTaints)
        or fit.strategy != "LeastAllocated"
        or fit.slots != (("cpu", 1), ("memory", 1))
        or balanced.slots != ("cpu", "memory")
        or wishes.added
    ):
        return None
    others = tuple(of_kind[kind] for kind in KUBERNETES[4:])
    return Normalised(left, even, (taints, of_taints), (wishes, of_wishes), others)
