"""Detection of nodes on which tasks keep failing: they are avoided, then drained. Pure.

Work that fails on every node says nothing about one of them, and a success on a node ends the suspicion.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from mooring.model.workloads.constraints import OWN_TAINTS, Effect, Taint

FAILING = Taint(f"{OWN_TAINTS}failing", effect=Effect.PREFER_NO_SCHEDULE)
START_FAULTS = frozenset({"start-failed", "prepare-failed", "runtime-missing", "supervisor-died", "image-pull-failed"})
"""Agent reason codes for tasks that could not be started."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """The thresholds at which a node is suspected."""

    failures: int = 3
    """Number of different workloads that must fail before the node is avoided, twice as many to drain it; 0: never."""
    window: timedelta = timedelta(minutes=30)
    fast_end: timedelta = timedelta(seconds=10)
    """A task that fails within this time after its start may have failed because of the node."""


USUAL = Suspicion()


def max_drained(nodes: int) -> int:
    """Return the maximum nodes drained for failures in a pool of this size: a fault everywhere must not empty it."""
    return max(1, nodes // 10)


class Failure(NamedTuple):
    """A task that failed as tasks do on a bad node; `work` is equal for retries of the same task."""

    node_id: UUID
    work: Hashable
    code: str
    at: datetime


def evidence(
    failures: Collection[Failure], well_until: Mapping[UUID, datetime] | None = None
) -> dict[UUID, dict[Hashable, str]]:
    """Return by node the different work that failed there and nowhere else, with the reason codes.

    `well_until` is the time of the last success on a node; earlier failures do not count.
    """
    tried_on: dict[Hashable, set[UUID]] = defaultdict(set)
    for failure in failures:
        tried_on[failure.work].add(failure.node_id)
    found: dict[UUID, dict[Hashable, str]] = defaultdict(dict)
    for failure in failures:
        last = (well_until or {}).get(failure.node_id)
        if len(tried_on[failure.work]) == 1 and (last is None or failure.at > last):
            found[failure.node_id][failure.work] = failure.code
    return dict(found)


def described(codes: Iterable[str], window: timedelta) -> str:
    """`4 different workloads failed there within 30m: start-failed (3), exited (1)`."""
    counted = Counter(codes)
    how = ", ".join(f"{code} ({number})" for code, number in counted.most_common())
    minutes = f"{window.total_seconds() / 60:g}m"
    return f"{counted.total()} different workloads failed there within {minutes}: {how}"
