"""The newest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mooring.model.workloads import Workload
from mooring.scheduling.ordering.bands import in_line, turn
from mooring.scheduling.plugins import Offer, Situation


class LifoSequencer:
    name = "lifo"

    def offers(self, bands: Sequence[Sequence[Workload]], situation: Situation) -> Iterator[Offer]:
        return in_line(bands, turn, backwards=True)
