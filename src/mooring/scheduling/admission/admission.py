"""Admission in a pass and at submission: asks the validators, and counts what it lets through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mooring.model.admission import NOTHING, AdmissionError, Awaits, Checked, all_of
from mooring.model.names import shown
from mooring.model.pools import PoolPolicy
from mooring.model.reasons import Cure, Reason
from mooring.model.workloads import Task, Workload
from mooring.scheduling.admission.context import AdmissionContext, at_once, within_parallel
from mooring.scheduling.admission.quota import LimitExceeded, QuotaExceeded, describe
from mooring.scheduling.admission.validators import BUILT_IN_VALIDATORS, Validator, asked_at

_Alike: TypeAlias = tuple[object, ...]
_NEVER: tuple[tuple[int, ...], None] = ((), None)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a workload may not be placed now; the reason is to be stored with it, and `checked` too."""

    workload: Workload
    reason: Reason
    checked: Checked
    awaits: Awaits


class AdmissionRefused(AdmissionError):
    """All that stands in the way of a workload, in one."""

    def __init__(self, failures: Sequence[tuple[str, AdmissionError]]) -> None:
        errors = [error for _, error in failures]
        cures: set[Cure] = {error.cure for error in errors}
        super().__init__(
            "; ".join(error.message for error in errors),
            # Where one of them needs more than released capacity, that alone does not help.
            cure="never" if "never" in cures else "change" if "change" in cures else "release",
            violations=[violation for error in errors for violation in error.violations],
            awaits=all_of(error.awaits for error in errors),
            details={
                **{key: value for error in errors for key, value in error.details.items() if key != "violations"},
                "failed": [{"by": name, "code": error.code, "message": error.message} for name, error in failures],
            },
        )


class ValidatorFailed(AdmissionError):
    """A validator did not do its work; nobody passes it until it does."""

    code = "constraint-evaluation-failed"

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(
            f"the validator {name!r} {problem}", cure="change", details={"plugin": name, "kind": "validator"}
        )


class Admission:
    """Who may be placed now, for one pass, or who may be handed in. What is admitted is charged at once."""

    def __init__(
        self,
        context: AdmissionContext,
        validators: Sequence[Validator] = BUILT_IN_VALIDATORS,
        policies: Mapping[str, PoolPolicy] | None = None,
    ) -> None:
        """`policies` of pools by name: they may have validators asked at other moments."""
        self.context = context
        self._validators = validators
        self._policies = policies or {}
        self._asked: dict[str, tuple[Validator, ...]] = {}
        self._passed: dict[str, Checked] = {}
        self._only_built_in = set(validators) <= set(BUILT_IN_VALIDATORS)
        self._known: dict[_Alike, tuple[tuple[int, ...], Rejection | None]] = {}
        """The last of each kind that exceeded a limit, and how far its tenants had moved."""

    def admit(self, workload: Workload) -> Workload | Rejection:
        """The workload with the tasks that may start now, charged; or what keeps it waiting, all of it together.

        Tasks that may start apart are cut to what `parallel` and the limits leave. Limits hold even where the pool
        asks their validators at submission only: the commit would refuse what exceeds them.
        """
        policy = self._policies.get(workload.pool)
        if policy is not None and policy.paused:
            reason = pool_paused(workload.pool, policy.paused_reason)
            return Rejection(workload, reason, Checked(self.context.now, (), (reason,)), NOTHING)
        free = within_parallel(workload)
        if workload.tasks and free <= 0:
            return self._rejected(workload, [("parallel", _parallel_reached(workload))])
        usage = self.context.usage
        if self._known:
            moves, before = self._known.get(self._alike(workload), _NEVER)
            if before is not None and moves == usage.moves_of(workload):
                return replace(before, workload=workload)
        failures = self._failures(workload)
        if not failures and (within := usage.tasks_within(workload)) < len(workload.tasks):
            least = at_once(workload)
            if within < least:
                violations = usage.violations(workload, least)
                exceeded = QuotaExceeded(describe(violations), violations, workload, self.context)
                failures.append(("quota", exceeded))
            free = min(free, within)
        if failures:
            rejection = self._rejected(workload, failures)
            if self._only_built_in and all(isinstance(error, LimitExceeded) for _, error in failures):
                self._known[self._alike(workload)] = usage.moves_of(workload), rejection
            return rejection
        admitted = workload if free >= len(workload.tasks) else self._cut(workload, free)
        usage.charge(admitted)
        return admitted

    def refund(self, workload: Workload, tasks: int | None = None) -> None:
        """So many tasks of an admitted workload (None: all) found no place, or did not keep it."""
        self.context.usage.refund(workload, tasks)

    def passed(self, workload: Workload) -> Checked:
        """What is to be stored with a workload that was admitted: it passed all that its pool asks."""
        known = self._passed.get(workload.pool)
        if known is None:
            names = tuple(validator.name for validator in self._validators_of(workload.pool))
            known = self._passed[workload.pool] = Checked(self.context.now, names)
        return known

    def check(self, workload: Workload) -> None:
        """Raise all that stands in its way, in one error; nothing is charged."""
        failures = self._failures(workload)
        if failures:
            raise AdmissionRefused(failures)

    def _alike(self, workload: Workload) -> _Alike:
        """Equal for workloads that exceed the same limits by the same, and that nothing else keeps waiting."""
        return (
            workload.pool,
            workload.access_key,
            workload.user_id,
            workload.project_id,
            workload.domain_id,
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

    def _failures(self, workload: Workload) -> list[tuple[str, AdmissionError]]:
        failures: list[tuple[str, AdmissionError]] = []
        for validator in self._validators_of(workload.pool):
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
        together = AdmissionRefused(failures)
        return Rejection(workload, together.reason("admission"), checked, together.awaits)

    def _cut(self, workload: Workload, number: int) -> Workload:
        """So many of its tasks, those first that need not wait after an error."""
        return replace(workload, tasks=tuple(sorted(workload.tasks, key=self._backs_off)[:number]))

    def _backs_off(self, task: Task) -> bool:
        return task.not_before is not None and task.not_before > self.context.now

    def _validators_of(self, pool: str) -> tuple[Validator, ...]:
        asked = self._asked.get(pool)
        if asked is None:
            asked = asked_at(self.context.moment, self._validators, self._policies.get(pool))
            self._asked[pool] = asked
        return asked


def pool_paused(pool: str, why: str | None) -> Reason:
    """Why nothing of a pool is placed; that it is resumed is a change of the pool, which tries everything in it."""
    said = f": {why}" if why else ""
    return Reason("pool-paused", f"pool {pool} is paused{said}", "pool", "change", {"pool": pool, "reason": why})


def _parallel_reached(workload: Workload) -> AdmissionError:
    return AdmissionError(
        f"{workload.parallel} of its tasks may run at the same time, and so many do",
        code="parallel-limit",
        awaits=Awaits(workloads=frozenset({workload.id})),
        details={"parallel": workload.parallel, "waiting": len(workload.tasks)},
    )
