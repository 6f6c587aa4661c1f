"""Tenants: domain > project > user > keypair, outermost first, and the roles of users."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class Role(StrEnum):
    """A user is an admin of everything, of its domain, or a user; a membership makes it admin of a project."""

    ADMIN = "admin"
    DOMAIN_ADMIN = "domain-admin"
    PROJECT_ADMIN = "project-admin"
    USER = "user"


class KeyScope(StrEnum):
    """What a keypair is good for: all that its user may do, handing in and following work, or looking."""

    ALL = "all"
    WORK = "work"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: a user with the tenancy that its workloads carry."""

    user_id: UUID
    username: str
    role: Role
    domain_id: UUID
    project_id: UUID
    access_key: str
    administers: frozenset[UUID] = frozenset()
    """The projects whose admin it is."""
    projects: frozenset[UUID] = frozenset()
    """The projects that it is a member of."""
    scope: KeyScope = KeyScope.ALL
    by_keypair: bool = False
    """It came with a keypair, not with a login: it acts in the keypair's project only."""
    address: str | None = None
    """From where it asks, as far as that is known."""

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN
