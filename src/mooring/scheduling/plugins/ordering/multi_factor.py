"""Multi-factor priority: a weighted sum of factors from 0 to 1, with the weights of the pool.

`age`: waiting time, up to a week. `fair_share`: low recent usage of its tenants. `size`: requested part of the pool, so
that large workloads are not passed over indefinitely; `smallness`: the opposite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from mooring.model.errors import InvalidInput
from mooring.model.workloads.workload import Workload
from mooring.scheduling.plugins.ordering.bands import arrival_key, sorted_offer
from mooring.scheduling.plugins.ordering.drf import dominant_share
from mooring.scheduling.plugins.ordering.fair_share import factors_of
from mooring.scheduling.plugins.protocols import SHARE_ONE, Offer, OrderingContext

FACTORS = ("age", "fair_share", "size", "smallness")
_DEFAULT = {"age": 1, "fair_share": 1, "size": 1}
_OLD = timedelta(days=7)
_MOMENT = timedelta(seconds=1)


class MultiFactorSequencer:
    name = "multi_factor"

    def __init__(self, weights: Mapping[str, int] | None = None) -> None:
        """`weights` by the names of `FACTORS`; without any, age, fair share and size count alike."""
        self._weights = dict(weights or _DEFAULT)
        unknown = sorted(self._weights.keys() - set(FACTORS))
        if unknown:
            raise InvalidInput(
                f"there is no factor {unknown[0]!r}; known are {', '.join(FACTORS)}",
                code="unknown-factor",
                details={"factor": unknown[0], "known": list(FACTORS)},
            )
        if any(weight < 0 for weight in self._weights.values()) or not sum(self._weights.values()):
            raise InvalidInput("weights of factors are 0 or more, and at least one is above 0", code="invalid-weight")

    def offers(self, bands: Sequence[Sequence[Workload]], context: OrderingContext) -> Iterator[Offer]:
        def key(workload: Workload) -> tuple[int, datetime, int]:
            return -self._merit(workload, context), *arrival_key(workload)

        return sorted_offer(bands, key)

    def _merit(self, workload: Workload, context: OrderingContext) -> int:
        return sum(weight * _part(name, workload, context) for name, weight in self._weights.items() if weight)


def _part(name: str, workload: Workload, context: OrderingContext) -> int:
    """Return whole numbers up to `SHARE_ONE`, so that the same queue has the same order everywhere."""
    if name == "age":
        waited = max(context.now - workload.created_at, timedelta(0))
        return SHARE_ONE * (min(waited, _OLD) // _MOMENT) // (_OLD // _MOMENT)
    if name == "fair_share":
        domain, project, user = factors_of(workload, context.factors)
        return round(domain * project * user * SHARE_ONE)
    requested = {slot: amount * len(workload.tasks) for slot, amount in workload.request.items()}
    size = min(dominant_share(requested, context.capacity(workload.pool)), SHARE_ONE)
    return size if name == "size" else SHARE_ONE - size
