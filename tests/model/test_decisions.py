from dataclasses import replace

from mooring.model.decisions import Decision, Outcome
from mooring.model.reasons import Reason
from mooring.model.resources.slots import amounts
from mooring.model.workloads.workload import Workload

STORED = replace(
    Workload(name="train", request=amounts(cpu=2)),
    waiting_code="insufficient-resources",
    waiting_reason="0 of 5 nodes: 5 lack 2 cpu",
)


def test_a_reason_with_other_amounts_is_new_under_the_same_code():
    decision = Decision(STORED, Outcome.WAITING, reason=Reason("insufficient-resources", "0 of 6 nodes: 6 lack 2 cpu"))
    assert (decision.has_new_reason, decision.has_new_code) == (True, False)


def test_a_reason_with_another_code_is_new_even_under_the_same_text():
    decision = Decision(STORED, Outcome.WAITING, reason=Reason("quota", "0 of 5 nodes: 5 lack 2 cpu"))
    assert (decision.has_new_reason, decision.has_new_code) == (True, True)


def test_the_stored_reason_is_not_new():
    decision = Decision(STORED, Outcome.WAITING, reason=Reason("insufficient-resources", "0 of 5 nodes: 5 lack 2 cpu"))
    assert (decision.has_new_reason, decision.has_new_code) == (False, False)


def test_a_decision_without_a_reason_has_no_new_one():
    assert not Decision(STORED, Outcome.PLACED).has_new_reason
