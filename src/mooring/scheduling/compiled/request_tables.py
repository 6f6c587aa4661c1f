"""The typical requests of all pools as the tables that the kernels read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from mooring.scheduling.codes import Codes
from mooring.scheduling.scorers.fragmentation import devices_and_share
from mooring.scheduling.typical import FALLBACK, Typical


class Mixes:
    """Mix 0 is that of pools which were told none. Requests without devices count in the weight of a mix only."""

    def __init__(self, typical: Mapping[str, Sequence[Typical]], models: Codes[str | None]) -> None:
        told = {pool: requests for pool, requests in typical.items() if requests}
        self._number_of = {pool: number for number, pool in enumerate(told, start=1)}
        mixes: list[tuple[int, int, int]] = []
        thresholds: list[tuple[int, int, int]] = []
        requests: list[Typical] = []
        for mix in (FALLBACK, *told.values()):
            first = len(thresholds)
            asking = sorted((each for each in mix if _share(each)), key=_share)
            for share, alike in groupby(asking, key=_share):
                start = len(requests)
                requests.extend(alike)
                thresholds.append((share, start, len(requests)))
            mixes.append((first, len(thresholds), sum(each.weight for each in mix)))
        self.mixes: NDArray[np.int64] = np.array(mixes, dtype=np.int64)
        self.thresholds: NDArray[np.int64] = np.array(thresholds, dtype=np.int64)
        self.typical: NDArray[np.int64] = np.array(
            [
                [each.request.get("cpu", 0) for each in requests],
                [each.request.get("memory", 0) for each in requests],
                [devices_and_share(each)[0] for each in requests],
            ],
            dtype=np.int64,
        )
        self.allowed: NDArray[np.int64] = np.array(
            [[each.weight * (not each.models or model in each.models) for each in requests] for model in models.values],
            dtype=np.int64,
        )

    def number(self, pool: str) -> int:
        return self._number_of.get(pool, 0)


def _share(typical: Typical) -> int:
    return devices_and_share(typical)[1]
