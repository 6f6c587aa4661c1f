"""Quantities: exact in, exact out, and an error where the unit cannot hold them."""

from collections.abc import Callable
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.errors import InvalidInput
from mooring.model.resources.quantity import (
    INT64_MAX,
    canonical,
    format_binary,
    format_decimal,
    parse_quantity,
    to_units,
)


def nano(value: Fraction) -> int:
    """In billionths, rounded away from zero."""
    return ceil(abs(value) * 10**9) * (-1 if value < 0 else 1)


def parsed(text: str) -> dict[str, Any]:
    try:
        return {"value_nano": str(nano(parse_quantity(text)))}
    except InvalidInput:
        return {"error": True}


def test_quantities_parse_as_kubernetes_parses_them(conformance: Callable[[str], Any]):
    cases = [case for case in conformance("quantity.json") if case["op"] == "quantity-parse"]
    found = {case["id"]: (case["input"]["text"], parsed(case["input"]["text"])) for case in cases}
    assert found == {case["id"]: (case["input"]["text"], case["expect"]) for case in cases}


def test_quantities_are_written_as_kubernetes_writes_them(conformance: Callable[[str], Any]):
    cases = [case for case in conformance("quantity.json") if case["op"] == "quantity-canonical"]
    found = {case["id"]: canonical(case["input"]["text"]) for case in cases}
    assert found == {case["id"]: case["expect"]["text"] for case in cases}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", Fraction(2)),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("500m", Fraction(1, 2)),
        ("-1k", Fraction(-1000)),
        ("2Gi", Fraction(2 * 2**30)),
        ("1.5Ki", Fraction(1536)),
        ("1e3", Fraction(1000)),
        ("1E3", Fraction(1000)),
        ("1E", Fraction(10**18)),
        ("1e-3", Fraction(1, 1000)),
        ("0.1", Fraction(1, 10)),
    ],
)
def test_a_quantity_is_exactly_what_it_says(text: str, value: Fraction):
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", " 1", "Gi", "1gi", "1K", "1KiB", "0x10", "1_000", "1,5", "１", "1e", "1e3k", "1e100", "--1",
     "NaN", "inf", "1/2", "1\n", "9" * 65, "1e999999999"],
)  # fmt: skip
def test_an_invalid_quantity_is_refused_with_a_stable_code(text: str):
    with pytest.raises(InvalidInput) as refused:
        parse_quantity(text)
    assert refused.value.code == "invalid-quantity"


@pytest.mark.parametrize(
    ("written", "units_per_one", "units"),
    [("1.5", 1000, 1500), ("1m", 1000, 1), (3, 1000, 3000), (0, 1, 0), ("-0", 1, 0), (INT64_MAX, 1, INT64_MAX)],
)
def test_an_amount_is_a_whole_number_of_base_units(written: str | int, units_per_one: int, units: int):
    assert to_units(written, units_per_one) == units


@pytest.mark.parametrize(
    ("written", "units_per_one", "code"),
    [
        ("1u", 1000, "inexact-quantity"),
        ("0.0005", 1000, "inexact-quantity"),
        ("0.5", 1, "inexact-quantity"),
        ("-1", 1000, "invalid-quantity"),
        (-1, 1, "invalid-quantity"),
        ("-1n", 1, "invalid-quantity"),
        (INT64_MAX + 1, 1, "quantity-too-large"),
        ("8Ei", 1, "quantity-too-large"),
        (INT64_MAX, 1000, "quantity-too-large"),
        ("1e99", 1, "quantity-too-large"),
    ],
)
def test_an_amount_that_the_unit_cannot_hold_is_an_error(written: str | int, units_per_one: int, code: str):
    with pytest.raises(InvalidInput) as refused:
        to_units(written, units_per_one, what="cpu")
    assert refused.value.code == code
    assert refused.value.message.startswith("cpu: ")


@given(st.integers(0, INT64_MAX))
def test_a_written_value_reads_back_the_same(units: int):
    assert to_units(format_decimal(units, 1000), 1000) == units
    assert to_units(format_decimal(units, 1), 1) == units
    assert to_units(format_binary(units), 1) == units


_numbers = st.decimals(min_value=0, max_value=10**6, places=3, allow_nan=False, allow_infinity=False).map(str)


@given(_numbers, st.sampled_from(["", "n", "u", "m", "k", "M", "Ki", "Mi", "Gi"]), st.sampled_from(["", "-", "+"]))
def test_the_canonical_form_is_the_same_amount_rounded_away_from_zero_and_canonical_itself(
    number: str, suffix: str, sign: str
):
    value = parse_quantity(sign + number + suffix)
    written = canonical(sign + number + suffix)
    assert parse_quantity(written) == Fraction(nano(value), 10**9)
    assert canonical(written) == written
