"""The state of a server from which a simulation starts: running tasks, reservations and tenants.

The nodes of such a scenario are without the amounts that its running parts occupy; these are counted when it starts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np

from mooring.model.decisions import Placement
from mooring.model.policy.preemption import Budgets
from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.fair_share import Factors
from mooring.model.tenancy.policies import Policy
from mooring.model.tenancy.quotas import Tenant
from mooring.model.workloads.constraints import HostPort
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.cluster.host_ports import with_host_ports
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.cluster.typical_requests import TypicalRequest
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.preemption.reclaim import Guarantees
from mooring.scheduling.tenant_usage import Usage


@dataclass(frozen=True, slots=True)
class RunningPart:
    """Tasks of one workload that end together: those of a gang, or one task."""

    number: int
    """The number of its job."""
    workload: Workload
    """The workload with these tasks and the amounts that they occupy."""
    placements: tuple[Placement, ...]
    start: int
    end: int | None
    """The time at which it is expected to end; None: it does not end."""
    latest_end: int | None = None
    """The time by which it ends at the latest, as the scheduler knows it."""
    guessed_end: int | None = None
    """The earlier end that the scheduler plans with, if its pool relies on earlier or predicted run times."""
    preemptible: bool = True
    whole: bool = False
    """Preempting one of its tasks ends all tasks of the workload."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The remaining capacity of a booking, by node."""

    id: UUID
    begins: int
    ends: int
    left: Mapping[UUID, Amounts]
    is_open: bool
    firm: bool


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Usage, limits and rules of the tenants that have work."""

    usage: Usage = field(default_factory=Usage)
    policies: Mapping[str, Policy] = field(default_factory=dict)
    """By access key."""
    inactive: Mapping[Tenant, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Live:
    at: int
    """Seconds since 1970, as all times of the scenario."""
    running: Sequence[RunningPart] = ()
    reservations: Sequence[Reservation] = ()
    tenancy: Tenancy = field(default_factory=Tenancy)
    factors: Mapping[str, Factors] = field(default_factory=dict)
    guarantees: Guarantees = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)
    typical: Mapping[str, Sequence[TypicalRequest]] = field(default_factory=dict)
    """By pool, for pools that score by the typical requests."""


def occupy(cluster: Cluster, parts: Sequence[RunningPart]) -> None:
    """Count the running tasks on their nodes, with their expected ends; tasks on unknown nodes are left out."""
    ends: defaultdict[UUID, dict[UUID, tuple[int, Amounts]]] = defaultdict(dict)
    guessed: defaultdict[UUID, dict[UUID, tuple[int, Amounts]]] = defaultdict(dict)
    footprints: defaultdict[UUID, dict[UUID, Footprint]] = defaultdict(dict)
    for part in parts:
        shape = shape_of(part.workload, cluster)
        demand, request = cluster.demand(shape.request, shape.uncounted), part.workload.request
        for each in part.placements:
            row = cluster.row_of(each.node_id)
            if row is None:
                continue
            constraints = with_host_ports(shape.constraints, map(HostPort, each.ports))
            cluster.assume(np.array([row], dtype=np.intp), demand, constraints, (each.devices,))
            for found, at in ((ends, part.latest_end), (guessed, part.guessed_end)):
                if at is not None:
                    found[each.node_id][each.task_id] = (at, request)
            footprints[each.node_id][each.task_id] = Footprint(constraints, each.devices, False, 0)
    for node_id, known in footprints.items():
        cluster.set_expected_ends(node_id, ends[node_id], guessed[node_id], known)


def reserve(cluster: Cluster, reservation: Reservation) -> None:
    """Promise the capacity of a booking."""
    cluster.timeslots.update(
        reservation.id,
        reservation.begins,
        reservation.ends,
        reservation.left,
        is_open=reservation.is_open,
        firm=reservation.firm,
    )
