"""Filters: may this node take the task? One file each. A filter answers per row, and explains its rejections.

A rejection is attributed to the first filter in the order below: static properties of the node come before its free
capacity, and that comes before other tasks. Filters that do not concern a shape are not called.
"""

from __future__ import annotations

from mooring.scheduling.plugins.filters.architecture import ArchitectureFilter
from mooring.scheduling.plugins.filters.designated import DesignatedFilter
from mooring.scheduling.plugins.filters.devices import DevicesFilter
from mooring.scheduling.plugins.filters.host_ports import HostPortsFilter
from mooring.scheduling.plugins.filters.isolation import IsolationFilter
from mooring.scheduling.plugins.filters.licence import LicenceFilter
from mooring.scheduling.plugins.filters.machine_image import MachineImageFilter
from mooring.scheduling.plugins.filters.node_affinity import NodeAffinityFilter
from mooring.scheduling.plugins.filters.node_name import NodeNameFilter
from mooring.scheduling.plugins.filters.node_selector import NodeSelectorFilter
from mooring.scheduling.plugins.filters.owner import OwnerFilter
from mooring.scheduling.plugins.filters.ready import ReadyFilter
from mooring.scheduling.plugins.filters.resources import ResourcesFilter
from mooring.scheduling.plugins.filters.runtime import RuntimeFilter
from mooring.scheduling.plugins.filters.taints import TaintsFilter
from mooring.scheduling.plugins.filters.task_affinity import TaskAffinityFilter
from mooring.scheduling.plugins.filters.task_anti_affinity import TaskAntiAffinityFilter
from mooring.scheduling.plugins.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.plugins.filters.topology_spread import TopologySpreadFilter
from mooring.scheduling.plugins.filters.volume_zone import VolumeZoneFilter
from mooring.scheduling.plugins.filters.volumes import VolumesFilter
from mooring.scheduling.plugins.protocols import Filter

BUILT_IN_FILTERS: tuple[Filter, ...] = (
    ReadyFilter(),
    RuntimeFilter(),
    ArchitectureFilter(),
    OwnerFilter(),
    IsolationFilter(),
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
