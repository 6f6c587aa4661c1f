"""Scorers: how good is this node, as fixed point from 0 to SCORE_ONE on an absolute scale? One file each.

No scorer normalises by what it sees on other nodes; those in `kubernetes` do, as their models do.
"""

from __future__ import annotations

from mooring.scheduling.plugins import Scorer
from mooring.scheduling.scorers.balanced import BalancedScorer
from mooring.scheduling.scorers.device_packing import DevicePackingScorer
from mooring.scheduling.scorers.fragmentation import FragmentationScorer
from mooring.scheduling.scorers.images import ImagesScorer
from mooring.scheduling.scorers.kubernetes import KUBERNETES_SCORERS
from mooring.scheduling.scorers.lab import LabScorer
from mooring.scheduling.scorers.load import LoadScorer
from mooring.scheduling.scorers.locality import LocalityScorer
from mooring.scheduling.scorers.most_allocated import MostAllocatedScorer
from mooring.scheduling.scorers.node_affinity import NodeAffinityScorer
from mooring.scheduling.scorers.resources import ResourcesScorer
from mooring.scheduling.scorers.spreading import SpreadingScorer
from mooring.scheduling.scorers.taints import TaintsScorer
from mooring.scheduling.scorers.task_affinity import TaskAffinityScorer
from mooring.scheduling.scorers.topology_spread import TopologySpreadScorer
from mooring.scheduling.scorers.unused_capability import UnusedCapabilityScorer

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
    FragmentationScorer(),
    DevicePackingScorer(),
    *KUBERNETES_SCORERS,
)
