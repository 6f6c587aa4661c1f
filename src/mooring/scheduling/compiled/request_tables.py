"""The typical requests of all pools as tables that the kernels read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from mooring.scheduling.cluster.typical_requests import FALLBACK, TypicalRequest, devices_and_share
from mooring.scheduling.cluster.value_codes import Codes


class RequestTables:
    """Table 0 is for pools without typical requests. Requests without devices count only in a table's total weight."""

    def __init__(self, typical: Mapping[str, Sequence[TypicalRequest]], models: Codes[str | None]) -> None:
        of_pools = {pool: requests for pool, requests in typical.items() if requests}
        self._number_of = {pool: number for number, pool in enumerate(of_pools, start=1)}
        tables: list[tuple[int, int, int]] = []
        thresholds: list[tuple[int, int, int]] = []
        requests: list[TypicalRequest] = []
        for table in (FALLBACK, *of_pools.values()):
            first = len(thresholds)
            with_devices = sorted((each for each in table if _share(each)), key=_share)
            for share, same_share in groupby(with_devices, key=_share):
                start = len(requests)
                requests.extend(same_share)
                thresholds.append((share, start, len(requests)))
            tables.append((first, len(thresholds), sum(each.weight for each in table)))
        self.tables: NDArray[np.int64] = np.array(tables, dtype=np.int64)
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
        """Return the number of a pool's table."""
        return self._number_of.get(pool, 0)


def _share(typical: TypicalRequest) -> int:
    return devices_and_share(typical)[1]
