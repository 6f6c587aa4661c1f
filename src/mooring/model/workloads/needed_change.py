"""The change without which a pending workload cannot start, read from its stored reason. Pure.

The reason has the amounts, so the change does not repeat them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CURED_BY_TIME = frozenset({"backing-off", "before-timeslot", "not-due-yet", "dependencies-not-met", "blocked"})
"""Codes of reasons that need neither released capacity nor a change."""
_CHANGES = {
    "no-nodes": "its pool gets a node",
    "node-not-ready": "a node of its pool becomes ready",
    "pool-paused": "its pool is resumed",
    "tenant-inactive": "an administrator activates its owner again",
    "runtime-missing": "a node of its pool offers its runtime",
    "architecture-mismatch": "its pool gets a node of its architecture, or it asks for another",
    "constraint-evaluation-failed": "the plugin that failed is fixed",
    "insufficient-nodes": "its pool gets more nodes, or it asks for fewer tasks",
}


def needed_change(reason: Mapping[str, Any] | None) -> str | None:
    """Return what has to change before the workload can start; None if waiting may be enough."""
    if not reason or reason.get("cure", "release") == "release" or reason.get("code") in _CURED_BY_TIME:
        return None
    details = reason.get("details") or {}
    changes = [*_limits(details), *_sizes(details)]
    if changes:
        return "; and ".join(changes)
    return _CHANGES.get(str(reason.get("code")), "its request or the nodes of its pool change")


def _limits(details: Mapping[str, Any]) -> list[str]:
    """Return the limits that are too low for the request alone."""
    slots = [each["slot"] for each in details.get("violations") or () if each["requested"] > each["limit"]]
    return [f"its {slot} limit is raised, or it asks for less" for slot in dict.fromkeys(slots)]


def _sizes(details: Mapping[str, Any]) -> list[str]:
    """Return the nodes that are too small for a task even when they are empty."""
    return [
        f"its pool gets a node with more {slot}, or it asks for less"
        for slot, amounts in (details.get("lacking") or {}).items()
        if amounts.get("needs", 0) > amounts.get("largest", amounts.get("needs", 0))
    ]
