"""Admission in a pass and at submission: runs the validators and charges the usage of admitted workloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mooring.model.names import shown
from mooring.model.policy.pools import PoolPolicy
from mooring.model.reasons import Cure, Reason
from mooring.model.tenancy.admission import (
    NOTHING,
    AdmissionError,
    Awaits,
    Checked,
    all_of,
)
from mooring.model.tenancy.quotas import Tenant
from mooring.model.workloads.workload import Task, Workload
from mooring.scheduling.admission.context import AdmissionContext, at_once, within_parallel
from mooring.scheduling.admission.registry import BUILT_IN_VALIDATORS, CHECKED_BY_USAGE, Validator, asked_at
from mooring.scheduling.plugins.validators.quota_check import (
    LimitExceeded,
    PendingLimitExceeded,
    QuotaExceeded,
    describe,
)
from mooring.scheduling.tenant_usage import tenants_of

_ClassKey: TypeAlias = tuple[object, ...]
_NEVER: tuple[tuple[int, ...], None] = ((), None)


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason why a workload may not be placed now. The caller stores `reason` and `checked` with the workload."""

    workload: Workload
    reason: Reason
    checked: Checked
    awaits: Awaits


class AdmissionRefused(AdmissionError):
    """All validation failures of a workload in one error."""

    def __init__(self, failures: Sequence[tuple[str, AdmissionError]]) -> None:
        errors = [error for _, error in failures]
        cures: set[Cure] = {error.cure for error in errors}
        limits = all(isinstance(error, QuotaExceeded) for error in errors)
        super().__init__(
            # Limits of several levels that are exceeded alike are listed once.
            describe([violation for error in errors for violation in error.violations])
            if limits
            else "; ".join(error.message for error in errors),
            # Released capacity does not help as long as another failure needs more than that.
            cure="never" if "never" in cures else "change" if "change" in cures else "release",
            violations=[violation for error in errors for violation in error.violations],
            awaits=all_of(error.awaits for error in errors),
            details={
                **{key: value for error in errors for key, value in error.details.items() if key != "violations"},
                "failed": [{"by": name, "code": error.code, "message": error.message} for name, error in failures],
            },
        )


class ValidatorFailed(AdmissionError):
    """A validator failed to run; the workload does not pass it."""

    code = "constraint-evaluation-failed"

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(
            f"the validator {name!r} {problem}", cure="change", details={"plugin": name, "kind": "validator"}
        )


class Admission:
    """Admission to placement, for one pass, or to submission. Admitted workloads are charged at once."""

    def __init__(
        self,
        context: AdmissionContext,
        validators: Sequence[Validator] = BUILT_IN_VALIDATORS,
        policies: Mapping[str, PoolPolicy] | None = None,
    ) -> None:
        """`policies`: the policies of pools by name, which may run validators at other moments."""
        self.context = context
        self._validators = validators
        self._policies = policies or {}
        self._asked: dict[str, tuple[Validator, ...]] = {}
        self._asked_within_limits: dict[str, tuple[Validator, ...]] = {}
        self._passed: dict[str, Checked] = {}
        self._only_built_in = set(validators) <= set(BUILT_IN_VALIDATORS)
        self._known: dict[_ClassKey, tuple[tuple[int, ...], Rejection | None]] = {}
        """The last rejection by a limit per kind of workload, with the usage revisions of its tenants at that time."""

    def admit(self, workload: Workload) -> Workload | Rejection:
        """Return the workload with the tasks that may start now, charged; or a rejection with all reasons.

        Tasks that may start independently are cut to the number that `parallel` and the limits allow. Limits apply even
        if the pool runs their validators at submission only, because the commit rejects whatever exceeds them.
        """
        policy = self._policies.get(workload.pool)
        if policy is not None and policy.paused:
            reason = pool_paused(workload.pool, policy.paused_reason)
            return Rejection(workload, reason, Checked(self.context.now, (), (reason,)), NOTHING)
        if self.context.inactive and (inactive := self._inactive(workload)) is not None:
            return inactive
        free = within_parallel(workload)
        if workload.tasks and free <= 0:
            return self._rejected(workload, [("parallel", _parallel_reached(workload))])
        usage = self.context.usage
        if self._known:
            revisions, before = self._known.get(self._class_key(workload), _NEVER)
            if before is not None and revisions == usage.revisions_of(workload):
                return Rejection(workload, before.reason, before.checked, before.awaits)
        within = usage.tasks_within(workload)
        failures = self._failures(workload, within_limits=within >= len(workload.tasks))
        if not failures and within < len(workload.tasks):
            least = at_once(workload)
            if within < least:
                violations = usage.violations(workload, least)
                exceeded = QuotaExceeded(describe(violations), violations, workload, self.context)
                failures.append(("quota", exceeded))
            free = min(free, within)
        if failures:
            rejection = self._rejected(workload, failures)
            if self._only_built_in and all(_is_of_tenant(error) for _, error in failures):
                self._known[self._class_key(workload)] = usage.revisions_of(workload), rejection
            return rejection
        admitted = workload if free >= len(workload.tasks) else self._cut(workload, free)
        usage.charge(admitted)
        return admitted

    def within_limits(self, workloads: Iterable[Workload]) -> list[Workload]:
        """Return those that would start if there were capacity for all, reduced to the tasks that limits admit.

        Charge nothing. Earlier workloads come first.
        """
        admitted = [found for found in map(self.admit, workloads) if isinstance(found, Workload)]
        for workload in admitted:
            self.refund(workload)
        return admitted

    def _inactive(self, workload: Workload) -> Rejection | None:
        """Return a rejection if a tenant is deactivated. Like a paused pool, this does not depend on validators."""
        found = [tenant for tenant in tenants_of(workload) if tenant in self.context.inactive]
        if not found:
            return None
        reason = tenant_inactive(found[-1], self.context.inactive[found[-1]])
        return Rejection(workload, reason, Checked(self.context.now, (), (reason,)), Awaits(tenants=frozenset(found)))

    def refund(self, workload: Workload, tasks: int | None = None) -> None:
        """Refund tasks of an admitted workload (None: all) that found no placement or lost it."""
        self.context.usage.refund(workload, tasks)

    def passed(self, workload: Workload) -> Checked:
        """Return the record to store with an admitted workload: it passed all validators of its pool."""
        known = self._passed.get(workload.pool)
        if known is None:
            names = tuple(validator.name for validator in self._validators_of(workload.pool))
            known = self._passed[workload.pool] = Checked(self.context.now, names)
        return known

    def check(self, workload: Workload) -> None:
        """Raise one error with all validation failures; charge nothing."""
        failures = self._failures(workload)
        if failures:
            raise AdmissionRefused(failures)

    def _class_key(self, workload: Workload) -> _ClassKey:
        """Return a key that is equal for workloads that exceed the same limits by the same amounts.

        It includes the fields that other built-in validators read, such as dependencies.
        """
        return (
            workload.pool,
            workload.access_key,
            # Numbers, because the hash of a UUID is computed in Python.
            workload.user_id.int,
            workload.project_id.int,
            workload.domain_id.int,
            workload.private,
            workload.booking,
            bool(workload.occupied),
            len(workload.tasks),
            at_once(workload),
            tuple(workload.request.items()),
            workload.dependencies,
            workload.behind,
            workload.starts_at,
        )

    def _failures(self, workload: Workload, *, within_limits: bool = False) -> list[tuple[str, AdmissionError]]:
        """Return the errors of the validators. `within_limits`: all tasks are known to be within all limits."""
        failures: list[tuple[str, AdmissionError]] = []
        for validator in self._validators_of(workload.pool, within_limits=within_limits):
            try:
                validator.check(workload, self.context)
            except AdmissionError as error:
                failures.append((validator.name, error.with_traceback(None)))
            except Exception as error:
                problem = f"raised {type(error).__name__}: {shown(str(error))[:200]}"
                failures.append((validator.name, ValidatorFailed(validator.name, problem)))
        return failures

    def _rejected(self, workload: Workload, failures: Sequence[tuple[str, AdmissionError]]) -> Rejection:
        failed = {name for name, _ in failures}
        passed = tuple(name for name in self.passed(workload).passed if name not in failed)
        reasons = tuple(error.reason(name) for name, error in failures)
        checked = Checked(self.context.now, passed, reasons)
        if len(failures) == 1:
            return Rejection(workload, reasons[0], checked, failures[0][1].awaits)
        combined = AdmissionRefused(failures)
        return Rejection(workload, combined.reason("admission"), checked, combined.awaits)

    def _cut(self, workload: Workload, number: int) -> Workload:
        """Return the workload with `number` of its tasks, preferring those that do not back off after an error."""
        return replace(workload, tasks=tuple(sorted(workload.tasks, key=self._backs_off)[:number]))

    def _backs_off(self, task: Task) -> bool:
        return task.not_before is not None and task.not_before > self.context.now

    def _validators_of(self, pool: str, *, within_limits: bool = False) -> tuple[Validator, ...]:
        asked = self._asked_within_limits.get(pool) if within_limits else self._asked.get(pool)
        if asked is None:
            asked = self._asked[pool] = asked_at(self.context.moment, self._validators, self._policies.get(pool))
            rest = tuple(validator for validator in asked if type(validator) not in CHECKED_BY_USAGE)
            self._asked_within_limits[pool] = rest
            return rest if within_limits else asked
        return asked


def pool_paused(pool: str, why: str | None) -> Reason:
    """Return the reason why a pool places nothing. Resuming it changes the pool, which requeues all its workloads."""
    said = f": {why}" if why else ""
    return Reason("pool-paused", f"pool {pool} is paused{said}", "pool", "change", {"pool": pool, "reason": why})


def tenant_inactive(tenant: Tenant, name: str) -> Reason:
    scope = tenant.scope.value
    return Reason(
        "tenant-inactive",
        f"{scope} '{shown(name)}' was deactivated: its waiting work does not start until an admin activates it again",
        "tenants",
        "change",
        {"scope": scope, "name": name},
    )


def _is_of_tenant(error: AdmissionError) -> bool:
    """Return whether equivalent workloads exceed the same limit; a pending limit depends on the queue position."""
    return isinstance(error, LimitExceeded) and not isinstance(error, PendingLimitExceeded)


def _parallel_reached(workload: Workload) -> AdmissionError:
    return AdmissionError(
        f"{workload.parallel} of its tasks may run at the same time, and that many are running",
        code="parallel-limit",
        awaits=Awaits(workloads=frozenset({workload.id})),
        details={"parallel": workload.parallel, "waiting": len(workload.tasks)},
    )
