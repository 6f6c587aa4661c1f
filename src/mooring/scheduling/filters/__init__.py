"""Filters: may this node take the task? One file each; every one says yes or no per row and why it says no.

The order below is the order in which a rejection is attributed: what a node is comes before how full it is.
"""

from __future__ import annotations

from mooring.scheduling.filters.architecture import ArchitectureFilter
from mooring.scheduling.filters.owner import OwnerFilter
from mooring.scheduling.filters.ready import ReadyFilter
from mooring.scheduling.filters.resources import ResourcesFilter
from mooring.scheduling.filters.runtime import RuntimeFilter
from mooring.scheduling.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.plugins import Filter

BUILT_IN_FILTERS: tuple[Filter, ...] = (
    ReadyFilter(),
    RuntimeFilter(),
    ArchitectureFilter(),
    OwnerFilter(),
    ResourcesFilter(),
    TasksPerNodeFilter(),
)
