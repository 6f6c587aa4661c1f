"""Slots: what each counts, and sums of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.errors import InvalidInput
from mooring.model.resources.quantity import INT64_MAX
from mooring.model.resources.slots import (
    BUILT_IN,
    describe_amounts,
    fits,
    format_amounts,
    parse_amounts,
    slot_type,
    total,
)

NAMES = [*(slot.name for slot in BUILT_IN), "hugepages-2Mi", "licences", "example.com/fpga"]


@pytest.mark.parametrize(
    ("name", "written", "units"),
    [
        ("cpu", "500m", 500),
        ("cpu", 2, 2000),
        ("memory", "2Gi", 2**31),
        ("gpu", "0.25", 250),
        ("storage", "1G", 10**9),
        ("hugepages-2Mi", "4Mi", 4 * 2**20),
        ("licences", 3, 3),
    ],
)
def test_every_slot_has_its_base_unit(name: str, written: str | int, units: int):
    assert slot_type(name).parse(written) == units


@pytest.mark.parametrize(("name", "written"), [("cpu", "100u"), ("memory", "0.5"), ("licences", "500m")])
def test_less_than_a_base_unit_is_refused_in_the_name_of_the_slot(name: str, written: str):
    with pytest.raises(InvalidInput, match=name) as refused:
        slot_type(name).parse(written)
    assert refused.value.code == "inexact-quantity"


@given(st.sampled_from(NAMES), st.integers(0, INT64_MAX))
def test_an_amount_of_every_kind_survives_being_written(name: str, units: int):
    units -= units % slot_type(name).quantum
    assert parse_amounts(format_amounts({name: units})) == {name: units}


@pytest.mark.parametrize("name", ["", "GPU", "-gpu", "gpu-", "g pu", "gpü", "x" * 64, "a\n"])
def test_a_bad_slot_name_is_refused(name: str):
    with pytest.raises(InvalidInput) as refused:
        slot_type(name)
    assert refused.value.code == "invalid-slot"


def test_amounts_add_up_slot_by_slot():
    assert total([{"cpu": 1, "gpu": 2}, {"cpu": 3}, {}]) == {"cpu": 4, "gpu": 2}


def test_amounts_are_described_in_one_line():
    assert describe_amounts({"cpu": 2500, "memory": 2**31, "gpu": 0}) == "2.5 cpu, 2Gi memory"
    assert describe_amounts({}) == "nothing"


@pytest.mark.parametrize(
    ("held", "reserved", "used", "asked", "accepted"),
    [(2, 3, 4, 1, True), (2, 3, 4, 2, False), (0, 0, 0, 10, True), (0, 0, 0, 11, False), (0, 0, 12, 0, False)],
)
def test_held_reserved_and_used_amounts_leave_the_rest_free(held: int, reserved: int, used: int, asked: int, accepted):
    # A capacity of 10 of which 9 are taken takes 1 more and not 2; a node that shrank takes nothing at all.
    assert fits(10, held, reserved, used, asked) is accepted


def test_huge_pages_are_given_out_in_whole_pages():
    assert slot_type("hugepages-1Gi").parse("2Gi") == 2 * 2**30
    for name, amount in (("hugepages-2Mi", "3Mi"), ("hugepages-1Gi", "512Mi")):
        with pytest.raises(InvalidInput, match="not a multiple of"):
            slot_type(name).parse(amount)
    for name in ("hugepages-", "hugepages-x", "hugepages-0"):
        with pytest.raises(InvalidInput):
            slot_type(name)


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("2", "2Gi, 2Mi or 2B"),
        ("2048", "2Gi, 2048Mi or 2048B"),
        (2048, "2Gi, 2048Mi or 2048B"),
        ("1000", "1000Mi or 1000B"),
        ("1.5", "1.5Gi or 1.5Mi"),
        ("2147483648", "2Gi or 2147483648B"),
    ],
)
def test_a_person_gives_the_unit_of_bytes(written: str | int, advice: str):
    with pytest.raises(InvalidInput, match="no unit") as refused:
        slot_type("memory").parse_with_unit(written)
    assert refused.value.message.endswith(f"write {advice}")


def test_amounts_with_a_unit_and_those_of_other_slots_are_accepted():
    memory = slot_type("memory")
    assert memory.parse_with_unit("2Gi") == memory.parse_with_unit("2GiB") == 2 << 30
    assert memory.parse_with_unit("2048B") == memory.parse("2048") == memory.parse(2048) == 2048
    assert memory.parse_with_unit("0") == memory.parse_with_unit(0) == 0
    assert slot_type("cpu").parse_with_unit("2") == 2000
    with pytest.raises(InvalidInput):
        slot_type("cpu").parse("2B")
