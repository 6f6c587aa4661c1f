"""The typical requests of all pools as the tables that the kernels read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mooring.scheduling import kernels
from mooring.scheduling.codes import Codes
from mooring.scheduling.scorers.fragmentation import devices_and_share
from mooring.scheduling.typical import FALLBACK, Typical

_NEVER = 1 << 40
"""So many devices no node has: what asks for none finds nothing useful."""


class Mixes:
    """Mix 0 is that of pools which were told none."""

    def __init__(self, typical: Mapping[str, Sequence[Typical]], models: Codes[str | None]) -> None:
        told = {pool: requests for pool, requests in typical.items() if requests}
        self._number_of = {pool: number for number, pool in enumerate(told, start=1)}
        each = [FALLBACK, *told.values()]
        requests = [request for mix in each for request in mix]
        self.mixes: NDArray[np.int64] = np.zeros((len(each), 5), dtype=np.int64)
        self.typical: NDArray[np.int64] = np.zeros((len(requests), 5), dtype=np.int64)
        self.allowed: NDArray[np.uint8] = np.array(
            [[not request.models or model in request.models for model in models.values] for request in requests],
            dtype=np.uint8,
        )
        thresholds: list[int] = []
        first = 0
        for number, mix in enumerate(each):
            distinct = sorted({devices_and_share(request)[1] for request in mix})
            self.mixes[number] = (
                first,
                first + len(mix),
                len(thresholds),
                len(thresholds) + len(distinct),
                sum(request.weight for request in mix),
            )
            for at, request in enumerate(mix, start=first):
                devices, share = devices_and_share(request)
                self.typical[at, kernels.TYPICAL_CPU] = request.request.get("cpu", 0)
                self.typical[at, kernels.TYPICAL_MEMORY] = request.request.get("memory", 0)
                self.typical[at, kernels.TYPICAL_DEVICES] = devices or _NEVER
                self.typical[at, kernels.THRESHOLD] = distinct.index(share)
                self.typical[at, kernels.TYPICAL_WEIGHT] = request.weight
            thresholds.extend(distinct)
            first += len(mix)
        self.thresholds: NDArray[np.int64] = np.array(thresholds, dtype=np.int64)

    @property
    def most_thresholds(self) -> int:
        return int((self.mixes[:, kernels.LAST_THRESHOLD] - self.mixes[:, kernels.FIRST_THRESHOLD]).max())

    def number(self, pool: str) -> int:
        return self._number_of.get(pool, 0)
