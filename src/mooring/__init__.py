"""Mooring: a multi-tenant cluster scheduler and its control plane.

The placement engine works as a library: `from mooring import Node, Scheduler, Task, Workload`. Everything is imported
on first use, so that the command line and the small programs of an agent start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mooring.model.decisions import Decision, Outcome, Placement
    from mooring.model.nodes import Node
    from mooring.model.workloads import Task, Workload
    from mooring.scheduling import Scheduler

__version__ = "0.1.0"
__all__ = ["Decision", "Node", "Outcome", "Placement", "Scheduler", "Task", "Workload", "__version__"]

_HOMES = {
    "Decision": "mooring.model.decisions",
    "Outcome": "mooring.model.decisions",
    "Placement": "mooring.model.decisions",
    "Node": "mooring.model.nodes",
    "Task": "mooring.model.workloads",
    "Workload": "mooring.model.workloads",
    "Scheduler": "mooring.scheduling",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mooring' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
