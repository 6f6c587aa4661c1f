"""Constraints and taints as JSON columns, and back."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Column, ColumnElement, Dialect, Text, TypeDecorator, cast, type_coerce

from mooring.model.workloads.constraints import Constraints, Taint

_MAX_SHARED, _MAX_SHARED_LENGTH = 2000, 2000
"""Constraints that are kept, and the characters of their texts: tenants choose both, and memory must stay bounded."""


class _ConstraintsText(TypeDecorator[Constraints]):
    impl = Text
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> Constraints:
        return _shared(value) if len(value) <= _MAX_SHARED_LENGTH else _decoded(value)


def stored_constraints(column: Column[Any]) -> ColumnElement[Constraints]:
    """Return a JSON column of constraints as an expression that gives constraints; equal ones may be one object."""
    return type_coerce(cast(column, Text), _ConstraintsText).label(column.name)


def _decoded(text: str) -> Constraints:
    return msgspec.json.decode(text, type=Constraints)


_shared = lru_cache(maxsize=_MAX_SHARED)(_decoded)


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
