"""Schemas of quotas: how much tenants may use, and what of it they do."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from mooring.wire.fields import Answer, Name, Quantity, Request, SlotName

MAX_SLOTS = 64

ScopeName = Literal["keypair", "user", "project", "domain"]


class QuotaChange(Request):
    """Only what is named changes; null takes it away. Lowering a limit below what is in use stops nothing."""

    limits: Annotated[dict[SlotName, Quantity | None], Field(max_length=MAX_SLOTS)] = {}
    """By slot; `sessions` and `private-sessions` count workloads."""
    until: Annotated[datetime | None, Field(strict=False)] = None
    """The limits stand in place of the tenant's others until then."""
    guaranteed: Annotated[dict[SlotName, Quantity | None], Field(max_length=MAX_SLOTS)] = {}
    """What a project has for sure in the pool."""
    pool: Name | None = None


class QuotaLine(Answer):
    """One slot of one tenant; amounts as people write them."""

    scope: ScopeName
    tenant: str
    """A keypair's access key, otherwise the id."""
    name: str
    slot: str
    limit: str | None
    """None: no limit of its own."""
    until: datetime | None = None
    """When the limit is over: it stands in place of another until then."""
    reserved: str
    used: str
    borrowed: str | None = None
    """Of a project: what it has above its guarantees in pools where projects have some."""
    left: str | None


class GuaranteeLine(Answer):
    """What the project has for sure in a pool, and what it has there."""

    pool: str
    slot: str
    guaranteed: str
    in_use: str
    borrowed: str


class QuotaView(Answer):
    quotas: list[QuotaLine]
    """Level by level, the innermost first."""
    guarantees: list[GuaranteeLine] = []
