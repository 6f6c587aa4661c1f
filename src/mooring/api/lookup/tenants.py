"""Domains, projects, users and keypairs by their name, for a principal who may see them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from mooring.api.auth.request_access import (
    named,
)
from mooring.model.tenancy.access import (
    Action,
    require,
    require_visible,
)
from mooring.model.tenancy.tenants import Principal
from mooring.store.core.engine import Connection
from mooring.store.tenancy import domains, keypairs, projects, users
from mooring.store.tenancy.domains import Domain
from mooring.store.tenancy.keypairs import Keypair
from mooring.store.tenancy.projects import Project
from mooring.wire.fields import Name


async def find_domain(
    connection: Connection, principal: Principal, name: str | None, action: Action = Action.SEE_DOMAIN
) -> Domain:
    """Return the domain, by default the principal's own, if the principal may do this to it."""
    if name is None:
        (found,) = await domains.every(connection, only=principal.domain_id)
    else:
        found = await domains.find(connection, named("domain", name))
        require_visible(principal, Action.SEE_DOMAIN, found.target, f"domain {name!r}")
    require(principal, action, found.target)
    return found


OfDomain = Annotated[Name | None, Query(description="Domain of the project (default: the caller's)")]


async def find_project(
    connection: Connection, principal: Principal, domain: str | None, name: str, action: Action = Action.SEE_PROJECT
) -> Project:
    """Return the project of a visible domain if the principal may do this to it."""
    of_domain = await find_domain(connection, principal, domain)
    found = await projects.find(connection, of_domain.name, named("project", name))
    require_visible(principal, action, found.target, f"project {name!r} in domain {of_domain.name!r}")
    return found


async def find_user(
    connection: Connection, principal: Principal, username: str, action: Action = Action.SEE_USER
) -> users.User:
    found = await users.find(connection, named("user", username))
    require_visible(principal, action, found.target, f"user {username!r}")
    return found


async def find_keypair(
    connection: Connection, principal: Principal, access_key: str, action: Action = Action.SEE_KEYPAIR
) -> Keypair:
    found = await keypairs.find(connection, access_key)
    require_visible(principal, action, found.target, f"keypair {access_key!r}")
    return found
