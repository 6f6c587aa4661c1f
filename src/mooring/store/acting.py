"""A principal in another of its projects."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenants import Principal
from mooring.store.tables import keypairs, memberships, projects


async def in_projects(
    connection: AsyncConnection, principal: Principal, names: Collection[str]
) -> dict[str, Principal]:
    """Who it is in each of these projects; those that it is no member of are not named.

    Its work carries a keypair of the project where it has one.
    """
    if not names:
        return {}
    oldest_key = (
        select(func.min(keypairs.c.access_key))
        .where(keypairs.c.user_id == principal.user_id, keypairs.c.project_id == projects.c.id, keypairs.c.active)
        .correlate(projects)
        .scalar_subquery()
    )
    member = select(memberships.c.project_id).where(
        memberships.c.user_id == principal.user_id, memberships.c.project_id == projects.c.id
    )
    rows = await connection.execute(
        select(projects.c.name, projects.c.id, oldest_key).where(
            projects.c.domain_id == principal.domain_id,
            projects.c.name.in_(sorted(names)),
            or_(projects.c.id == principal.project_id, member.exists()),
        )
    )
    return {
        name: principal
        if project_id == principal.project_id
        else replace(principal, project_id=project_id, access_key=key or principal.access_key)
        for name, project_id, key in rows
    }
