"""Policies: what those may do who carry one, and how much: keypairs, users, projects and domains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mooring.model.slots import Amounts


class Unspecified(StrEnum):
    """What a slot means that a policy's limits do not name."""

    UNLIMITED = "unlimited"
    LIMITED = "limited"
    """None of it may be used."""


class Right(StrEnum):
    """What a field of a request alone does not give."""

    PRIVATE = "private"
    SYSTEM = "system"
    DESIGNATE = "designate"
    """Name the only nodes that a session may run on."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A number of None or below 1 is no limit.

    `limits` hold for each tenant that carries the policy, over all pools together. Of all else the innermost policy
    speaks: the keypair's, or else the user's, the project's, the domain's.
    """

    limits: Amounts = field(default_factory=dict)
    unspecified: Unspecified = Unspecified.UNLIMITED
    max_sessions: int | None = None
    """Workloads that have something on a node at the same time."""
    max_private_sessions: int | None = 1
    max_pending: int | None = None
    max_pending_slots: Mapping[str, int] = field(default_factory=dict)
    max_priority: int | None = None
    max_tasks: int | None = None
    """Of one workload; arrays have their own."""
    max_array_size: int | None = 10_000
    default_time_seconds: int | None = None
    max_time_seconds: int | None = None
    rights: frozenset[Right] = frozenset()


NO_POLICY = Policy()
