"""Who used least lately comes first: domains before each other, then their projects, then the users of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from mooring.model.workloads import Workload
from mooring.scheduling.ordering.bands import in_line, turn
from mooring.scheduling.plugins import Factors, Offer, Situation

_DAY_SECONDS = 86_400
_STANDARD_WEIGHT = 1000
_STEEPEST = 10.0


class FairShareSequencer:
    name = "fair_share"

    def offers(self, bands: Sequence[Sequence[Workload]], situation: Situation) -> Iterator[Offer]:
        factors = situation.factors

        def key(workload: Workload) -> tuple[float, float, float, datetime, int]:
            domain, project, user = factors_of(workload, factors)
            return -domain, -project, -user, *turn(workload)

        return in_line(bands, key)


def factors_of(workload: Workload, factors: Factors) -> tuple[float, float, float]:
    """Of its domain, its project, and its user in that project. Who is not known has used nothing: 1."""
    return (
        factors.domains.get(workload.domain_id, 1.0),
        factors.projects.get(workload.project_id, 1.0),
        factors.users.get((workload.project_id, workload.user_id), 1.0),
    )


def decay(days: float, half_life_days: float) -> float:
    """What is left of use that is so many days old."""
    return float(2.0 ** (-days / half_life_days))


def factor(
    decayed_usage: Mapping[str, float],
    capacity: Mapping[str, int],
    lookback_days: int,
    slot_weights: Mapping[str, int],
    weight: float = 1.0,
) -> float:
    """1 for who used nothing, towards 0 the more of the pool's capacity over the lookback was used.

    `decayed_usage` is in amounts times seconds, `slot_weights` are in thousandths (1000 where not named); a tenant of
    twice the `weight` may use twice as much.
    """
    weighed = [(slot, slot_weights.get(slot, _STANDARD_WEIGHT)) for slot, amount in sorted(capacity.items()) if amount]
    total = sum(slot_weight for _, slot_weight in weighed)
    if not total or weight <= 0:
        return 1.0
    seconds = lookback_days * _DAY_SECONDS
    normalised = (
        sum(decayed_usage.get(slot, 0) / (capacity[slot] * seconds) * slot_weight for slot, slot_weight in weighed)
        / total
    )
    return float(min(1.0, 2.0 ** -min(_STEEPEST, normalised / weight)))
