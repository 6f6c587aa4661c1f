"""The facts that a request is checked against: its principal, the policy, and the things it refers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from mooring.model.calendar.timeslots import Timeslot
from mooring.model.errors import MooringError
from mooring.model.tenancy.policies import NO_POLICY, Policy
from mooring.model.tenancy.tenants import Principal
from mooring.store.nodes import pool_access
from mooring.store.nodes.pool_access import Grants
from mooring.store.nodes.pools import Pool
from mooring.store.workloads.volumes import Volume


@dataclass(frozen=True, slots=True)
class SubmissionContext:
    principal: Principal
    """The principal as it acts in the project that the request names."""
    pools: Sequence[Pool]
    policy: Policy = NO_POLICY
    served: Mapping[UUID, frozenset[str]] = field(default_factory=dict)
    """By pool, the slots that a node of it has, or that a node template of it would provide; pools without nodes are
    absent."""
    known: Mapping[str, UUID] = field(default_factory=dict)
    """The workloads that the request depends on, by the name or id that it gives."""
    grants: Grants = field(default_factory=dict)
    """The tenants that may use pools that are not public."""
    bookings: Mapping[str, Timeslot] = field(default_factory=dict)
    """The timeslots that the request names and its principal may use, by name or id."""
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    """The volumes of the project that the request mounts, by name."""
    offered: Mapping[UUID, frozenset[str]] = field(default_factory=dict)
    """By pool, the runtimes that its nodes have."""

    def may_use(self, pool: Pool) -> bool:
        return pool_access.may_use(pool, self.principal, self.grants)


ContextByProject = Mapping[str | None, SubmissionContext | MooringError]
"""The context by the project that requests name, or the error that keeps the principal from acting there."""


def of_project(found: ContextByProject, project: str | None) -> SubmissionContext:
    context = found[project]
    if isinstance(context, MooringError):
        raise context
    return context
