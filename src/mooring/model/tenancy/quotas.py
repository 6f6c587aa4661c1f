"""Quotas: how much tenants may use at once, over all pools together, and who exceeds what by how much."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

SESSIONS = "sessions"
"""Counted as a slot of tenants: workloads that have something on a node."""
PRIVATE_SESSIONS = "private-sessions"


class Scope(StrEnum):
    """The levels of tenants, innermost first."""

    KEYPAIR = "keypair"
    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"


class Tenant(NamedTuple):
    """One that has quotas: a keypair by its access key, the others by their ids as text."""

    scope: Scope
    id: str


@dataclass(frozen=True, slots=True)
class Violation:
    """A limit that a workload would exceed."""

    tenant: Tenant
    name: str
    """What people call the tenant."""
    slot: str
    used: int
    requested: int
    limit: int

    @property
    def excess(self) -> int:
        return self.used + self.requested - self.limit

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
