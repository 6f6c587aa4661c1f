"""Volumes of projects: create, list, remove."""

from __future__ import annotations

from mooring.clock import now
from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import slot_type
from mooring.model.tenancy.access import (
    Action,
    may,
    not_there,
    require,
    sight,
)
from mooring.model.tenancy.tenants import Principal, Role
from mooring.model.workloads.volumes import STORAGE
from mooring.services.acting_project import ActingProjects
from mooring.services.submission.pool_choice import choose_pool
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import pool_access, pools
from mooring.store.nodes.pools import Pool
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.projects import Project
from mooring.store.workloads import volumes
from mooring.store.workloads.volumes import Volume
from mooring.wire.workloads.volumes import NewVolumeRequest


class VolumeAdmin:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._acting_projects = ActingProjects(database)

    async def create(self, principal: Principal, asked: NewVolumeRequest) -> Volume:
        require(principal, Action.CHANGE_VOLUMES)
        size = slot_type(STORAGE).parse(asked.size)
        if size < 1:
            raise InvalidInput("a volume has at least one byte", code="invalid-volume")
        submitter = await self._acting_projects.resolve(principal, asked.project, create_keypair=False)

        async def work(connection: Connection) -> Volume:
            pool = await _pool(connection, submitter, asked)
            return await volumes.create(
                connection,
                name=asked.name,
                project_id=submitter.project_id,
                pool_id=pool.id,
                size=size,
                shared=asked.shared,
                actor=Actor.of(submitter),
                now=now(),
            )

        return await self._database.write(work)

    async def every(self, principal: Principal, project: Project | None, node: str | None = None) -> list[Volume]:
        """Return the volumes of one project, or of all that the principal may see; optionally only those on a node."""
        async with self._database.read() as connection:
            if project is not None:
                found = await volumes.every(connection, project_ids=[project.id], node=node)
            elif principal.is_admin:
                found = await volumes.every(connection, node=node)
            else:
                domain_id = principal.domain_id if principal.role is Role.DOMAIN_ADMIN else None
                found = await volumes.every(connection, project_ids=principal.projects, domain_id=domain_id, node=node)
        return [volume for volume in found if may(principal, Action.SEE_VOLUMES, volume.of_project)]

    async def find(self, principal: Principal, project: Project | None, name: str) -> Volume:
        async with self._database.read() as connection:
            return await _found(connection, principal, project, name)

    async def remove(self, principal: Principal, project: Project | None, name: str) -> bool:
        """Remove a volume; return True if it is gone at once, False if its node has yet to delete the content."""

        async def work(connection: Connection) -> bool:
            found = await _found(connection, principal, project, name)
            require(principal, Action.CHANGE_VOLUMES, found.target)
            return await volumes.remove(connection, found, sight=sight(principal), actor=Actor.of(principal), now=now())

        return await self._database.write(work)


async def _found(connection: Connection, principal: Principal, project: Project | None, name: str) -> Volume:
    found = await volumes.find(connection, principal.project_id if project is None else project.id, name)
    if not may(principal, Action.SEE_VOLUMES, found.of_project):
        raise not_there(f"volume {name!r} in this project")
    return found


async def _pool(connection: Connection, submitter: Principal, asked: NewVolumeRequest) -> Pool:
    grants = await pool_access.grants(connection)
    known = await pools.all_pools(connection)
    pool = choose_pool(asked.pool, None, known, lambda pool: pool_access.may_use(pool, submitter, grants))
    if asked.shared and pool.policy.shared_volumes is None:
        raise InvalidInput(
            f"the nodes of pool {pool.name!r} have no shared folder for volumes; an admin sets one with"
            f" `mooring pool change {pool.name} --shared-volumes FOLDER`",
            code="no-shared-volumes",
        )
    return pool
