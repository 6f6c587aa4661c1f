"""Policies: what those may do who carry one, and how much: keypairs, users, projects and domains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from mooring.model.errors import InvalidInput
from mooring.model.slots import Amounts, format_amounts, parse_amounts

_LARGEST = 2**31 - 1
E = TypeVar("E", bound=StrEnum)


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
    booking_horizon_seconds: int | None = None
    """So far ahead a timeslot may begin."""
    max_booking_seconds: int | None = None
    """How long one timeslot may be."""
    max_bookings: int | None = None
    """Timeslots of one user that are not over."""
    max_booking_slot_hours: Mapping[str, int] = field(default_factory=dict)
    """By slot what the timeslots of one user that are not over may keep in all: amounts times hours."""
    rights: frozenset[Right] = frozenset()


NO_POLICY = Policy()


def parse_policy(rules: Mapping[str, Any]) -> Policy:
    """A policy as people write it, amounts as `"8"` or `"64Gi"`; InvalidInput for whatever cannot be meant."""
    known = [rule.name for rule in fields(Policy)]
    unknown = sorted(set(rules) - set(known))
    if unknown:
        raise InvalidInput(
            f"a policy knows no {', '.join(repr(name[:40]) for name in unknown)}; it knows: {', '.join(known)}",
            code="unknown-rule",
            details={"known": known},
        )
    policy = Policy(**{name: _rule(name, value) for name, value in rules.items()})
    default, most = policy.default_time_seconds, policy.max_time_seconds
    if default and most and default > most:
        raise _wrong("default_time_seconds", f"{default} is more than max_time_seconds, {most}")
    return policy


def policy_rules(policy: Policy) -> dict[str, Any]:
    """The policy as `parse_policy` reads it; what says nothing else than the default is left out."""
    rules: dict[str, Any] = {}
    for rule in fields(Policy):
        value = getattr(policy, rule.name)
        if value != getattr(NO_POLICY, rule.name):
            rules[rule.name] = _written(value)
    return rules


def _written(value: Any) -> Any:
    if isinstance(value, Mapping):
        return format_amounts(value)
    return sorted(value) if isinstance(value, frozenset) else value


def _rule(name: str, value: Any) -> Any:
    if name in ("limits", "max_pending_slots", "max_booking_slot_hours"):
        return _amounts(name, value)
    if name == "unspecified":
        return _one_of(Unspecified, name, value)
    if name == "rights":
        if not isinstance(value, list | tuple):
            raise _wrong(name, "write a list of rights")
        return frozenset(_one_of(Right, name, right) for right in value)
    if value is not None and (type(value) is not int or not 0 <= value <= _LARGEST):
        raise _wrong(name, "write a whole number, or null for no limit")
    return value


def _amounts(name: str, value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _wrong(name, "write slots with their amounts")
    if any(isinstance(amount, bool) or not isinstance(amount, str | int) for amount in value.values()):
        raise _wrong(name, 'write amounts such as "8", "500m" or "64Gi"')
    return parse_amounts(value)


def _one_of(kind: type[E], name: str, value: Any) -> E:
    try:
        return kind(value)
    except ValueError:
        raise _wrong(name, f"{str(value)[:40]!r} is none of {', '.join(kind)}") from None


def _wrong(name: str, problem: str) -> InvalidInput:
    return InvalidInput(f"policy rule {name}: {problem}", code="invalid-policy", details={"rule": name})
