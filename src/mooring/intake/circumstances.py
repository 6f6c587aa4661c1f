"""What a request is judged by beside itself: who asks, by which policy, and what there is."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from mooring.intake.acting import Acting
from mooring.intake.dependencies import references
from mooring.model.errors import MooringError
from mooring.model.policies import NO_POLICY, Policy
from mooring.model.tenants import Principal
from mooring.model.timeslots import Timeslot
from mooring.store import dependencies, node_templates, nodes, policies, pool_access, pools, volumes
from mooring.store.engine import Connection, Database
from mooring.store.pool_access import Grants
from mooring.store.pools import Pool
from mooring.store.views.timeslots import usable
from mooring.store.volumes import Volume
from mooring.wire.api import WorkloadRequest

_GOOD_SECONDS = 1.0
"""Pools, policies and what nodes have change rarely: what was read so long ago is good enough."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    principal: Principal
    """As it acts: in the project that the request names."""
    pools: Sequence[Pool]
    policy: Policy = NO_POLICY
    served: Mapping[UUID, frozenset[str]] = field(default_factory=dict)
    """Per pool the slots that some node of it has, or would have once asked for; pools without nodes are not named."""
    known: Mapping[str, UUID] = field(default_factory=dict)
    """What the names and ids that it depends on mean."""
    grants: Grants = field(default_factory=dict)
    """Who may use pools that are not public."""
    bookings: Mapping[str, Timeslot] = field(default_factory=dict)
    """What the names and ids of timeslots mean that it is to run in."""
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    """The volumes of its project that it names."""
    offered: Mapping[UUID, frozenset[str]] = field(default_factory=dict)
    """Per pool the runtimes that some node of it has."""

    def may_use(self, pool: Pool) -> bool:
        return pool_access.may_use(pool, self.principal, self.grants)


ByProject = Mapping[str | None, Circumstances | MooringError]
"""Circumstances by the project that requests name, or why nothing can be handed in there."""


def of_project(found: ByProject, project: str | None) -> Circumstances:
    circumstances = found[project]
    if isinstance(circumstances, MooringError):
        raise circumstances
    return circumstances


async def policy_for(connection: Connection, access_key: str) -> Policy:
    """The innermost policy of a keypair."""
    return (await policies.policy_of(connection, access_key)).innermost


async def _served_slots(connection: Connection, known: Sequence[Pool]) -> dict[UUID, frozenset[str]]:
    """What nodes of pools have, and what those would have that can be asked for."""
    served = await nodes.served_slots(connection)
    templates = await node_templates.by_pool(connection)
    for pool in known:
        if pool.id in served:
            offered = (template.allocatable for template in templates.get(pool.name, ()))
            served[pool.id] = served[pool.id].union(*offered)
    return served


class Surroundings:
    """Reads circumstances, and remembers for a moment what changes rarely."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._acting = Acting(database)
        self._read_at = float("-inf")
        self._pools: Sequence[Pool] = ()
        self._grants: Grants = {}
        self._served: Mapping[UUID, frozenset[str]] = {}
        self._offered: Mapping[UUID, frozenset[str]] = {}
        self._policies: dict[str, Policy] = {}

    async def of(
        self, principal: Principal, requests: Sequence[WorkloadRequest], *, mere_question: bool = False
    ) -> ByProject:
        """For these requests of one principal, by the projects that they name."""
        projects = {request.project for request in requests}
        containers = [container for request in requests for container in request.all_containers]
        asked = {slot for container in containers for slot in (*container.resources, *container.limits)}
        names, ids = references(dependency for request in requests for dependency in request.dependencies)
        wanted = {request.booking for request in requests if request.booking is not None}
        mounted = {volume.name for request in requests for volume in request.volumes if volume.kind == "named"}
        return await self._of(principal, projects, asked, names, ids, wanted, mounted, make=not mere_question)

    async def of_booking(self, principal: Principal, project: str | None, asked: Collection[str]) -> Circumstances:
        """For one who asks for these slots in a project."""
        return of_project(await self._of(principal, {project}, asked), project)

    async def of_work(self, principal: Principal, access_key: str) -> Circumstances:
        """For one who changes work that is charged to this keypair."""
        async with self._database.read() as connection:
            policy = await policy_for(connection, access_key)
            await self._read(connection)
        return Circumstances(principal, self._pools, policy, self._served, grants=self._grants)

    async def _of(
        self,
        principal: Principal,
        projects: Collection[str | None],
        asked: Collection[str],
        names: Collection[str] = (),
        ids: Collection[UUID] = (),
        wanted: Collection[str] = (),
        mounted: Collection[str] = (),
        *,
        make: bool = True,
    ) -> ByProject:
        who = await self._acting.within_all(principal, projects, make=make)
        keys = {one.access_key for one in who.values() if not isinstance(one, MooringError)}
        old = asyncio.get_running_loop().time() - self._read_at > _GOOD_SECONDS or not self._serves(asked)
        bookings: Mapping[str, Timeslot] = {}
        known: Mapping[str, UUID] = {}
        kept: Sequence[Volume] = ()
        # Another call may read everything anew meanwhile.
        policies_of = self._policies
        if old or names or ids or wanted or mounted or not keys <= policies_of.keys():
            async with self._database.read() as connection:
                if old:
                    policies_of = await self._read(connection)
                known = await dependencies.named(connection, principal.user_id, names, ids, anybodys=principal.is_admin)
                bookings = await usable(connection, principal, wanted)
                acting_in = {one.project_id for one in who.values() if not isinstance(one, MooringError)}
                kept = await volumes.named(connection, acting_in, mounted)
                new = keys - policies_of.keys()
                found = await policies.policies_of(connection, new)
                policies_of |= {key: found[key].innermost if key in found else NO_POLICY for key in new}
        return {
            project: one
            if isinstance(one, MooringError)
            else Circumstances(
                one,
                self._pools,
                policies_of[one.access_key],
                self._served,
                known,
                self._grants,
                bookings,
                {volume.name: volume for volume in kept if volume.project_id == one.project_id},
                self._offered,
            )
            for project, one in who.items()
        }

    async def _read(self, connection: Connection) -> dict[str, Policy]:
        """Everything anew; policies are read as they are asked for."""
        time = asyncio.get_running_loop().time()
        self._pools, self._grants = await pools.all_pools(connection), await pool_access.grants(connection)
        self._served = await _served_slots(connection, self._pools)
        self._offered = await nodes.offered_runtimes(connection)
        self._read_at, self._policies = time, {}
        return self._policies

    def _serves(self, asked: Collection[str]) -> bool:
        """Whether all pools serve all that is asked for: otherwise a node may have joined meanwhile that does."""
        return all(served.issuperset(asked) for served in self._served.values())
