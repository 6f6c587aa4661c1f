"""Tenants: domain > project > user > keypair, outermost first, and the roles of users."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class Role(StrEnum):
    """The role of a user: admin of everything, admin of its domain, or user; a membership can make it project admin."""

    ADMIN = "admin"
    DOMAIN_ADMIN = "domain-admin"
    PROJECT_ADMIN = "project-admin"
    USER = "user"


class KeyScope(StrEnum):
    """The scope of a keypair: everything its user may do, submitting and following work, or reading."""

    ALL = "all"
    WORK = "work"
    READ = "read"

    def covers(self, other: KeyScope) -> bool:
        """Return whether it allows everything that the other allows."""
        widest_first = list(KeyScope)
        return widest_first.index(self) <= widest_first.index(other)


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated user, with the tenants that its workloads belong to."""

    user_id: UUID
    username: str
    role: Role
    domain_id: UUID
    project_id: UUID
    access_key: str
    administers: frozenset[UUID] = frozenset()
    """The projects that it is an admin of."""
    projects: frozenset[UUID] = frozenset()
    """The projects that it is a member of."""
    scope: KeyScope = KeyScope.ALL
    by_keypair: bool = False
    """Authenticated by a keypair, not by a login: it acts in the keypair's project only."""
    address: str | None = None
    """The address of the caller, if known."""

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN
