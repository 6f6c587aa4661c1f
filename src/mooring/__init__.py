"""Mooring: a multi-tenant cluster scheduler and its control plane.

The placement engine works as a library: `from mooring import Node, Scheduler, Task, Workload`. Everything is imported
on first use, so that the command line and the small programs of an agent start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mooring.model.constraints import (
        Constraints,
        Effect,
        HostPort,
        MachineImage,
        NodeTerm,
        PreferredNodes,
        PreferredTasks,
        Spread,
        Taint,
        TaskTerm,
        Toleration,
    )
    from mooring.model.decisions import Decision, Outcome, Placement
    from mooring.model.devices import Device, DeviceDemand, DeviceShare
    from mooring.model.labels import Operator, Requirement
    from mooring.model.labels import Selector as LabelSelector
    from mooring.model.nodes import Node
    from mooring.model.preemption import Budgets, Preemption, PreemptionMode, Resident, Victim, VictimScope
    from mooring.model.reasons import Reason
    from mooring.model.slots import amounts
    from mooring.model.workloads import Task, Workload, new_tasks
    from mooring.scheduling import Cluster, Pass, Profile, Registry, Scheduler
    from mooring.scheduling.explanation import Explanation
    from mooring.scheduling.inspection import Inspection, Verdict
    from mooring.scheduling.plugins import (
        Binder,
        Candidates,
        Filter,
        Offer,
        Rejection,
        Scorer,
        Selector,
        Sequencer,
        Situation,
    )
    from mooring.scheduling.residents import Residents
    from mooring.scheduling.selectors import HighestScore
    from mooring.scheduling.typical import Typical

__version__ = "0.1.0"
__all__ = [
    "Binder",
    "Budgets",
    "Candidates",
    "Cluster",
    "Constraints",
    "Decision",
    "Device",
    "DeviceDemand",
    "DeviceShare",
    "Effect",
    "Explanation",
    "Filter",
    "HighestScore",
    "HostPort",
    "Inspection",
    "LabelSelector",
    "MachineImage",
    "Node",
    "NodeTerm",
    "Offer",
    "Operator",
    "Outcome",
    "Pass",
    "Placement",
    "Preemption",
    "PreemptionMode",
    "PreferredNodes",
    "PreferredTasks",
    "Profile",
    "Reason",
    "Registry",
    "Rejection",
    "Requirement",
    "Resident",
    "Residents",
    "Scheduler",
    "Scorer",
    "Selector",
    "Sequencer",
    "Situation",
    "Spread",
    "Taint",
    "Task",
    "TaskTerm",
    "Toleration",
    "Typical",
    "Verdict",
    "Victim",
    "VictimScope",
    "Workload",
    "__version__",
    "amounts",
    "new_tasks",
]

_HOMES = {
    "Constraints": "mooring.model.constraints:Constraints",
    "Effect": "mooring.model.constraints:Effect",
    "HostPort": "mooring.model.constraints:HostPort",
    "MachineImage": "mooring.model.constraints:MachineImage",
    "NodeTerm": "mooring.model.constraints:NodeTerm",
    "PreferredNodes": "mooring.model.constraints:PreferredNodes",
    "PreferredTasks": "mooring.model.constraints:PreferredTasks",
    "Spread": "mooring.model.constraints:Spread",
    "Taint": "mooring.model.constraints:Taint",
    "TaskTerm": "mooring.model.constraints:TaskTerm",
    "Toleration": "mooring.model.constraints:Toleration",
    "Decision": "mooring.model.decisions:Decision",
    "Outcome": "mooring.model.decisions:Outcome",
    "Placement": "mooring.model.decisions:Placement",
    "Device": "mooring.model.devices:Device",
    "DeviceDemand": "mooring.model.devices:DeviceDemand",
    "DeviceShare": "mooring.model.devices:DeviceShare",
    "Operator": "mooring.model.labels:Operator",
    "Requirement": "mooring.model.labels:Requirement",
    "LabelSelector": "mooring.model.labels:Selector",
    "Node": "mooring.model.nodes:Node",
    "Budgets": "mooring.model.preemption:Budgets",
    "Preemption": "mooring.model.preemption:Preemption",
    "PreemptionMode": "mooring.model.preemption:PreemptionMode",
    "Resident": "mooring.model.preemption:Resident",
    "Victim": "mooring.model.preemption:Victim",
    "VictimScope": "mooring.model.preemption:VictimScope",
    "Reason": "mooring.model.reasons:Reason",
    "amounts": "mooring.model.slots:amounts",
    "Task": "mooring.model.workloads:Task",
    "Workload": "mooring.model.workloads:Workload",
    "new_tasks": "mooring.model.workloads:new_tasks",
    "Cluster": "mooring.scheduling:Cluster",
    "Pass": "mooring.scheduling:Pass",
    "Profile": "mooring.scheduling:Profile",
    "Registry": "mooring.scheduling:Registry",
    "Scheduler": "mooring.scheduling:Scheduler",
    "Explanation": "mooring.scheduling.explanation:Explanation",
    "Inspection": "mooring.scheduling.inspection:Inspection",
    "Verdict": "mooring.scheduling.inspection:Verdict",
    "Binder": "mooring.scheduling.plugins:Binder",
    "Candidates": "mooring.scheduling.plugins:Candidates",
    "Filter": "mooring.scheduling.plugins:Filter",
    "Offer": "mooring.scheduling.plugins:Offer",
    "Rejection": "mooring.scheduling.plugins:Rejection",
    "Scorer": "mooring.scheduling.plugins:Scorer",
    "Selector": "mooring.scheduling.plugins:Selector",
    "Sequencer": "mooring.scheduling.plugins:Sequencer",
    "Situation": "mooring.scheduling.plugins:Situation",
    "Residents": "mooring.scheduling.residents:Residents",
    "HighestScore": "mooring.scheduling.selectors:HighestScore",
    "Typical": "mooring.scheduling.typical:Typical",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mooring' has no attribute {name!r}")
    home, _, original = _HOMES[name].partition(":")
    return getattr(import_module(home), original)
