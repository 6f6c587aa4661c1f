"""The validators of this installation: built-in ones, and those of installed packages with a time limit."""

from __future__ import annotations

from functools import partial

from mooring.extensions.bounded_calls import Contained, Hangs
from mooring.model.policy.pools import Moment
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import (
    BUILT_IN_VALIDATORS,
    AdmissionContext,
    Validator,
    ValidatorFailed,
    discovered_validators,
)

_SECONDS = 1.0
"""Time limit of a validator for one workload."""


def installed_validators() -> tuple[Validator, ...]:
    return (*BUILT_IN_VALIDATORS, *map(ContainedValidator, discovered_validators()))


class ContainedValidator:
    """A validator with a time limit: while it hangs, every check raises ValidatorFailed at once."""

    def __init__(self, validator: Validator, seconds: float = _SECONDS) -> None:
        self.name = validator.name
        self.moments: frozenset[Moment] = validator.moments
        self._validator = validator
        self._contained = Contained(seconds)

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        try:
            self._contained.call(partial(self._validator.check, workload, context))
        except Hangs as problem:
            raise ValidatorFailed(self.name, str(problem)) from None
