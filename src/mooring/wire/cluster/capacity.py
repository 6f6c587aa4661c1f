"""Schemas of the capacity of pools."""

from __future__ import annotations

from mooring.wire.cluster.nodes import SlotView
from mooring.wire.fields import Answer


class PoolCapacity(Answer):
    pool: str
    states: dict[str, int]
    """The number of nodes by state: their status, or `DRAINING`."""
    slots: dict[str, SlotView]
    """The sums over all its nodes, whatever their state."""


class CapacityList(Answer):
    pools: list[PoolCapacity]
