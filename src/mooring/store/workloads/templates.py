"""What the tasks of a workload are made from, as a JSON column, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

import msgspec

from mooring.model.containers import TaskTemplate

_ALWAYS_KEPT = frozenset({"name", "restart", "max_restarts", "stop_grace_seconds"})
"""Statements and agents read these as they are stored."""


def encode(template: TaskTemplate) -> dict[str, Any]:
    """What differs from the defaults: most containers say little of what they could."""
    encoded: dict[str, Any] = msgspec.to_builtins(_said(template))
    return encoded


def decode(encoded: Mapping[str, Any]) -> TaskTemplate:
    """Also what was stored when containers had fewer fields."""
    return msgspec.convert(encoded, TaskTemplate)


def _said(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_said(each) for each in value]
    if not is_dataclass(value):
        return value
    said = {field.name: (getattr(value, field.name), _default(field)) for field in fields(value)}
    return {name: _said(own) for name, (own, usual) in said.items() if name in _ALWAYS_KEPT or own != usual}


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
