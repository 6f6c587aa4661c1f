"""Unmet demand: the pending work of each pool that more nodes would help, with the view needed to choose the nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from mooring.mirror.mirror import Mirror
from mooring.mirror.schedulers import Schedulers
from mooring.model.workloads.workload import OnInsufficient, Workload
from mooring.scheduling.admission import Admission
from mooring.scheduling.autoscaling.scale_up import copy_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.ordering.bands import arrival_key
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.queue.pending_queue import PendingQueue


@dataclass(frozen=True, slots=True)
class DemandQuery:
    resting: Collection[str]
    """Pools in their scale-up cooldown, which request nothing."""
    generations: Mapping[UUID, int]
    """Current generations of the known nodes; an older view may miss capacity on them."""
    booked: Sequence[Workload]
    """Work of timeslots that lost their capacity; it counts whatever its tenants use."""


@dataclass(frozen=True, slots=True)
class UnmetDemand:
    lacking: Mapping[str, Collection[UUID]]
    """By pool: all workloads that lack capacity and that more nodes could help."""
    waiting: Mapping[str, Sequence[Workload]]
    """By pool: the workloads to request nodes for, within the limits of their tenants."""
    cluster: Cluster
    """A copy of the view; empty if there is nothing to request nodes for."""
    profiles: Mapping[str, Profile]


def find_unmet_demand(
    asked: DemandQuery, mirror: Mirror, pending_queue: PendingQueue, schedulers: Schedulers, admission: Admission
) -> UnmetDemand | None:
    """Return the unmet demand, or None while the view is too old. Neither the view nor tenant usage changes."""
    if any(_is_older(mirror.cluster, *each) for each in asked.generations.items()):
        return None
    short = pending_queue.waiting_for_nodes()
    asking = [workload for workload in short if _requests_nodes(workload) and workload.pool not in asked.resting]
    booked = [workload for workload in asked.booked if workload.pool not in asked.resting]
    waiting: dict[str, list[Workload]] = {}
    for workload in (*booked, *admission.within_limits(in_order(asking))):
        waiting.setdefault(workload.pool, []).append(workload)
    lacking: dict[str, set[UUID]] = {}
    for workload in (*short, *asked.booked):
        lacking.setdefault(workload.pool, set()).add(workload.id)
    return UnmetDemand(
        lacking,
        waiting,
        copy_of(mirror.cluster) if waiting else Cluster(),
        {pool: schedulers.of(mirror.pools[pool]).profile for pool in waiting},
    )


def _is_older(cluster: Cluster, node_id: UUID, generation: int) -> bool:
    row = cluster.row_of(node_id)
    return row is None or cluster.node(row).generation < generation


def _requests_nodes(workload: Workload) -> bool:
    """Return whether nodes are requested for a workload. Work inside a timeslot only uses the timeslot's capacity."""
    return workload.on_insufficient is OnInsufficient.SCALE_UP and workload.booking is None


def in_order(workloads: Iterable[Workload]) -> list[Workload]:
    return sorted(workloads, key=lambda workload: (-workload.priority, arrival_key(workload)))
