"""Column types and helpers that both databases share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, Row
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator

AnyRow = Row[*tuple[Any, ...]]
"""A row whose columns are read by name."""


class UtcDateTime(TypeDecorator[datetime]):
    """An instant. Goes in with a zone, is kept in UTC, comes out with the zone UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone cannot be stored")
        return value.astimezone(UTC)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        instant: datetime = value
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def json_type() -> JSON:
    return JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
