"""Loads the context of submissions, and caches for a moment the parts that change rarely."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from uuid import UUID

from mooring.model.calendar.timeslots import Timeslot
from mooring.model.errors import MooringError
from mooring.model.nodes.node_templates import NodeTemplate
from mooring.model.tenancy.access import own_work
from mooring.model.tenancy.policies import NO_POLICY, Policy
from mooring.model.tenancy.tenants import Principal
from mooring.services.acting_project import ActingProjects
from mooring.services.submission.dependencies import references
from mooring.services.submission.submission_context import ContextByProject, SubmissionContext, of_project
from mooring.store.control.configuration_version import ConfigurationVersion
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import nodes, pool_access, pools
from mooring.store.nodes.pool_access import Grants
from mooring.store.nodes.pools import Pool
from mooring.store.scaling import node_templates
from mooring.store.tenancy import policies
from mooring.store.views.timeslots import usable
from mooring.store.workloads import dependencies, volumes
from mooring.store.workloads.volumes import Volume
from mooring.wire.workloads.workloads import WorkloadRequest

_CACHE_SECONDS, _SIGNALLED_CACHE_SECONDS = 1.0, 5.0
"""A read of pools, policies and slots of nodes is reused this long; the second applies where changes are signalled."""


@dataclass(frozen=True, slots=True)
class _References:
    """Everything that requests refer to by name."""

    projects: Set[str | None]
    slots: Set[str]
    runtimes: Set[str] = frozenset()
    workload_names: Set[str] = frozenset()
    workload_ids: Set[UUID] = frozenset()
    bookings: Set[str] = frozenset()
    volumes: Set[str] = frozenset()

    @classmethod
    def of(cls, requests: Sequence[WorkloadRequest]) -> _References:
        containers = [container for request in requests for container in request.all_containers]
        names, ids = references(dependency for request in requests for dependency in request.dependencies)
        return cls(
            projects={request.project for request in requests},
            slots={slot for container in containers for slot in (*container.resources, *container.limits)},
            runtimes={"process" if container.image is None else "container" for container in containers},
            workload_names=names,
            workload_ids=ids,
            bookings={request.booking for request in requests if request.booking is not None},
            volumes={volume.name for request in requests for volume in request.volumes if volume.kind == "named"},
        )

    @property
    def need_lookup(self) -> bool:
        """True if some of them must be read from the database each time."""
        return bool(self.workload_names or self.workload_ids or self.bookings or self.volumes)


@dataclass(frozen=True, slots=True)
class _Found:
    """The things that requests refer to."""

    workloads: Mapping[str, UUID]
    bookings: Mapping[str, Timeslot]
    volumes: Sequence[Volume]


_NOTHING = _Found({}, {}, ())


class ContextLoader:
    def __init__(self, database: Database, configuration: ConfigurationVersion | None = None) -> None:
        self._database = database
        self._cache_seconds = _CACHE_SECONDS if configuration is None else _SIGNALLED_CACHE_SECONDS
        self._configuration = configuration or ConfigurationVersion()
        self._acting_projects = ActingProjects(database, self._configuration)
        self._read_at = float("-inf")
        self._cluster_version = self._configuration.cluster_number
        self._pools: Sequence[Pool] = ()
        self._grants: Grants = {}
        self._served: Mapping[UUID, frozenset[str]] = {}
        self._offered: Mapping[UUID, frozenset[str]] = {}
        self._policies_version = self._configuration.number
        self._policies: dict[str, Policy] = {}
        self._reading = asyncio.Lock()

    async def load(
        self, principal: Principal, requests: Sequence[WorkloadRequest], *, read_only: bool = False
    ) -> ContextByProject:
        """Return the contexts of one principal's requests by project; `read_only`: create no keypair for it."""
        return await self._load(principal, _References.of(requests), create_keypair=not read_only)

    async def load_for_booking(
        self, principal: Principal, project: str | None, slots: Collection[str]
    ) -> SubmissionContext:
        """Return the context of a request for a timeslot with these slots."""
        return of_project(await self._load(principal, _References({project}, set(slots))), project)

    async def load_for_keypair(self, principal: Principal, access_key: str) -> SubmissionContext:
        """Return the context of a change to work that is charged to this keypair."""
        async with self._database.read() as connection:
            policy = await policy_for(connection, access_key)
            await self._refresh(connection)
        return SubmissionContext(principal, self._pools, policy, self._served, grants=self._grants)

    async def _load(self, principal: Principal, asked: _References, *, create_keypair: bool = True) -> ContextByProject:
        resolved = await self._acting_projects.resolve_all(principal, asked.projects, create_keypair=create_keypair)
        principals = [each for each in resolved.values() if not isinstance(each, MooringError)]
        access_keys = {each.access_key for each in principals}
        known_policies = await self._current_policies(asked, access_keys)
        found = _NOTHING
        if asked.need_lookup:
            async with self._database.read() as connection:
                found = await _look_up(connection, principal, {each.project_id for each in principals}, asked)
        return {
            project: each
            if isinstance(each, MooringError)
            else self._context(each, known_policies[each.access_key], found)
            for project, each in resolved.items()
        }

    async def _current_policies(self, asked: _References, access_keys: Set[str]) -> Mapping[str, Policy]:
        """Return the policies of these keypairs, after a refresh of the cache if it is due.

        One call at a time reads: the others that find the cache outdated wait for it.
        """
        known = self._known_policies()
        if access_keys <= known.keys() and not self._is_stale(asked):
            return known
        async with self._reading:
            # Later calls may replace `self._policies`.
            known, stale = self._known_policies(), self._is_stale(asked)
            if stale or not access_keys <= known.keys():
                async with self._database.read() as connection:
                    if stale:
                        known = await self._refresh(connection)
                    await _add_policies(connection, known, access_keys)
            return known

    def _known_policies(self) -> dict[str, Policy]:
        if self._policies_version != self._configuration.number:
            self._policies, self._policies_version = {}, self._configuration.number
        return self._policies

    def _context(self, principal: Principal, policy: Policy, found: _Found) -> SubmissionContext:
        return SubmissionContext(
            principal=principal,
            pools=self._pools,
            policy=policy,
            served=self._served,
            known=found.workloads,
            grants=self._grants,
            bookings=found.bookings,
            volumes={volume.name: volume for volume in found.volumes if volume.project_id == principal.project_id},
            offered=self._offered,
        )

    def _is_stale(self, asked: _References) -> bool:
        """Return whether the cache is too old, or lacks a requested slot or runtime that a new node may have since."""
        age = asyncio.get_running_loop().time() - self._read_at
        return (
            age > self._cache_seconds
            or self._cluster_version != self._configuration.cluster_number
            or not all(served >= asked.slots for served in self._served.values())
            or not all(offered >= asked.runtimes for offered in self._offered.values())
        )

    async def _refresh(self, connection: Connection) -> dict[str, Policy]:
        """Read everything that is cached; return the empty cache of policies, which are read on demand."""
        time, version = asyncio.get_running_loop().time(), self._configuration.number
        cluster_version = self._configuration.cluster_number
        self._pools, self._grants = await pools.all_pools(connection), await pool_access.grants(connection)
        templates = await node_templates.by_pool(connection)
        self._served = await _served_slots(connection, self._pools, templates)
        self._offered = await _offered_runtimes(connection, self._pools, templates)
        self._read_at, self._cluster_version = time, cluster_version
        self._policies, self._policies_version = {}, version
        return self._policies


