"""Who used least lately comes first: domains before each other, then their projects, then the users of these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from mooring.model.fair_share import Factors
from mooring.model.workloads import Workload
from mooring.scheduling.ordering.bands import in_line, turn
from mooring.scheduling.plugins import Offer, Situation


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
