"""Devices: the single things behind a slot such as `gpu`, each with an index, so that none is given out twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

WHOLE = 1000
"""A whole device in the base unit of slots that are counted in thousandths."""
MOST_DEVICES = 256
"""Behind one slot of a node: each has a row of its own."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a node, with what is taken of it, in base units of its slot."""

    index: int
    capacity: int = WHOLE
    model: str | None = None
    memory: int | None = None
    """Bytes; None where it is not known."""
    taken: int = 0

    @property
    def free(self) -> int:
        return self.capacity - self.taken


class DeviceShare(NamedTuple):
    """So much of one device of the node for one task."""

    slot: str
    device: int
    amount: int


def by_slot(shares: Iterable[DeviceShare]) -> dict[str, list[tuple[int, int]]]:
    """Per slot the devices, index and amount: how a task's devices are stored and shown."""
    found: dict[str, list[tuple[int, int]]] = {}
    for share in shares:
        found.setdefault(share.slot, []).append((share.device, share.amount))
    return found


def shares_of(devices: Mapping[str, Sequence[tuple[int, int]]] | None) -> list[DeviceShare]:
    """What `by_slot` made, read back."""
    return [DeviceShare(slot, index, amount) for slot, shares in (devices or {}).items() for index, amount in shares]


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """What a task asks of each device of a slot that it gets, beyond the amount."""

    slot: str
    models: frozenset[str] = frozenset()
    """Any of these; none named means any model."""
    memory: int = 0
    """Bytes of device memory that its share of each device must bring along."""
