"""The project that a request acts in: the principal's own, or one that it names and is a member of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from mooring.clock import now
from mooring.concurrency.keyed_locks import KeyedLocks
from mooring.model.errors import Conflict, MooringError, NotAllowed
from mooring.model.tenancy.access import not_there
from mooring.model.tenancy.tenants import Principal
from mooring.store.control.configuration_version import ConfigurationVersion
from mooring.store.core.engine import Database
from mooring.store.tenancy import keypairs
from mooring.store.tenancy.keypairs import ProjectAccess

_CACHE_SECONDS = 1.0
_MAX_CACHED = 10_000


class ActingProjects:
    """Resolves projects by name, with a cache: a read is reused for a second, until a known change."""

    def __init__(self, database: Database, configuration: ConfigurationVersion | None = None) -> None:
        self._database = database
        self._configuration = configuration or ConfigurationVersion()
        self._version = self._configuration.number
        self._cache: dict[tuple[UUID, str | UUID], tuple[float, ProjectAccess | None]] = {}
        self._locks: KeyedLocks[tuple[UUID, str | UUID]] = KeyedLocks()

    async def resolve(self, principal: Principal, project: str | None, *, create_keypair: bool = True) -> Principal:
        """Return the principal as it acts in a project.

        A user without a keypair in the project gets one without a secret, unless `create_keypair` is false: read-only
        requests create nothing.
        """
        access = await self._project_access(principal.user_id, principal.project_id if project is None else project)
        # The same error for every other project, so that it does not reveal which ones exist.
        if (
            principal.by_keypair
            and project is not None
            and (access is None or access.project_id != principal.project_id)
        ):
            raise NotAllowed(
                f"this keypair is not for project {project!r}; use a keypair of that project, or log in",
                code="keypair-project",
            )
        if access is None or access.project_id not in principal.projects:
            raise not_there("project that you are a member of" + (f" by the name {project!r}" if project else ""))
        if not access.active:
            raise Conflict(f"project {access.project!r} is not active and accepts no new work", code="project-inactive")
        access_key = principal.access_key if principal.by_keypair else access.access_key
        if access_key is None and create_keypair:
            access_key = await self._create_keypair(principal.user_id, access.project_id)
        return replace(principal, project_id=access.project_id, access_key=access_key or "")

    async def resolve_all(
        self, principal: Principal, projects: Iterable[str | None], *, create_keypair: bool = True
    ) -> dict[str | None, Principal | MooringError]:
        """Return the principal in each of these projects, or the error that keeps it from acting there."""
        found: dict[str | None, Principal | MooringError] = {}
        for project in projects:
            try:
                found[project] = await self.resolve(principal, project, create_keypair=create_keypair)
            except MooringError as error:
                found[project] = error
        return found

    async def _project_access(self, user_id: UUID, project: str | UUID) -> ProjectAccess | None:
        if (known := self._cached(user_id, project)) is not None:
            return known[1]
        async with self._locks.hold((user_id, project)):
            if (known := self._cached(user_id, project)) is not None:
                return known[1]
            time, version = asyncio.get_running_loop().time(), self._configuration.number
            async with self._database.read() as connection:
                access = await keypairs.project_access(connection, user_id, project)
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            if version == self._version:
                self._cache[user_id, project] = time, access
            return access

    def _cached(self, user_id: UUID, project: str | UUID) -> tuple[float, ProjectAccess | None] | None:
        if self._version != self._configuration.number:
            self._cache, self._version = {}, self._configuration.number
        found = self._cache.get((user_id, project))
        fresh = found is not None and asyncio.get_running_loop().time() - found[0] < _CACHE_SECONDS
        return found if fresh else None

    async def _create_keypair(self, user_id: UUID, project_id: UUID) -> str:
        self._cache.clear()
        return await self._database.write(lambda c: keypairs.ensure(c, user_id, project_id, now()))
