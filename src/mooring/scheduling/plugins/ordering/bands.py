"""Priority bands: whatever the sequencer, a higher priority comes first; waiting may raise it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from mooring.model.workloads import Workload
from mooring.scheduling.plugins import END_OF_TIME, Offer, Sequencer, Situation

HIGHEST_PRIORITY = 100


def in_bands(workloads: Sequence[Workload], now: datetime, ageing_seconds: int = 0) -> list[list[Workload]]:
    """The workloads by priority, the highest first. Without a time nobody has waited."""
    ages = ageing_seconds > 0 and now != END_OF_TIME
    bands: dict[int, list[Workload]] = {}
    for workload in workloads:
        priority = aged(workload, now, ageing_seconds) if ages else workload.priority
        bands.setdefault(priority, []).append(workload)
    return [bands[priority] for priority in sorted(bands, reverse=True)]


def aged(workload: Workload, now: datetime, ageing_seconds: int) -> int:
    """The priority with what waiting has added; what is above the highest stays as it is."""
    steps = max(now - workload.created_at, timedelta(0)) // timedelta(seconds=ageing_seconds)
    return max(workload.priority, min(HIGHEST_PRIORITY, workload.priority + steps))


def turn(workload: Workload) -> tuple[datetime, int]:
    """Who came first; never left to the order in which the store answers."""
    return workload.created_at, workload.id.int


def in_line(
    bands: Sequence[Sequence[Workload]], key: Callable[[Workload], Any], *, backwards: bool = False
) -> Iterator[Offer]:
    """All bands in one offer, each sorted: for orders that no placement changes."""
    yield Offer([workload for band in bands for workload in sorted(band, key=key, reverse=backwards)])


def ordered(
    sequencer: Sequencer, workloads: Sequence[Workload], situation: Situation, ageing_seconds: int = 0
) -> list[Workload]:
    """Who would be next, were everybody placed in turn; of one that is offered in pieces the first counts."""
    offers = sequencer.offers(in_bands(workloads, situation.now, ageing_seconds), situation)
    whole = {workload.id: workload for workload in workloads}
    return [whole[id] for id in dict.fromkeys(each.id for offer in offers for each in offer.workloads)]
