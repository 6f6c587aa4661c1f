"""The arrays in which columns are read, asked and answered."""

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
    """A request in the cluster's terms. All arrays stand upright, (n, 1), and so broadcast over rows."""

    slots: NDArray[np.intp]
    names: tuple[str, ...]
    amounts: Amount
    cpu_and_memory: Amount
    uncounted: Amount
    """What scoring adds to processor and memory for containers that ask for none."""

    def times(self, count: int) -> Demand:
        """So many of it at once."""
        return replace(self, amounts=self.amounts * count, cpu_and_memory=self.cpu_and_memory * count)
