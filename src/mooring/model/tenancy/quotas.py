"""Quotas: limits on the concurrent use of tenants over all pools, and their violations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

SESSIONS = "sessions"
"""A slot of tenants that counts workloads which occupy a node."""
PRIVATE_SESSIONS = "private-sessions"


class Scope(StrEnum):
    """The levels of tenants, innermost first."""

    KEYPAIR = "keypair"
    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"


class Tenant(NamedTuple):
    """A tenant with quotas: a keypair by its access key, the others by their ids as text."""

    scope: Scope
    id: str


@dataclass(frozen=True, slots=True)
class Violation:
    """A limit that a workload would exceed."""

    tenant: Tenant
    name: str
    """The name of the tenant."""
    slot: str
    used: int
    requested: int
    limit: int

    @property
    def excess(self) -> int:
        return self.used + self.requested - self.limit

    @property
    def hopeless(self) -> bool:
        """True if the request alone exceeds the limit, so that no release of others can help."""
        return self.requested > self.limit

    def as_dict(self) -> dict[str, Any]:
        return {
            "scope": self.tenant.scope.value,
            "tenant": self.tenant.id,
            "name": self.name,
            "slot": self.slot,
            "used": self.used,
            "requested": self.requested,
            "limit": self.limit,
            "excess": self.excess,
        }
