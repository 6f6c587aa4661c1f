"""Remedies: the option or command that resolves the reason why a workload is pending or failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mooring.model.resources.slots import slot_type
from mooring.wire.workloads.workloads import WorkloadView

Details = Mapping[str, Any]


def cure(workload: WorkloadView) -> str | None:
    """Return a remedy that the user can apply, in one line."""
    reason = workload.reason or {}
    code = str(reason.get("code", ""))
    details = reason.get("details")
    known = _REMEDIES.get(code)
    if known is not None:
        return known(workload, details if isinstance(details, Mapping) else {})
    if reason.get("cure") == "release":
        return "it starts when other work ends; `mooring ps` shows running work"
    return None


def _too_few_nodes(workload: WorkloadView, details: Details) -> str:
    found = _found(details)
    fewer = f"ask for fewer with --replicas {found}, " if found else ""
    return f"{fewer}allow more on one node with --max-per-node, or add nodes ({_add_nodes(workload)})"


def _no_nodes(workload: WorkloadView, details: Details) -> str:
    return f"choose another with --pool (`mooring pool list` lists them), or add nodes ({_add_nodes(workload)})"


def _insufficient_capacity(workload: WorkloadView, details: Details) -> str:
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
    anywhere = ", leave out --single-node" if details.get("single_node") else ""
    wait = ", wait until other work ends" if (workload.reason or {}).get("cure") == "release" else ""
    return f"{less}{anywhere}{wait}, or add nodes ({_add_nodes(workload)})"


def _more_per_node(workload: WorkloadView, details: Details) -> str:
    found = _found(details)
    fewer = f", ask for fewer with --replicas {found}" if found else ""
    return f"raise --max-per-node{fewer}, or add nodes ({_add_nodes(workload)})"


def _strict_group(workload: WorkloadView, details: Details) -> str:
    group = details.get("group", "NAME")
    return f"remove :strict from --group {group}, end other work of the group, or add nodes ({_add_nodes(workload)})"


def _other_architecture(workload: WorkloadView, details: Details) -> str:
    return "leave out --arch, or give an architecture of the nodes (`mooring nodes -o wide`)"


def _other_runtime(workload: WorkloadView, details: Details) -> str:
    runtime = str(details.get("runtime", ""))
    instead = {
        "container": "; without --image it runs as a process",
        "process": "; with --image it runs as a container",
    }.get(runtime, "")
    return f"choose a pool whose nodes offer it with --pool (`mooring pool list`){instead}"


def _not_ready(workload: WorkloadView, details: Details) -> str:
    return "`mooring nodes` shows their problems; `mooring resume NODE` resumes a drained node"


def _paused(workload: WorkloadView, details: Details) -> str:
    pool = details.get("pool", "POOL")
    return f"an administrator can run `mooring pool resume {pool}`; or choose another pool with --pool"


def _owned(workload: WorkloadView, details: Details) -> str:
    return (
        "an agent without root runs only its owner's processes: start it as root, add a node, or choose another --pool"
    )


def _better_isolated(workload: WorkloadView, details: Details) -> str:
    return "`mooring nodes` shows the isolation of each node; choose another --pool, or run it as a container (--image)"


def _over_limit(workload: WorkloadView, details: Details) -> str:
    if (workload.reason or {}).get("cure") != "release":
        return "ask for less, or ask an administrator for a higher limit; `mooring quota` shows the limits"
    return "it starts when other work under the same limit ends; `mooring quota` shows the limits"


def _not_due(workload: WorkloadView, details: Details) -> str:
    return f"no action is needed: it is scheduled from {details.get('starts_at', 'its start time')}"


def _dependencies(workload: WorkloadView, details: Details) -> str:
    return f"`mooring status {workload.name}` shows its dependencies"


def _wait(workload: WorkloadView, details: Details) -> str:
    return f"`mooring history {workload.name}` shows the failures; it is retried automatically"


_REMEDIES: Mapping[str, Callable[[WorkloadView, Details], str]] = {
    "insufficient-nodes": _too_few_nodes,
    "no-nodes": _no_nodes,
    "insufficient-resources": _insufficient_capacity,
    "tasks-per-node": _insufficient_capacity,
    "max-per-node": _more_per_node,
    "strict-group": _strict_group,
    "architecture-mismatch": _other_architecture,
    "runtime-missing": _other_runtime,
    "node-not-ready": _not_ready,
    "node-owned": _owned,
    "isolation-insufficient": _better_isolated,
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
