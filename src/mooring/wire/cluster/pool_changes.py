"""Changes of a pool as requests give them, applied to its policy."""

from __future__ import annotations

from typing import Any

import msgspec

from mooring.model.policy.pools import PoolPolicy
from mooring.model.resources.slots import slot_type
from mooring.wire.cluster.pools import PoolChange, PreemptionChange

_NONE_WHERE_EMPTY = (
    "max_tasks_per_node",
    "default_time_seconds",
    "max_time_seconds",
    "idle_timeout_seconds",
    "shared_volumes",
    "selector",
)
_DEFAULT_REQUESTS = {"default_cpu": "cpu", "default_memory": "memory"}
"""Options that requests give as quantities of a slot and the store keeps in its base unit."""
_PAIRS = ("weights", "factors", "validators", "selector_options")
"""Options that requests give as objects and the store keeps as sorted pairs."""
_MERGED = ("backfill", "bookings", "defragmentation")
"""Options whose given fields change, and whose other fields stay."""
_NESTED_PAIRS = ("filters", "scorer_options")
"""Options that requests give as objects of objects."""


def changed(policy: PoolPolicy, asked: PoolChange) -> PoolPolicy:
    """Return the policy with the requested changes."""
    state: dict[str, Any] = msgspec.to_builtins(policy)
    given = {name: getattr(asked, name) for name in asked.model_fields_set if name in state}
    for name, value in given.items():
        if value is None:
            continue
        if name in _PAIRS:
            state[name] = sorted(value.items()) or (None if name == "weights" else [])
        elif name in _NESTED_PAIRS:
            state[name] = sorted((plugin, sorted(options.items())) for plugin, options in value.items())
        elif name == "preemption":
            state[name] = _preemption(value)
        elif name == "health":
            state[name] = value.model_dump() if value.command else None
        elif name == "fair_share":
            fair = value.model_dump(exclude_none=True)
            if "slot_weights" in fair:
                fair["slot_weights"] = sorted(fair["slot_weights"].items())
            state[name] |= fair
        elif name in _MERGED:
            state[name] |= value.model_dump(exclude_none=True)
        elif name == "scaling":
            state[name] |= value.model_dump(exclude_none=True)
            state[name]["most"] = state[name]["most"] or None
        elif name in _DEFAULT_REQUESTS:
            state[name] = slot_type(_DEFAULT_REQUESTS[name]).parse(value)
        elif name in _NONE_WHERE_EMPTY:
            state[name] = value or None
        else:
            state[name] = value
    return msgspec.convert(state, PoolPolicy)


def _preemption(asked: PreemptionChange) -> dict[str, Any] | None:
    return asked.model_dump(exclude={"enabled"}) if asked.enabled else None
