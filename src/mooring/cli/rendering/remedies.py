"""From the reason that something waits or failed to the option that would cure it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mooring.model.slots import slot_type
from mooring.wire.api import WorkloadView

Details = Mapping[str, Any]


def cure(workload: WorkloadView) -> str | None:
    """What the person who asked could do about it, in one line."""
    reason = workload.reason or {}
    code = str(reason.get("code", ""))
    details = reason.get("details")
    known = _CURES.get(code)
    if known is not None:
        return known(workload, details if isinstance(details, Mapping) else {})
    if reason.get("cure") == "release":
        return "it starts when others leave; `mooring ps` shows what runs"
    return None


def _too_few_nodes(workload: WorkloadView, details: Details) -> str:
    found = _found(details)
    fewer = f"ask for fewer with --replicas {found}, " if found else ""
    return f"{fewer}allow more on one node with --max-per-node, or add nodes ({_add_nodes(workload)})"


def _no_nodes(workload: WorkloadView, details: Details) -> str:
    return f"choose another with --pool (`mooring pool list` lists them), or add nodes ({_add_nodes(workload)})"


def _too_little_room(workload: WorkloadView, details: Details) -> str:
    lacking = details.get("lacking")
    options = []
    if isinstance(lacking, Mapping):
        for slot, amounts in lacking.items():
            largest = amounts.get("largest") if isinstance(amounts, Mapping) else None
            name = f"--{slot}" if slot in ("cpu", "memory", "gpu", "storage") else f"--slot {slot}=..."
            size = slot_type(slot).format(largest) if isinstance(largest, int) else None
            options.append(f"{name} (the largest node has {size})" if size else name)
    found = _found(details)
    if found:
        options.append(f"--replicas {found}")
    less = f"ask for less with {' or '.join(options)}" if options else "ask for less"
    apart = ", leave out --single-node" if details.get("single_node") else ""
    return f"{less}{apart}, wait until others leave, or add nodes ({_add_nodes(workload)})"


def _more_per_node(workload: WorkloadView, details: Details) -> str:
    found = _found(details)
    fewer = f", ask for fewer with --replicas {found}" if found else ""
    return f"raise --max-per-node{fewer}, or add nodes ({_add_nodes(workload)})"


def _strict_group(workload: WorkloadView, details: Details) -> str:
    group = details.get("group", "NAME")
    return f"leave out :strict from --group {group}, end other work of the group, or add nodes ({_add_nodes(workload)})"


def _other_architecture(workload: WorkloadView, details: Details) -> str:
    return "leave out --arch, or name one that the nodes have (`mooring nodes -o wide`)"


def _other_runtime(workload: WorkloadView, details: Details) -> str:
    runtime = str(details.get("runtime", ""))
    instead = {
        "container": "; without --image it runs as a process",
        "process": "; with --image it runs as a container",
    }.get(runtime, "")
    return f"choose a pool whose nodes offer it with --pool (`mooring pool list`){instead}"


def _not_ready(workload: WorkloadView, details: Details) -> str:
    return "`mooring nodes` shows what is wrong with them; `mooring resume NODE` opens a drained one"


def _paused(workload: WorkloadView, details: Details) -> str:
    return f"an admin opens it with `mooring pool resume {details.get('pool', 'POOL')}`; or choose another with --pool"


def _owned(workload: WorkloadView, details: Details) -> str:
    return "an agent without root serves its owner only: start it as root, add another node, or choose a --pool"


def _over_limit(workload: WorkloadView, details: Details) -> str:
    return "it starts when other work under the same limit ends; `mooring quota` shows the limits"


def _not_due(workload: WorkloadView, details: Details) -> str:
    return f"nothing: it is looked at again at {details.get('starts_at', 'its start time')}"


def _dependencies(workload: WorkloadView, details: Details) -> str:
    return f"`mooring status {workload.name}` shows what it depends on"


def _wait(workload: WorkloadView, details: Details) -> str:
    return f"`mooring history {workload.name}` shows what failed before; it is tried again by itself"


_CURES: Mapping[str, Callable[[WorkloadView, Details], str]] = {
    "insufficient-nodes": _too_few_nodes,
    "no-nodes": _no_nodes,
    "insufficient-resources": _too_little_room,
    "tasks-per-node": _too_little_room,
    "max-per-node": _more_per_node,
    "strict-group": _strict_group,
    "architecture-mismatch": _other_architecture,
    "runtime-missing": _other_runtime,
    "node-not-ready": _not_ready,
    "node-owned": _owned,
    "pool-paused": _paused,
    "backing-off": _wait,
    "too-many-sessions": _over_limit,
    "quota-exceeded": _over_limit,
    "keypair-quota-exceeded": _over_limit,
    "user-quota-exceeded": _over_limit,
    "project-quota-exceeded": _over_limit,
    "domain-quota-exceeded": _over_limit,
    "not-due-yet": _not_due,
    "dependencies-not-met": _dependencies,
}


def _found(details: Details) -> int:
    tasks = details.get("tasks")
    found = tasks.get("found") if isinstance(tasks, Mapping) else None
    return found if isinstance(found, int) else 0


def _add_nodes(workload: WorkloadView) -> str:
    return "`mooring nodes add`" if workload.simulated else "`mooring token create`"
