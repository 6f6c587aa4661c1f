"""Scorers: how good is this node? A fixed-point number from 0 to SCORE_ONE on an absolute scale. One file each.

Only the scorers in `kubernetes` normalise over the feasible nodes, as their models do.
"""

from __future__ import annotations

from mooring.scheduling.plugins.protocols import Scorer
from mooring.scheduling.plugins.scorers.balanced import BalancedScorer
from mooring.scheduling.plugins.scorers.device_packing import DevicePackingScorer
from mooring.scheduling.plugins.scorers.expected_fill import ExpectedFillScorer
from mooring.scheduling.plugins.scorers.fragmentation import FragmentationScorer
from mooring.scheduling.plugins.scorers.images import ImagesScorer
from mooring.scheduling.plugins.scorers.kubernetes import KUBERNETES_SCORERS
from mooring.scheduling.plugins.scorers.lab import LabScorer
from mooring.scheduling.plugins.scorers.load import LoadScorer
from mooring.scheduling.plugins.scorers.locality import LocalityScorer
from mooring.scheduling.plugins.scorers.most_allocated import MostAllocatedScorer
from mooring.scheduling.plugins.scorers.node_affinity import NodeAffinityScorer
from mooring.scheduling.plugins.scorers.resources import ResourcesScorer
from mooring.scheduling.plugins.scorers.spreading import SpreadingScorer
from mooring.scheduling.plugins.scorers.taints import TaintsScorer
from mooring.scheduling.plugins.scorers.task_affinity import TaskAffinityScorer
from mooring.scheduling.plugins.scorers.topology_spread import TopologySpreadScorer
from mooring.scheduling.plugins.scorers.unused_capability import UnusedCapabilityScorer

BUILT_IN_SCORERS: tuple[Scorer, ...] = (
    ResourcesScorer(),
    MostAllocatedScorer(),
    BalancedScorer(),
    LoadScorer(),
    LocalityScorer(),
    SpreadingScorer(),
    NodeAffinityScorer(),
    TaskAffinityScorer(),
    TopologySpreadScorer(),
    TaintsScorer(),
    ImagesScorer(),
    UnusedCapabilityScorer(),
    LabScorer(),
    ExpectedFillScorer(),
    FragmentationScorer(),
    DevicePackingScorer(),
    *KUBERNETES_SCORERS,
)
