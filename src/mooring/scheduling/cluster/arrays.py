"""Types of the arrays that columns, filters and scorers exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]
Scores: TypeAlias = NDArray[np.int64]
Amount: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """A request by slot of the cluster. All arrays have the shape (n, 1), so that they broadcast over rows."""

    slots: NDArray[np.intp]
    names: tuple[str, ...]
    amounts: Amount
    cpu_and_memory: Amount
    uncounted: Amount
    """CPU and memory that scoring adds for containers without a request."""
    by_slot: tuple[tuple[int, int], ...]
    """Pairs of slot and amount, for a row that is looked at alone: arrays have a fixed cost of their own."""

    def times(self, count: int) -> Demand:
        """Return the demand of `count` tasks."""
        return replace(
            self,
            amounts=self.amounts * count,
            cpu_and_memory=self.cpu_and_memory * count,
            by_slot=tuple((slot, amount * count) for slot, amount in self.by_slot),
        )
