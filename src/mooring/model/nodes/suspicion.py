"""Which nodes fail what comes to them: they are avoided, then drained. Pure.

Work that fails wherever it runs says nothing about a node, and whatever goes well there ends the suspicion.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from mooring.model.constraints import OWN_TAINTS, Effect, Taint

FAILING = Taint(f"{OWN_TAINTS}failing", effect=Effect.PREFER_NO_SCHEDULE)
START_FAULTS = frozenset({"start-failed", "prepare-failed", "runtime-missing", "supervisor-died", "image-pull-failed"})
"""Codes of agents for tasks that they could not start."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """When a node is suspected."""

    failures: int = 3
    """So much different work has to fail there for it to be avoided, and twice as much to be drained; 0: never."""
    window: timedelta = timedelta(minutes=30)
    fast_end: timedelta = timedelta(seconds=10)
    """What fails so soon after its start may have failed because of the node."""


USUAL = Suspicion()


def most_drained(nodes: int) -> int:
    """How many nodes of a pool of so many are drained for failing: what is wrong everywhere must not empty it."""
    return max(1, nodes // 10)


class Failure(NamedTuple):
    """A task that failed as one does on a bad node. `work`: equal where the same was tried again."""

    node_id: UUID
    work: Hashable
    code: str
    at: datetime


def evidence(
    failures: Collection[Failure], well_until: Mapping[UUID, datetime] | None = None
) -> dict[UUID, dict[Hashable, str]]:
    """Per node the different work that failed there and nowhere else, with how.

    `well_until`: when something last went well on a node; what failed before does not count.
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
