"""Devices of a slot such as `gpu`, each with an index, so that none is allocated twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

WHOLE = 1000
"""A whole device in the base unit of slots that are counted in thousandths."""
MAX_DEVICES = 256
"""Maximum devices of one slot of a node: each has a row of its own."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a node and its occupied amount, in base units of its slot."""

    index: int
    capacity: int = WHOLE
    model: str | None = None
    memory: int | None = None
    """Bytes; None if unknown."""
    taken: int = 0

    @property
    def free(self) -> int:
        return self.capacity - self.taken


class DeviceShare(NamedTuple):
    """The amount of one device that is allocated to a task."""

    slot: str
    device: int
    amount: int


def by_slot(shares: Iterable[DeviceShare]) -> dict[str, list[tuple[int, int]]]:
    """Return devices by slot as index and amount, the form in which they are stored and shown."""
    found: dict[str, list[tuple[int, int]]] = {}
    for share in shares:
        found.setdefault(share.slot, []).append((share.device, share.amount))
    return found


def shares_of(devices: Mapping[str, Sequence[tuple[int, int]]] | None) -> list[DeviceShare]:
    """Return the device shares that `by_slot` encoded."""
    return [DeviceShare(slot, index, amount) for slot, shares in (devices or {}).items() for index, amount in shares]


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """Requirements for each device of a slot that a task is assigned."""

    slot: str
    models: frozenset[str] = frozenset()
    """Any of these models; empty: any model."""
    memory: int = 0
    """Bytes of device memory that the device share must include."""
