"""Schemas of fair share and occupancy: weights, past use and rank of tenants, and the amounts they occupy."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from mooring.wire.fields import Answer, Request

WeightedScope = Literal["user", "project", "domain"]
Axis = Literal["keypair", "user", "project", "domain", "node"]


class WeightRequest(Request):
    weight: Annotated[int, Field(ge=1, le=10_000)]
    """In hundredths: 200 entitles a tenant to twice as much as the default of 100."""


class ShareView(Answer):
    """The fair-share rank of one tenant in a pool."""

    scope: WeightedScope
    id: UUID
    name: str
    """A project with its domain before it, a user with its project: `lab/vision/ada`."""
    weight: int
    used_percent: float
    """Decayed past use, as a fraction of the pool's capacity over the lookback time."""
    held_percent: float
    """Of a user: its dominant share, the largest fraction of a slot of the pool that it holds now."""
    factor: float
    """From 0 to 1: halves with every use of the whole pool."""
    rank: int
    """1 comes first, among all tenants of the scope in this pool."""


class ShareList(Answer):
    pool: str
    sequencer: str
    """The order of the pool: ranks follow what users hold in `fair_queue`, and past use in the others."""
    shares: list[ShareView]


class OccupancyLine(Answer):
    axis: Axis
    name: str
    slot: str
    amount: int
    """In base units of the slot."""
    shown: str
    """The amount in readable form."""


class OccupancyReport(Answer):
    occupancy: list[OccupancyLine]
