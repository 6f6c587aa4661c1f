"""Which validators there are, and which of them a pool asks when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mooring.installed import entry_points
from mooring.model.errors import InvalidInput
from mooring.model.pools import Moment, PoolPolicy
from mooring.model.workloads import Workload
from mooring.scheduling.admission.concurrency import Concurrency
from mooring.scheduling.admission.context import AdmissionContext
from mooring.scheduling.admission.dependencies import Dependencies
from mooring.scheduling.admission.domain_resource_limit import DomainResourceLimit
from mooring.scheduling.admission.group_resource_limit import GroupResourceLimit
from mooring.scheduling.admission.keypair_resource_limit import KeypairResourceLimit
from mooring.scheduling.admission.pending_session_count_limit import PendingSessionCountLimit
from mooring.scheduling.admission.pending_session_resource_limit import PendingSessionResourceLimit
from mooring.scheduling.admission.reserved_batch_session import ReservedBatchSession
from mooring.scheduling.admission.user_resource_limit import UserResourceLimit


class Validator(Protocol):
    """May it run now? Reads the context alone, and raises a subclass of AdmissionError where it may not."""

    @property
    def name(self) -> str: ...

    @property
    def moments(self) -> frozenset[Moment]:
        """When it is asked, unless the pool says otherwise: at submission it rejects, in a pass it lets wait."""
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


def discovered_validators() -> tuple[Validator, ...]:
    """Those that installed packages offer under `mooring.validators`.

    An entry point names a class (or function) without arguments that makes the validator.
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
    """The validators that a pool asks at this moment, in their order."""
    chosen = dict(policy.validators) if policy is not None else {}
    return tuple(each for each in validators if moment in chosen.get(each.name, each.moments))
