"""Weights of scorers: a whole number, or a priority times a coefficient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


DEFAULT = Weight()
HIGH = Weight(10, Fraction(3))
LOW = Weight(1, Fraction(1, 2))


def weighted_sum(scores: Iterable[tuple[int, Weight]]) -> Fraction:
    """The final score: the sum of score times weight."""
    return sum((score * weight.value for score, weight in scores), Fraction(0))


def whole_weights(weights: Mapping[str, int | Weight]) -> dict[str, int]:
    """The same proportions in whole numbers."""
    exact = {name: _exact(name, weight) for name, weight in weights.items()}
    scale = lcm(*(value.denominator for value in exact.values()))
    return {name: int(value * scale) for name, value in exact.items()}


def _exact(name: str, weight: object) -> Fraction:
    value = weight.value if isinstance(weight, Weight) else weight
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)) or value <= 0:
        told = value if isinstance(weight, Weight) else weight
        raise InvalidInput(
            f"the weight of {name!r} is {told!r}; it must be a whole number above 0, or a Weight", code="invalid-weight"
        )
    return Fraction(value)
