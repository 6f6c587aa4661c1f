"""The bits of a key: (tier, own tasks, weighted sum of scores, precedence) from the highest to the lowest."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.model.decisions import SCORE_ONE

_DESIGNATED_BIT = 60
"""The highest bit of a key. Below it are the workload's own tasks on the node, for workloads that spread."""


@dataclass(frozen=True, slots=True)
class KeyLayout:
    precedence_bits: int
    weighted_bits: int

    @classmethod
    def of(cls, capacity: int, total_weight: int) -> KeyLayout:
        """Return the layout for this number of rows, a power of two, and scorers with this total weight."""
        return cls(capacity.bit_length() - 1, (SCORE_ONE * total_weight).bit_length())

    @property
    def own_shift(self) -> int:
        return self.precedence_bits + self.weighted_bits + 1

    @property
    def weighted_mask(self) -> int:
        return (1 << self.weighted_bits) - 1

    @property
    def tiers(self) -> tuple[int, int]:
        """The amounts that a node without a failed attempt, and a designated node, add to the weighted sum."""
        return 1 << self.weighted_bits, 1 << _DESIGNATED_BIT - self.precedence_bits

    @property
    def max_own_tasks(self) -> int:
        """The most own tasks per node that a workload that spreads can have."""
        return (1 << max(_DESIGNATED_BIT - self.own_shift, 0)) - 1
