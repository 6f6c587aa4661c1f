"""Policies: named sets of limits and rights that keypairs, users, projects and domains have.

A rule that a policy does not set is inherited; if no policy sets it, the default holds,
with and without a policy. `null` counts as set: it means no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import Amounts, format_amounts, parse_amounts
from mooring.model.tenancy.quotas import Scope

INHERIT = "inherit"
"""The value that unsets a rule."""
EACH_LEVEL = frozenset({"limits", "unspecified", "max_sessions", "max_private_sessions", "max_pending_tasks"})
"""Rules that hold for each tenant whose policy sets them. For the others, the innermost policy counts."""
PENDING_TASKS = {Scope.USER: 50_000, Scope.PROJECT: 100_000}
"""The `max_pending_tasks` of tenants whose policies do not set it."""
_LARGEST = 2**31 - 1
E = TypeVar("E", bound=StrEnum)


class Unspecified(StrEnum):
    """The meaning of a slot that a policy's limits do not name."""

    UNLIMITED = "unlimited"
    LIMITED = "limited"
    """It may not be used."""


class Right(StrEnum):
    """Rights that a request needs beyond its fields."""

    PRIVATE = "private"
    SYSTEM = "system"
    DESIGNATE = "designate"
    """Name the only nodes that a session may run on."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of a policy. A number of None or below 1 is no limit.

    `limits` and the numbers of sessions hold for each tenant that has the policy, over all pools together.
    For every other rule the innermost policy that sets it counts: the keypair's, else the user's, the project's, the
    domain's.
    """

    limits: Amounts = field(default_factory=dict)
    unspecified: Unspecified = Unspecified.UNLIMITED
    max_sessions: int | None = None
    """Maximum workloads that occupy a node at the same time."""
    max_private_sessions: int | None = None
    max_pending_tasks: int | None = None
    """Maximum pending tasks; the default is `PENDING_TASKS`."""
    max_pending: int | None = None
    max_pending_slots: Mapping[str, int] = field(default_factory=dict)
    max_priority: int | None = None
    max_tasks: int | None = None
    """Of one workload; arrays have a limit of their own."""
    max_array_size: int | None = 10_000
    default_time_seconds: int | None = None
    max_time_seconds: int | None = None
    booking_horizon_seconds: int | None = None
    """Maximum time until the start of a timeslot."""
    max_booking_seconds: int | None = None
    """Maximum length of a timeslot."""
    max_bookings: int | None = 20_000
    """Maximum timeslots of one user that are not over."""
    max_booking_slot_hours: Mapping[str, int] = field(default_factory=dict)
    """By slot, the maximum total of a user's timeslots that are not over: amounts times hours."""
    rights: frozenset[Right] = frozenset()
    explicit: frozenset[str] = frozenset()
    """Names of the rules that are set, even to their default."""

    def sets(self, name: str) -> bool:
        return name in self.explicit or getattr(self, name) != getattr(NO_POLICY, name)

    @property
    def limits_pending(self) -> bool:
        """True if it limits pending workloads."""
        return bool(self.max_pending_slots) or (self.max_pending or 0) > 0


NO_POLICY = Policy()
RULES = tuple(rule.name for rule in fields(Policy) if rule.name != "explicit")


def effective(innermost_first: Iterable[Policy]) -> Policy:
    """Return the effective rules of a keypair: each from the first policy that sets it."""
    carried = list(innermost_first)
    found = {name: policy for name in RULES for policy in reversed(carried) if policy.sets(name)}
    return Policy(**{name: getattr(policy, name) for name, policy in found.items()}, explicit=frozenset(found))


def max_pending_tasks(scope: Scope, policy: Policy | None) -> int | None:
    """Return the maximum pending tasks of a tenant by its policy; None: unlimited."""
    if policy is None or not policy.sets("max_pending_tasks"):
        return PENDING_TASKS.get(scope)
    return policy.max_pending_tasks or None


def parse_policy(rules: Mapping[str, Any]) -> Policy:
    """Return a policy from its written form, amounts as `"8"` or `"64Gi"`; raise InvalidInput for an invalid one."""
    known = list(RULES)
    unknown = sorted(set(rules) - set(known))
    if unknown:
        raise InvalidInput(
            f"a policy knows no {', '.join(repr(name[:40]) for name in unknown)}; it knows: {', '.join(known)}",
            code="unknown-rule",
            details={"known": known},
        )
    written = {name: _rule(name, value) for name, value in rules.items() if value != INHERIT}
    policy = Policy(**written, explicit=frozenset(written))
    default, most = policy.default_time_seconds, policy.max_time_seconds
    if default and most and default > most:
        raise _wrong("default_time_seconds", f"{default} is more than max_time_seconds, {most}")
    return policy


def policy_rules(policy: Policy) -> dict[str, Any]:
    """Return the rules that the policy sets, in the form that `parse_policy` reads."""
    return {name: _written(getattr(policy, name)) for name in RULES if policy.sets(name)}


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
        raise _wrong(name, f"{str(value)[:40]!r} is not one of {', '.join(kind)}") from None


def _wrong(name: str, problem: str) -> InvalidInput:
    return InvalidInput(f"policy rule {name}: {problem}", code="invalid-policy", details={"rule": name})
