"""Schemas of quotas: the limits of tenants, and their usage."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from mooring.wire.fields import Answer, Name, Quantity, Request, SlotName

MAX_SLOTS = 64

ScopeName = Literal["keypair", "user", "project", "domain"]


class QuotaChange(Request):
    """Only the given fields change; null removes a limit. Lowering a limit below the usage stops nothing."""

    limits: Annotated[dict[SlotName, Quantity | None], Field(max_length=MAX_SLOTS)] = {}
    """By slot; `sessions` and `private-sessions` count workloads."""
    until: Annotated[datetime | None, Field(strict=False)] = None
    """The limits are temporary and replace the tenant's permanent ones until then."""
    guaranteed: Annotated[dict[SlotName, Quantity | None], Field(max_length=MAX_SLOTS)] = {}
    """The amounts that the project is guaranteed in the pool."""
    pool: Name | None = None


class QuotaLine(Answer):
    """One slot of one tenant; amounts in readable form."""

    scope: ScopeName
    tenant: str
    """A keypair's access key, otherwise the id."""
    name: str
    slot: str
    limit: str | None
    """None: no limit of its own."""
    until: datetime | None = None
    """The end of a temporary limit, which replaces the permanent one until then."""
    reserved: str
    used: str
    borrowed: str | None = None
    """Of a project: what it has above its guarantees in pools where projects have some."""
    guaranteed: str | None = None
    """Of a project: its guarantees in these pools."""
    pending: str = "0"
    """Requested by work that waits."""
    left: str | None


class GuaranteeLine(Answer):
    """The guarantee of a project in a pool, and its use there."""

    pool: str
    slot: str
    guaranteed: str
    in_use: str
    borrowed: str


class QuotaView(Answer):
    quotas: list[QuotaLine]
    """Level by level, the innermost first."""
    guarantees: list[GuaranteeLine] = []
