"""Constraints and taints as JSON columns, and back."""

from __future__ import annotations

from typing import Any

import msgspec

from mooring.model.workloads.constraints import Constraints, Taint


def encode_constraints(constraints: Constraints) -> dict[str, Any]:
    """Return only what differs from the defaults, so that most rows are small."""
    encoded: dict[str, Any] = msgspec.to_builtins(constraints)
    return {name: value for name, value in encoded.items() if value != _DEFAULTS[name]}


def decode_constraints(encoded: dict[str, Any]) -> Constraints:
    return msgspec.convert(encoded, Constraints) if encoded else _NONE


def encode_taints(taints: tuple[Taint, ...]) -> list[dict[str, Any]]:
    encoded: list[dict[str, Any]] = msgspec.to_builtins(taints)
    return encoded


def decode_taints(encoded: list[dict[str, Any]]) -> tuple[Taint, ...]:
    return msgspec.convert(encoded, tuple[Taint, ...])


_NONE = Constraints()
_DEFAULTS: dict[str, Any] = msgspec.to_builtins(_NONE)
