"""A failing seed is repeatable: faults and load follow from it alone."""

from __future__ import annotations

from itertools import pairwise

from tests.system.faults.load import Action, make_load, steps_of
from tests.system.faults.plan import POSTGRES, FaultKind, lanes, make_plan

LEASE_SECONDS = 3.0


def test_the_same_seed_gives_the_same_faults_and_the_same_load() -> None:
    assert make_plan(7, 300, LEASE_SECONDS) == make_plan(7, 300, LEASE_SECONDS)
    assert make_load(7, 300) == make_load(7, 300)


def test_another_seed_gives_other_faults_and_another_load() -> None:
    assert make_plan(7, 300, LEASE_SECONDS) != make_plan(8, 300, LEASE_SECONDS)
    assert make_load(7, 300) != make_load(8, 300)


def test_a_long_plan_has_every_fault_of_every_part() -> None:
    planned = {(fault.kind, fault.target) for fault in make_plan(7, 600, LEASE_SECONDS)}
    assert planned == {choice for lane in lanes().values() for choice in lane.choices}


def test_faults_of_interchangeable_parts_never_overlap_and_all_end_in_time() -> None:
    plan = make_plan(7, 300, LEASE_SECONDS)
    for lane in lanes().values():
        own = [fault for fault in plan if (fault.kind, fault.target) in lane.choices]
        assert own
        assert all(first.at + first.seconds < second.at for first, second in pairwise(own))
        assert own[-1].at + own[-1].seconds <= 300


def test_pauses_and_cuts_last_longer_than_a_lease() -> None:
    lasting = (FaultKind.PAUSE, FaultKind.CUT, FaultKind.HOLD)
    for fault in make_plan(7, 600, LEASE_SECONDS):
        if fault.kind in lasting and fault.target != POSTGRES:
            assert fault.seconds > LEASE_SECONDS


def test_filled_and_drained_nodes_are_repaired_by_the_same_lane() -> None:
    fills, drains = steps_of(make_plan(7, 300, LEASE_SECONDS))
    assert [step.action for step in fills] == [Action.SUBMIT, Action.CANCEL] * (len(fills) // 2)
    assert [step.action for step in drains] == [Action.DRAIN, Action.RESUME] * (len(drains) // 2)
    assert fills
    assert drains


def test_the_load_has_all_kinds_of_work_and_no_name_twice() -> None:
    steps = [step for lane in make_load(7, 300) for step in lane]
    works = [work for step in steps for work in step.works]
    assert {step.action for step in steps} == {Action.SUBMIT, Action.BATCH, Action.SCALE, Action.CANCEL}
    assert len({work.name for work in works}) == len(works)
    assert any(work.gang for work in works)
    assert any(work.apart for work in works)
    assert any(work.retries for work in works)
    assert {work.kind for work in works} == {"session", "deployment"}
