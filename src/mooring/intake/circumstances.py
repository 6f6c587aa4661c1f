"""What a request is judged by beside itself: who asks, by which policy, and what there is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from mooring.intake.dependencies import references
from mooring.model.errors import InvalidInput
from mooring.model.policies import NO_POLICY, Policy
from mooring.model.tenants import Principal
from mooring.store import acting, dependencies, nodes, pools
from mooring.store.engine import Connection, Database
from mooring.store.pools import Pool
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
    """Per pool the slots that some node of it has; pools without nodes are not named."""
    known: Mapping[str, UUID] = field(default_factory=dict)
    """What the names and ids that it depends on mean."""


ByProject = Mapping[str | None, Circumstances]
"""Circumstances by the project that requests name."""


def of_project(found: ByProject, project: str | None) -> Circumstances:
    if project not in found:
        raise InvalidInput(f"you are no member of a project {project!r}", code="unknown-project")
    return found[project]


async def policy_for(connection: Connection, principal: Principal) -> Policy:
    """The innermost policy of a principal."""
    return NO_POLICY


class Surroundings:
    """Reads circumstances, and remembers for a moment what changes rarely."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read_at = float("-inf")
        self._pools: Sequence[Pool] = ()
        self._served: Mapping[UUID, frozenset[str]] = {}
        self._policies: dict[tuple[UUID, str], Policy] = {}

    async def of(self, principal: Principal, requests: Sequence[WorkloadRequest]) -> ByProject:
        """For these requests of one principal, by the projects that they name."""
        projects = {request.project for request in requests if request.project is not None}
        names, ids = references(dependency for request in requests for dependency in request.dependencies)
        policies = self._policies
        old = asyncio.get_running_loop().time() - self._read_at > _GOOD_SECONDS or not self._serves(requests)
        if not (old or projects or names or ids) and _key(principal) in policies:
            return {None: Circumstances(principal, self._pools, policies[_key(principal)], self._served)}
        async with self._database.read() as connection:
            if old:
                policies = await self._read(connection)
            elsewhere = await acting.in_projects(connection, principal, projects)
            who: dict[str | None, Principal] = dict(elsewhere) | {None: principal}
            known = await dependencies.named(connection, principal.user_id, names, ids, anybodys=principal.is_admin)
            for one in who.values():
                if _key(one) not in policies:
                    policies[_key(one)] = await policy_for(connection, one)
        return {
            project: Circumstances(one, self._pools, policies[_key(one)], self._served, known)
            for project, one in who.items()
        }

    async def _read(self, connection: Connection) -> dict[tuple[UUID, str], Policy]:
        """Everything anew; policies are read as they are asked for."""
        time = asyncio.get_running_loop().time()
        self._pools, self._served = await pools.all_pools(connection), await nodes.served_slots(connection)
        self._read_at, self._policies = time, {}
        return self._policies

    def _serves(self, requests: Sequence[WorkloadRequest]) -> bool:
        """Whether all pools serve all that is asked for: otherwise a node may have joined meanwhile that does."""
        asked = {slot for request in requests for container in request.containers for slot in container.resources}
        return all(asked <= served for served in self._served.values())


def _key(principal: Principal) -> tuple[UUID, str]:
    return principal.project_id, principal.access_key
