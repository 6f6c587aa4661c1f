"""Filters: may this node take the task? One file each; every one says yes or no per row and why it says no.

The order below is the order in which a rejection is attributed: what a node is comes before how full it is, and that
before what runs beside it. A filter that a shape does not concern is not asked.
"""

from __future__ import annotations

from mooring.scheduling.filters.architecture import ArchitectureFilter
from mooring.scheduling.filters.designated import DesignatedFilter
from mooring.scheduling.filters.devices import DevicesFilter
from mooring.scheduling.filters.host_ports import HostPortsFilter
from mooring.scheduling.filters.licence import LicenceFilter
from mooring.scheduling.filters.machine_image import MachineImageFilter
from mooring.scheduling.filters.node_affinity import NodeAffinityFilter
from mooring.scheduling.filters.node_name import NodeNameFilter
from mooring.scheduling.filters.node_selector import NodeSelectorFilter
from mooring.scheduling.filters.owner import OwnerFilter
from mooring.scheduling.filters.ready import ReadyFilter
from mooring.scheduling.filters.resources import ResourcesFilter
from mooring.scheduling.filters.runtime import RuntimeFilter
from mooring.scheduling.filters.taints import TaintsFilter
from mooring.scheduling.filters.task_affinity import TaskAffinityFilter
from mooring.scheduling.filters.task_anti_affinity import TaskAntiAffinityFilter
from mooring.scheduling.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.filters.topology_spread import TopologySpreadFilter
from mooring.scheduling.filters.volume_zone import VolumeZoneFilter
from mooring.scheduling.filters.volumes import VolumesFilter
from mooring.scheduling.plugins import Filter

BUILT_IN_FILTERS: tuple[Filter, ...] = (
    ReadyFilter(),
    RuntimeFilter(),
    ArchitectureFilter(),
    OwnerFilter(),
    NodeNameFilter(),
    DesignatedFilter(),
    NodeSelectorFilter(),
    NodeAffinityFilter(),
    TaintsFilter(),
    MachineImageFilter(),
    VolumesFilter(),
    VolumeZoneFilter(),
    ResourcesFilter(),
    DevicesFilter(),
    TasksPerNodeFilter(),
    LicenceFilter(),
    HostPortsFilter(),
    TaskAffinityFilter(),
    TaskAntiAffinityFilter(),
    TopologySpreadFilter(),
)
