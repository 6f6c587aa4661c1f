"""Options of a workload as columns of its row: one per placement option, and a document for the rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from mooring.model.workloads.lifetime.rollouts import Rollout
from mooring.model.workloads.workload import PLACEMENT_OPTIONS, OnInsufficient, PlacementOptions, placement_options
from mooring.store.core.types import AnyRow


def encode_options(options: PlacementOptions) -> dict[str, Any]:
    """Return the column values of the options."""
    return placement_options(options) | {"pack": list(options.pack) or None}


def decode_options(row: AnyRow) -> dict[str, Any]:
    """Return the options of a row as keyword arguments of the classes that have them."""
    return {name: getattr(row, name) for name in PLACEMENT_OPTIONS} | {
        "pack": tuple(row.pack or ()),
        "on_insufficient": OnInsufficient(row.on_insufficient),
    }


def encode_rollout(rollout: Rollout) -> dict[str, Any]:
    """Return the document of a deployment's rollout: its policy and its progress."""
    encoded: dict[str, Any] = msgspec.to_builtins(asdict(rollout))
    return encoded


def decode_rollout(encoded: Mapping[str, Any] | None) -> Rollout:
    """Return the stored rollout, or the default if none is stored."""
    return Rollout() if encoded is None else msgspec.convert(encoded, Rollout)
