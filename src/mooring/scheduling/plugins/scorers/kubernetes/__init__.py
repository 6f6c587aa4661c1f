"""The default scorers of kube-scheduler v1.34, equal to the point: whole numbers from 0 to 100.

Most of them are normalised over the feasible nodes, so they need all of these at once.
"""

from __future__ import annotations

from mooring.scheduling.plugins.protocols import Scorer
from mooring.scheduling.plugins.scorers.kubernetes.balanced import KubernetesBalanced
from mooring.scheduling.plugins.scorers.kubernetes.fit import KubernetesFit
from mooring.scheduling.plugins.scorers.kubernetes.image_locality import KubernetesImageLocality
from mooring.scheduling.plugins.scorers.kubernetes.node_affinity import KubernetesNodeAffinity
from mooring.scheduling.plugins.scorers.kubernetes.taints import KubernetesTaints
from mooring.scheduling.plugins.scorers.kubernetes.task_affinity import KubernetesTaskAffinity
from mooring.scheduling.plugins.scorers.kubernetes.topology_spread import KubernetesTopologySpread

KUBERNETES_SCORERS: tuple[Scorer, ...] = (
    KubernetesTaints(),
    KubernetesNodeAffinity(),
    KubernetesFit(),
    KubernetesTopologySpread(),
    KubernetesTaskAffinity(),
    KubernetesBalanced(),
    KubernetesImageLocality(),
)

KUBERNETES_WEIGHTS = {
    "kubernetes_taints": 3,
    "kubernetes_node_affinity": 2,
    "kubernetes_fit": 1,
    "kubernetes_topology_spread": 2,
    "kubernetes_task_affinity": 2,
    "kubernetes_balanced": 1,
    "kubernetes_image_locality": 1,
}

__all__ = [
    "KUBERNETES_SCORERS",
    "KUBERNETES_WEIGHTS",
    "KubernetesBalanced",
    "KubernetesFit",
    "KubernetesImageLocality",
    "KubernetesNodeAffinity",
    "KubernetesTaints",
    "KubernetesTaskAffinity",
    "KubernetesTopologySpread",
]
