"""Tenants: domain > project > user > keypair, outermost first, and the roles of users."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class Role(StrEnum):
    ADMIN = "admin"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: a user with the tenancy that its workloads carry."""

    user_id: UUID
    username: str
    role: Role
    domain_id: UUID
    project_id: UUID
    access_key: str

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN
