"""Typical requests of a pool, which measure the fragmentation of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mooring.model.errors import InvalidInput
from mooring.model.resources.devices import WHOLE
from mooring.model.resources.slots import Amounts

DEVICE_SLOT = "gpu"
"""The slot whose devices typical requests name."""
MOST_WEIGHT = 1_000_000
"""Limit on the total weight of a pool's typical requests, so that weighted amounts stay far below the end of int64."""


@dataclass(frozen=True, slots=True)
class TypicalRequest:
    """A frequent request: its CPU, memory and devices count.

    `weight` is its frequency relative to the others, as a whole number.
    """

    request: Amounts = field(hash=False)
    weight: int = 1
    models: frozenset[str] = frozenset()
    """Device models that it can use; empty for any."""


Typical = TypicalRequest
"""The former name of `TypicalRequest`, kept as an alias."""


def check_typical(typical: Sequence[TypicalRequest]) -> None:
    """Raise InvalidInput for invalid weights."""
    if any(each.weight < 0 for each in typical) or sum(each.weight for each in typical) > MOST_WEIGHT:
        raise InvalidInput(
            f"the weights of typical requests are whole numbers from 0, together at most {MOST_WEIGHT:,}",
            code="invalid-typical",
        )
    if typical and not any(each.weight for each in typical):
        raise InvalidInput("typical requests need a weight above 0", code="invalid-typical")


def devices_and_share(typical: TypicalRequest) -> tuple[int, int]:
    """Return the number of devices that a typical request needs, and the share of each."""
    amount = typical.request.get(DEVICE_SLOT, 0)
    devices = -(-amount // WHOLE)
    return devices, -(-amount // devices) if devices else 0


def _devices(amount: int, weight: int) -> TypicalRequest:
    request: Mapping[str, int] = {DEVICE_SLOT: amount}
    return TypicalRequest(request, weight)


FALLBACK = (
    _devices(WHOLE // 4, 15),
    _devices(WHOLE // 2, 20),
    _devices(WHOLE * 4 // 5, 15),
    _devices(WHOLE, 40),
    _devices(2 * WHOLE, 4),
    _devices(4 * WHOLE, 3),
    _devices(8 * WHOLE, 3),
)
"""Used for pools without typical requests: about those of a large shared cluster (Weng et al., ATC 2023)."""
