"""What lacks nodes: the waiting work of each pool that more of them would help, with a view by which to choose them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from mooring.mirror.mirror import Mirror
from mooring.mirror.schedulers import Schedulers
from mooring.model.workloads import OnInsufficient, Workload
from mooring.scheduling.admission import Admission
from mooring.scheduling.columns import Cluster
from mooring.scheduling.growth import copy_of
from mooring.scheduling.ordering.bands import turn
from mooring.scheduling.profiles import Profile
from mooring.scheduling.waiting import WaitingRoom


@dataclass(frozen=True, slots=True)
class Question:
    resting: Collection[str]
    """Pools that ask for nothing at the moment."""
    generations: Mapping[UUID, int]
    """Of nodes that are there: in an older view, work may have found room on them."""
    booked: Sequence[Workload]
    """Work for which room was promised that is gone: whatever its tenants use, it counts."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    lacking: Mapping[str, Collection[UUID]]
    """By pool all that lacks room which more nodes could give."""
    waiting: Mapping[str, Sequence[Workload]]
    """By pool the work that asks for nodes, as far as its tenants may use more."""
    cluster: Cluster
    """A copy, if some work asks."""
    profiles: Mapping[str, Profile]


def shortfall(
    asked: Question, mirror: Mirror, room: WaitingRoom, schedulers: Schedulers, admission: Admission
) -> Shortfall | None:
    """None while the view is too old. Neither the view nor what tenants are charged with is changed."""
    if any(_is_older(mirror.cluster, *each) for each in asked.generations.items()):
        return None
    short = room.short_of_room()
    asking = [workload for workload in short if _asks(workload) and workload.pool not in asked.resting]
    booked = [workload for workload in asked.booked if workload.pool not in asked.resting]
    waiting: dict[str, list[Workload]] = {}
    for workload in (*booked, *_within_limits(asking, admission)):
        waiting.setdefault(workload.pool, []).append(workload)
    lacking: dict[str, set[UUID]] = {}
    for workload in (*short, *asked.booked):
        lacking.setdefault(workload.pool, set()).add(workload.id)
    return Shortfall(
        lacking,
        waiting,
        copy_of(mirror.cluster) if waiting else Cluster(),
        {pool: schedulers.of(mirror.pools[pool]).profile for pool in waiting},
    )


def _is_older(cluster: Cluster, node_id: UUID, generation: int) -> bool:
    row = cluster.row_of(node_id)
    return row is None or cluster.node(row).generation < generation


def _asks(workload: Workload) -> bool:
    """Work inside a timeslot has its room there, or nowhere."""
    return workload.on_insufficient is OnInsufficient.SCALE_UP and workload.booking is None


def _within_limits(workloads: Iterable[Workload], admission: Admission) -> list[Workload]:
    """Those of them, or of their tasks, that could start were there room for all: no nodes are for the others."""
    in_turn = sorted(workloads, key=lambda workload: (-workload.priority, turn(workload)))
    admitted = [found for found in map(admission.admit, in_turn) if isinstance(found, Workload)]
    for workload in admitted:
        admission.refund(workload)
    return admitted
