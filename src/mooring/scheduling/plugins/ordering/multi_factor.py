"""A mix of what speaks for a workload, each part from nothing to one, weighed as the pool says.

`age`: how long it waits, up to a week. `fair_share`: how little its tenants used lately. `size`: how much of the pool
it asks for, so that large work is not passed over for ever; `smallness`: how little.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from mooring.model.errors import InvalidInput
from mooring.model.workloads import Workload
from mooring.scheduling.ordering.bands import in_line, turn
from mooring.scheduling.ordering.drf import dominant_share
from mooring.scheduling.ordering.fair_share import factors_of
from mooring.scheduling.plugins import SHARE_ONE, Offer, Situation

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
            raise InvalidInput("weights of factors are 0 or more, and at least one is above", code="invalid-weight")

    def offers(self, bands: Sequence[Sequence[Workload]], situation: Situation) -> Iterator[Offer]:
        def key(workload: Workload) -> tuple[int, datetime, int]:
            return -self._merit(workload, situation), *turn(workload)

        return in_line(bands, key)

    def _merit(self, workload: Workload, situation: Situation) -> int:
        return sum(weight * _part(name, workload, situation) for name, weight in self._weights.items() if weight)


def _part(name: str, workload: Workload, situation: Situation) -> int:
    """Whole numbers up to `SHARE_ONE`, so that the same queue has the same order everywhere."""
    if name == "age":
        waited = max(situation.now - workload.created_at, timedelta(0))
        return SHARE_ONE * (min(waited, _OLD) // _MOMENT) // (_OLD // _MOMENT)
    if name == "fair_share":
        domain, project, user = factors_of(workload, situation.factors)
        return round(domain * project * user * SHARE_ONE)
    asked = {slot: amount * len(workload.tasks) for slot, amount in workload.request.items()}
    size = min(dominant_share(asked, situation.capacity(workload.pool)), SHARE_ONE)
    return size if name == "size" else SHARE_ONE - size
