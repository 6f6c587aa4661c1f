"""Slots: what each counts, and sums of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.errors import InvalidInput
from mooring.model.quantity import INT64_MAX
from mooring.model.slots import (
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
def test_what_is_held_reserved_and_used_leaves_the_rest(held: int, reserved: int, used: int, asked: int, accepted):
    # A capacity of 10 of which 9 are taken takes 1 more and not 2; a node that shrank takes nothing at all.
    assert fits(10, held, reserved, used, asked) is accepted
