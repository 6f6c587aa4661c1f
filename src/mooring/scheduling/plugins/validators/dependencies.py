"""A workload's dependencies have ended as required, and so have the workloads that must run before it."""

from __future__ import annotations

from mooring.model.names import shown
from mooring.model.policy.pools import Moment
from mooring.model.tenancy.admission import AdmissionError, Awaits
from mooring.model.workloads.dependencies import Condition, Dependency, Fate
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission.context import AdmissionContext

_WORDS = {
    Condition.AFTER_OK: "to succeed",
    Condition.AFTER_ANY: "to end",
    Condition.AFTER_FAIL: "to fail",
}


class DependenciesNotSatisfied(AdmissionError):
    code = "dependencies-not-met"


class Dependencies:
    name = "dependencies"
    moments = frozenset({Moment.SCHEDULING})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        if not workload.dependencies and not workload.behind:
            return
        unmet = [each for each in workload.dependencies if each.fate is not Fate.MET]
        if unmet or workload.behind:
            raise DependenciesNotSatisfied(
                _message(unmet, len(workload.behind)),
                cure="never" if any(each.fate is Fate.BROKEN for each in unmet) else "change",
                awaits=Awaits(workloads=frozenset((*(each.workload_id for each in unmet), *workload.behind))),
                details={
                    "unmet": [_as_dict(each) for each in unmet],
                    "behind": [str(before) for before in workload.behind],
                },
            )


def _message(unmet: list[Dependency], behind: int) -> str:
    parts = [_sentence(each) for each in unmet]
    if behind:
        parts.append(f"waiting for {behind} that must run before it")
    return "; ".join(parts)


def _sentence(dependency: Dependency) -> str:
    name = f"'{shown(dependency.name)}'"
    wanted = _WORDS[dependency.condition]
    if dependency.fate is Fate.BROKEN:
        return f"it was waiting for {name} {wanted}, which is {dependency.status.lower()}"
    return f"waiting for {name} {wanted}"


def _as_dict(dependency: Dependency) -> dict[str, str]:
    return {
        "workload": str(dependency.workload_id),
        "name": dependency.name,
        "condition": dependency.condition.value,
        "status": dependency.status.value,
        "fate": dependency.fate.value,
    }
