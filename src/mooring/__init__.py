"""Mooring: a multi-tenant cluster scheduler and its control plane.

The placement engine works as a library: `from mooring import Node, Scheduler, Task, Workload`. Everything is imported
on first use, so that the command line and the small programs of an agent start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mooring.model.decisions import Decision, Outcome, Placement
    from mooring.model.labels import Operator, Requirement
    from mooring.model.labels import Selector as LabelSelector
    from mooring.model.nodes.node import Node
    from mooring.model.policy.preemption import (
        Budgets,
        Preemption,
        PreemptionMode,
        RunningTask,
        Victim,
        VictimScope,
    )
    from mooring.model.reasons import Reason
    from mooring.model.resources.devices import Device, DeviceDemand, DeviceShare
    from mooring.model.resources.slots import amounts
    from mooring.model.workloads.constraints import (
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
    from mooring.model.workloads.workload import Task, Workload, new_tasks
    from mooring.scheduling import Cluster, Pass, Profile, Registry, Scheduler
    from mooring.scheduling.cluster.typical_requests import Typical, TypicalRequest
    from mooring.scheduling.explain.explanation import Explanation
    from mooring.scheduling.explain.inspection import Inspection, Verdict
    from mooring.scheduling.plugins.protocols import (
        Binder,
        Candidates,
        Filter,
        Offer,
        OrderingContext,
        Rejection,
        Scorer,
        Selector,
        Sequencer,
        Situation,
    )
    from mooring.scheduling.plugins.selectors import HighestScore
    from mooring.scheduling.preemption.running_tasks import RunningTasks

    # Former names.
    Resident = RunningTask
    Residents = RunningTasks

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
    "OrderingContext",
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
    "RunningTask",
    "RunningTasks",
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
    "TypicalRequest",
    "Verdict",
    "Victim",
    "VictimScope",
    "Workload",
    "__version__",
    "amounts",
    "new_tasks",
]

_HOMES = {
    "Constraints": "mooring.model.workloads.constraints:Constraints",
    "Effect": "mooring.model.workloads.constraints:Effect",
    "HostPort": "mooring.model.workloads.constraints:HostPort",
    "MachineImage": "mooring.model.workloads.constraints:MachineImage",
    "NodeTerm": "mooring.model.workloads.constraints:NodeTerm",
    "PreferredNodes": "mooring.model.workloads.constraints:PreferredNodes",
    "PreferredTasks": "mooring.model.workloads.constraints:PreferredTasks",
    "Spread": "mooring.model.workloads.constraints:Spread",
    "Taint": "mooring.model.workloads.constraints:Taint",
    "TaskTerm": "mooring.model.workloads.constraints:TaskTerm",
    "Toleration": "mooring.model.workloads.constraints:Toleration",
    "Decision": "mooring.model.decisions:Decision",
    "Outcome": "mooring.model.decisions:Outcome",
    "Placement": "mooring.model.decisions:Placement",
    "Device": "mooring.model.resources.devices:Device",
    "DeviceDemand": "mooring.model.resources.devices:DeviceDemand",
    "DeviceShare": "mooring.model.resources.devices:DeviceShare",
    "Operator": "mooring.model.labels:Operator",
    "Requirement": "mooring.model.labels:Requirement",
    "LabelSelector": "mooring.model.labels:Selector",
    "Node": "mooring.model.nodes.node:Node",
    "Budgets": "mooring.model.policy.preemption:Budgets",
    "Preemption": "mooring.model.policy.preemption:Preemption",
    "PreemptionMode": "mooring.model.policy.preemption:PreemptionMode",
    "RunningTask": "mooring.model.policy.preemption:RunningTask",
    "Resident": "mooring.model.policy.preemption:RunningTask",  # former name
    "Victim": "mooring.model.policy.preemption:Victim",
    "VictimScope": "mooring.model.policy.preemption:VictimScope",
    "Reason": "mooring.model.reasons:Reason",
    "amounts": "mooring.model.resources.slots:amounts",
    "Task": "mooring.model.workloads.workload:Task",
    "Workload": "mooring.model.workloads.workload:Workload",
    "new_tasks": "mooring.model.workloads.workload:new_tasks",
    "Cluster": "mooring.scheduling:Cluster",
    "Pass": "mooring.scheduling:Pass",
    "Profile": "mooring.scheduling:Profile",
    "Registry": "mooring.scheduling:Registry",
    "Scheduler": "mooring.scheduling:Scheduler",
    "Explanation": "mooring.scheduling.explain.explanation:Explanation",
    "Inspection": "mooring.scheduling.explain.inspection:Inspection",
    "Verdict": "mooring.scheduling.explain.inspection:Verdict",
    "Binder": "mooring.scheduling.plugins.protocols:Binder",
    "Candidates": "mooring.scheduling.plugins.protocols:Candidates",
    "Filter": "mooring.scheduling.plugins.protocols:Filter",
    "Offer": "mooring.scheduling.plugins.protocols:Offer",
    "Rejection": "mooring.scheduling.plugins.protocols:Rejection",
    "Scorer": "mooring.scheduling.plugins.protocols:Scorer",
    "Selector": "mooring.scheduling.plugins.protocols:Selector",
    "Sequencer": "mooring.scheduling.plugins.protocols:Sequencer",
    "OrderingContext": "mooring.scheduling.plugins.protocols:OrderingContext",
    "Situation": "mooring.scheduling.plugins.protocols:Situation",
    "RunningTasks": "mooring.scheduling.preemption.running_tasks:RunningTasks",
    "Residents": "mooring.scheduling.preemption.running_tasks:RunningTasks",  # former name
    "HighestScore": "mooring.scheduling.plugins.selectors:HighestScore",
    "Typical": "mooring.scheduling.cluster.typical_requests:Typical",
    "TypicalRequest": "mooring.scheduling.cluster.typical_requests:TypicalRequest",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mooring' has no attribute {name!r}")
    home, _, original = _HOMES[name].partition(":")
    return getattr(import_module(home), original)
