"""First come, first served."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mooring.model.workloads import Workload
from mooring.scheduling.ordering.bands import in_line, turn
from mooring.scheduling.plugins import Offer, Situation


class FifoSequencer:
    name = "fifo"

    def offers(self, bands: Sequence[Sequence[Workload]], situation: Situation) -> Iterator[Offer]:
        return in_line(bands, turn)