async def policy_for(connection: Connection, access_key: str) -> Policy:
    """Return the effective policy of a keypair's work."""
    return (await policies.policy_of(connection, access_key)).effective


async def _look_up(connection: Connection, principal: Principal, project_ids: Set[UUID], asked: _References) -> _Found:
    any_user = principal.is_admin and not principal.by_keypair
    return _Found(
        await dependencies.named(
            connection, own_work(principal), asked.workload_names, asked.workload_ids, anybodys=any_user
        ),
        await usable(connection, principal, asked.bookings),
        await volumes.named(connection, project_ids, asked.volumes),
    )


async def _add_policies(connection: Connection, known: dict[str, Policy], access_keys: Set[str]) -> None:
    missing = access_keys - known.keys()
    found = await policies.policies_of(connection, missing)
    known |= {key: found[key].effective if key in found else NO_POLICY for key in missing}


async def _served_slots(
    connection: Connection, known: Sequence[Pool], templates: Mapping[str, Sequence[NodeTemplate]]
) -> dict[UUID, frozenset[str]]:
    """Return by pool the slots of its nodes, and those that its node templates would add."""
    served = await nodes.served_slots(connection)
    for pool in known:
        if pool.id in served:
            served[pool.id] = served[pool.id].union(
                *(template.allocatable for template in templates.get(pool.name, ()))
            )
    return served


async def _offered_runtimes(
    connection: Connection, known: Sequence[Pool], templates: Mapping[str, Sequence[NodeTemplate]]
) -> dict[UUID, frozenset[str]]:
    """Return by pool the runtimes of its nodes, and those that its node templates would add."""
    offered = await nodes.offered_runtimes(connection)
    for pool in known:
        if pool.id in offered:
            added = (template.runtimes for template in templates.get(pool.name, ()))
            offered[pool.id] = offered[pool.id].union(*added)
    return offered
