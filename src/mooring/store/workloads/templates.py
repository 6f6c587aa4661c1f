"""Encoding of a workload's task template as a JSON column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

import msgspec

from mooring.model.workloads.containers import TaskTemplate

_ALWAYS_STORED = frozenset({"name", "restart", "max_restarts", "stop_grace_seconds"})
"""Fields that SQL statements and agents read from the stored form."""


def encode(template: TaskTemplate) -> dict[str, Any]:
    """Return the fields that differ from the defaults: most containers set few of them."""
    encoded: dict[str, Any] = msgspec.to_builtins(_said(template))
    return encoded


def decode(encoded: Mapping[str, Any]) -> TaskTemplate:
    """Return the template; rows stored when containers had fewer fields are valid too."""
    return msgspec.convert(encoded, TaskTemplate)


def _said(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_said(each) for each in value]
    if not is_dataclass(value):
        return value
    said = {field.name: (getattr(value, field.name), _default(field)) for field in fields(value)}
    return {name: _said(own) for name, (own, usual) in said.items() if name in _ALWAYS_STORED or own != usual}


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
