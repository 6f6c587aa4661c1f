"""How a deployment's tasks are replaced and how far that is, as its column holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from mooring.model.rollouts import Rollout


def encode(rollout: Rollout) -> dict[str, Any]:
    encoded: dict[str, Any] = msgspec.to_builtins(asdict(rollout))
    return encoded


def decode(encoded: Mapping[str, Any] | None) -> Rollout:
    """None: nothing was ever said about it."""
    return Rollout() if encoded is None else msgspec.convert(encoded, Rollout)
