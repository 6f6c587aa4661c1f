"""Validators of installed packages are found, and one that hangs delays no other."""

import threading
from types import SimpleNamespace

import pytest

from mooring.mirror.validators import ContainedValidator, installed_validators
from mooring.model.errors import InvalidInput
from mooring.model.policy.pools import Moment
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import (
    BUILT_IN_VALIDATORS,
    Admission,
    AdmissionContext,
    AdmissionError,
    Rejection,
    registry,
)
from tests.scheduling.builders import NOW


class Nights:
    name = "nights"
    moments = frozenset({Moment.SCHEDULING})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        if context.now.hour < 20:
            raise AdmissionError("it is not night", code="too-early", cure="change")


class Sleeper(Nights):
    name = "sleeper"

    def __init__(self) -> None:
        self.released = threading.Event()

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        self.released.wait()


def refusal(*asked: ContainedValidator) -> tuple[str, str]:
    answer = Admission(AdmissionContext(NOW), asked).admit(Workload(name="w"))
    assert isinstance(answer, Rejection)
    return answer.reason.code, answer.reason.message


def offer(monkeypatch: pytest.MonkeyPatch, made: type[object]) -> None:
    entry = SimpleNamespace(load=lambda: made)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group == "mooring.validators" else [])


def test_a_package_adds_a_validator(monkeypatch: pytest.MonkeyPatch):
    offer(monkeypatch, Nights)
    found = installed_validators()
    assert found[:-1] == BUILT_IN_VALIDATORS
    answer = Admission(AdmissionContext(NOW), found).admit(Workload(name="w"))
    assert isinstance(answer, Rejection)
    assert (answer.reason.code, answer.reason.by) == ("too-early", "nights")
    assert "concurrency" in answer.checked.passed


def test_no_package_takes_the_name_of_a_built_in_one(monkeypatch: pytest.MonkeyPatch):
    offer(monkeypatch, type("Mine", (Nights,), {"name": "concurrency"}))
    with pytest.raises(InvalidInput, match="there is a validator 'concurrency' already"):
        installed_validators()


def test_a_validator_that_hangs_is_named_and_asked_no_more_until_it_answers():
    sleeper = Sleeper()
    contained = ContainedValidator(sleeper, seconds=0.01)
    failed = "constraint-evaluation-failed"
    assert refusal(contained) == (failed, "the validator 'sleeper' did not answer within 0.01 s")
    assert refusal(contained) == (failed, "the validator 'sleeper' still hangs in an earlier call")
    sleeper.released.set()
