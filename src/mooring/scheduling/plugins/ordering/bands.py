"""Priority bands: a higher priority comes first whatever the sequencer, and waiting may raise the priority."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from mooring.model.workloads.workload import Workload
from mooring.scheduling.plugins.protocols import (
    END_OF_TIME,
    Offer,
    OrderingContext,
    Sequencer,
)

HIGHEST_PRIORITY = 100


def in_bands(workloads: Sequence[Workload], now: datetime, ageing_seconds: int = 0) -> list[list[Workload]]:
    """Return the workloads by priority, the highest first. Without a time, waiting counts for nothing."""
    ages = ageing_seconds > 0 and now != END_OF_TIME
    bands: dict[int, list[Workload]] = {}
    for workload in workloads:
        priority = aged(workload, now, ageing_seconds) if ages else workload.priority
        bands.setdefault(priority, []).append(workload)
    return [bands[priority] for priority in sorted(bands, reverse=True)]


def aged(workload: Workload, now: datetime, ageing_seconds: int) -> int:
    """Return the priority including the increase for waiting, which never exceeds the highest priority."""
    steps = max(now - workload.created_at, timedelta(0)) // timedelta(seconds=ageing_seconds)
    return max(workload.priority, min(HIGHEST_PRIORITY, workload.priority + steps))


arrival_key: Callable[[Workload], tuple[datetime, int]] = attrgetter("created_at", "id.int")
"""Return the sort key for first come, first served. It never depends on the order of rows in the store."""


def sorted_offer(
    bands: Sequence[Sequence[Workload]], key: Callable[[Workload], Any], *, reverse: bool = False
) -> Iterator[Offer]:
    """Yield all bands as one offer, each sorted, for orders that no placement changes."""
    yield Offer([workload for band in bands for workload in sorted(band, key=key, reverse=reverse)])


def ordered(
    sequencer: Sequencer, workloads: Sequence[Workload], context: OrderingContext, ageing_seconds: int = 0
) -> list[Workload]:
    """Return the order of placement if all workloads fitted; a workload in pieces counts by its first piece."""
    offers = sequencer.offers(in_bands(workloads, context.now, ageing_seconds), context)
    whole = {workload.id: workload for workload in workloads}
    return [whole[id] for id in dict.fromkeys(each.id for offer in offers for each in offer.workloads)]
