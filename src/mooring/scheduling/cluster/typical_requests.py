"""Typical requests: what is usually asked for in a pool, by which the use of a device that is left over is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mooring.model.devices import WHOLE
from mooring.model.errors import InvalidInput
from mooring.model.slots import Amounts

MOST_WEIGHT = 1_000_000
"""Of all typical requests of a pool together, so that weighted amounts stay far below the end of int64."""


@dataclass(frozen=True, slots=True)
class Typical:
    """A request that is asked for often: its processor, memory and devices are looked at.

    `weight` is its popularity in whole numbers, relative to the others.
    """

    request: Amounts = field(hash=False)
    weight: int = 1
    models: frozenset[str] = frozenset()
    """Device models that it can use; none named means any."""


def check_typical(typical: Sequence[Typical]) -> None:
    """InvalidInput for weights that cannot be meant."""
    if any(each.weight < 0 for each in typical) or sum(each.weight for each in typical) > MOST_WEIGHT:
        raise InvalidInput(
            f"the weights of typical requests are whole numbers from 0, together at most {MOST_WEIGHT:,}",
            code="invalid-typical",
        )
    if typical and not any(each.weight for each in typical):
        raise InvalidInput("typical requests need a weight above 0", code="invalid-typical")


def _devices(amount: int, weight: int) -> Typical:
    request: Mapping[str, int] = {"gpu": amount}
    return Typical(request, weight)


FALLBACK = (
    _devices(WHOLE // 4, 15),
    _devices(WHOLE // 2, 20),
    _devices(WHOLE * 4 // 5, 15),
    _devices(WHOLE, 40),
    _devices(2 * WHOLE, 4),
    _devices(4 * WHOLE, 3),
    _devices(8 * WHOLE, 3),
)
"""The mix where a pool was told none: about what a large shared cluster sees (Weng et al., ATC 2023)."""
