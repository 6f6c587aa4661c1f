"""Weights of scorers: a whole number, or a priority times a coefficient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from mooring.model.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Weight:
    priority: int = 1
    coefficient: Fraction = Fraction(1)

    @property
    def value(self) -> Fraction:
        return self.priority * self.coefficient


def whole_weights(weights: Mapping[str, int | Weight]) -> dict[str, int]:
    """Return weights in the same proportions as whole numbers."""
    exact = {name: _exact(name, weight) for name, weight in weights.items()}
    scale = lcm(*(value.denominator for value in exact.values()))
    return {name: int(value * scale) for name, value in exact.items()}


def _exact(name: str, weight: object) -> Fraction:
    value = weight.value if isinstance(weight, Weight) else weight
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)) or value <= 0:
        given = value if isinstance(weight, Weight) else weight
        raise InvalidInput(
            f"the weight of {name!r} is {given!r}; it must be a whole number above 0, or a Weight",
            code="invalid-weight",
        )
    return Fraction(value)
