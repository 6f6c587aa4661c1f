"""First come, first served."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mooring.model.workloads.workload import Workload
from mooring.scheduling.plugins.ordering.bands import arrival_key, sorted_offer
from mooring.scheduling.plugins.protocols import Offer, OrderingContext


class FifoSequencer:
    name = "fifo"

    def offers(self, bands: Sequence[Sequence[Workload]], context: OrderingContext) -> Iterator[Offer]:
        return sorted_offer(bands, arrival_key)
