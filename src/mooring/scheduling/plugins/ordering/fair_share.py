"""Fair share: the least recent usage first, compared by domain, then by project, then by user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from mooring.model.tenancy.fair_share import Factors
from mooring.model.workloads.workload import Workload
from mooring.scheduling.plugins.ordering.bands import arrival_key, sorted_offer
from mooring.scheduling.plugins.protocols import Offer, OrderingContext


class FairShareSequencer:
    name = "fair_share"

    def offers(self, bands: Sequence[Sequence[Workload]], context: OrderingContext) -> Iterator[Offer]:
        factors = context.factors

        def key(workload: Workload) -> tuple[float, float, float, datetime, int]:
            domain, project, user = factors_of(workload, factors)
            return -domain, -project, -user, *arrival_key(workload)

        return sorted_offer(bands, key)


def factors_of(workload: Workload, factors: Factors) -> tuple[float, float, float]:
    """Return the factors of its domain, project, and user in the project. Unknown tenants have used nothing: 1."""
    return (
        factors.domains.get(workload.domain_id, 1.0),
        factors.projects.get(workload.project_id, 1.0),
        factors.users.get((workload.project_id, workload.user_id), 1.0),
    )
