"""In which project a request acts: the principal's own, or one that it names and is a member of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from uuid import UUID

from mooring.clock import now
from mooring.model.access import not_there
from mooring.model.errors import Conflict, MooringError, NotAllowed
from mooring.model.tenants import Principal
from mooring.store import keypairs
from mooring.store.engine import Database
from mooring.store.keypairs import Place

_KNOWN_SECONDS = 1.0
_MOST_KNOWN = 10_000

Act = Callable[[str | None], Principal]
"""The principal as it acts in the project of this name; raises where it may not."""


class Acting:
    """Projects change rarely: what was read within the last second is good enough to hand in work there."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[tuple[UUID, str | UUID], tuple[float, Place | None]] = {}

    async def within(self, principal: Principal, project: str | None, *, make: bool = True) -> Principal:
        """Whoever has no keypair in the project yet gets one without a secret; none is made for a mere question."""
        place = await self._place(principal.user_id, principal.project_id if project is None else project)
        if place is None or place.project_id not in principal.projects:
            raise not_there("project that you are a member of" + (f" by the name {project!r}" if project else ""))
        if principal.by_keypair and place.project_id != principal.project_id:
            raise NotAllowed(
                f"this keypair works in another project than {project!r}; use one of that project, or log in",
                code="keypair-project",
            )
        if not place.active:
            raise Conflict(f"project {place.project!r} is not active: it takes no new work", code="project-inactive")
        access_key = principal.access_key if principal.by_keypair else place.access_key
        if access_key is None and make:
            access_key = await self._made(principal.user_id, place.project_id)
        return replace(principal, project_id=place.project_id, access_key=access_key or "")

    async def within_all(self, principal: Principal, projects: Iterable[str | None]) -> Act:
        found: dict[str | None, Principal | MooringError] = {}
        for project in set(projects):
            try:
                found[project] = await self.within(principal, project)
            except MooringError as error:
                found[project] = error

        def act(project: str | None) -> Principal:
            known = found[project]
            if isinstance(known, MooringError):
                raise known
            return known

        return act

    async def _place(self, user_id: UUID, project: str | UUID) -> Place | None:
        time = asyncio.get_running_loop().time()
        at, place = self._known.get((user_id, project), (-_KNOWN_SECONDS, None))
        if time - at >= _KNOWN_SECONDS:
            async with self._database.read() as connection:
                place = await keypairs.place(connection, user_id, project)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[user_id, project] = time, place
        return place

    async def _made(self, user_id: UUID, project_id: UUID) -> str:
        self._known.clear()
        return await self._database.write(lambda c: keypairs.ensure(c, user_id, project_id, now()))
