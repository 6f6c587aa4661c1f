"""The registry of validators, built in and discovered, and the selection for a pool and a moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mooring.extensions.entry_points import entry_points
from mooring.model.errors import InvalidInput
from mooring.model.policy.pools import Moment, PoolPolicy
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission.context import AdmissionContext
from mooring.scheduling.plugins.validators.concurrency import Concurrency
from mooring.scheduling.plugins.validators.dependencies import Dependencies
from mooring.scheduling.plugins.validators.domain_resource_limit import DomainResourceLimit
from mooring.scheduling.plugins.validators.group_resource_limit import GroupResourceLimit
from mooring.scheduling.plugins.validators.keypair_resource_limit import KeypairResourceLimit
from mooring.scheduling.plugins.validators.pending_session_count_limit import PendingSessionCountLimit
from mooring.scheduling.plugins.validators.pending_session_resource_limit import PendingSessionResourceLimit
from mooring.scheduling.plugins.validators.reserved_batch_session import ReservedBatchSession
from mooring.scheduling.plugins.validators.user_resource_limit import UserResourceLimit


class Validator(Protocol):
    """An admission rule. `check` reads only the context and raises a subclass of AdmissionError to reject."""

    @property
    def name(self) -> str: ...

    @property
    def moments(self) -> frozenset[Moment]:
        """The default moments of the check: at submission it rejects, in a pass it keeps the workload queued.

        A pool's policy can override them.
        """
        ...

    def check(self, workload: Workload, context: AdmissionContext) -> None: ...


BUILT_IN_VALIDATORS: tuple[Validator, ...] = (
    ReservedBatchSession(),
    Dependencies(),
    Concurrency(),
    PendingSessionResourceLimit(),
    PendingSessionCountLimit(),
    KeypairResourceLimit(),
    UserResourceLimit(),
    GroupResourceLimit(),
    DomainResourceLimit(),
)

CHECKED_BY_USAGE = frozenset(
    (Concurrency, KeypairResourceLimit, UserResourceLimit, GroupResourceLimit, DomainResourceLimit)
)
"""Validators that compare usage with limits: a workload of which all tasks are within the limits passes them all."""


def discovered_validators() -> tuple[Validator, ...]:
    """Return the validators that installed packages provide under the entry point group `mooring.validators`.

    An entry point names a class or function that makes the validator without arguments.
    """
    found: dict[str, Validator] = {}
    for entry in entry_points(group="mooring.validators"):
        validator: Validator = entry.load()()
        if validator.name in found or any(validator.name == known.name for known in BUILT_IN_VALIDATORS):
            raise InvalidInput(
                f"there is a validator {validator.name!r} already; choose another name", code="invalid-plugin"
            )
        found[validator.name] = validator
    return tuple(found.values())


def asked_at(moment: Moment, validators: Sequence[Validator], policy: PoolPolicy | None) -> tuple[Validator, ...]:
    """Return the validators that a pool runs at this moment, in order."""
    chosen = dict(policy.validators) if policy is not None else {}
    return tuple(each for each in validators if moment in chosen.get(each.name, each.moments))
