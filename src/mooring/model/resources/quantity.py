"""Quantities: exact numbers with a suffix, parsed from and printed as text (`2`, `0.5`, `500m`, `2Gi`, `1e3`).

Parsing is exact. Turning a quantity into a slot's whole number of base units fails where it would lose anything.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from mooring.model.errors import InvalidInput

INT64_MAX = 2**63 - 1

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
}
# Longest text that is looked at: beyond it the input is no amount that a person means, and big powers are slow.
_MAX_LENGTH = 64
_MAX_EXPONENT = 99
_PATTERN = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,9})|(?P<suffix>Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?))",
    re.ASCII,
)


def parse_quantity(text: str) -> Fraction:
    """Return the exact value of a quantity; raise InvalidInput that quotes the text."""
    match = _PATTERN.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise InvalidInput(
            f"{_shown(text)} is not a quantity; write a number with an optional suffix such as 500m, 1.5, 2Gi or 1e3",
            code="invalid-quantity",
            details={"text": text[:_MAX_LENGTH]},
        )
    value = Fraction(match["number"] if match["number"][-1] != "." else match["number"] + "0")
    if match["exponent"] is not None:
        exponent = int(match["exponent"])
        if abs(exponent) > _MAX_EXPONENT:
            raise InvalidInput(
                f"{_shown(text)} has an exponent beyond ±{_MAX_EXPONENT}",
                code="invalid-quantity",
                details={"text": text},
            )
        value *= Fraction(10) ** exponent
    else:
        suffix = match["suffix"]
        value *= _BINARY.get(suffix) or _DECIMAL[suffix]
    return -value if match["sign"] == "-" else value


@lru_cache(maxsize=4096, typed=True)
def to_units(text: str | int, units_per_one: int, *, what: str = "amount") -> int:
    """Return a quantity as whole base units (`units_per_one` make 1); raise if inexact, negative or too large.

    People write the same few amounts again and again, so they are remembered.
    """
    value = Fraction(text) if isinstance(text, int) else parse_quantity(text)
    scaled = value * units_per_one
    shown = _shown(str(text))
    if scaled < 0:
        raise InvalidInput(f"{what}: {shown} is negative", code="invalid-quantity")
    if scaled.denominator != 1:
        raise InvalidInput(
            f"{what}: {shown} is finer than the smallest unit (1/{units_per_one})", code="inexact-quantity"
        )
    if scaled > INT64_MAX:
        raise InvalidInput(f"{what}: {shown} is too large", code="quantity-too-large")
    return int(scaled)


def format_decimal(units: int, units_per_one: int) -> str:
    """Return base units as a decimal number: 1500 thousandths are 1.5."""
    sign = "-" if units < 0 else ""
    whole, rest = divmod(abs(units), units_per_one)
    if rest == 0:
        return f"{sign}{whole}"
    digits = len(str(units_per_one)) - 1
    return f"{sign}{whole}.{str(rest).rjust(digits, '0').rstrip('0')}"


def format_binary(units: int) -> str:
    """Return bytes with the largest exact binary suffix: 2147483648 is 2Gi."""
    for suffix, factor in reversed(_BINARY.items()):
        if units != 0 and units % factor == 0:
            return f"{units // factor}{suffix}"
    return str(units)


def canonical(text: str) -> str:
    """Return the canonical form of a quantity: no fraction, the largest suffix of its family that stays exact.

    Finer than a billionth is rounded away from zero, as the smallest suffix can say no less.
    """
    value = parse_quantity(text)
    match = _PATTERN.fullmatch(text)
    assert match is not None
    nano = -(-abs(value) * 10**9 // 1)
    nano = abs(nano)
    sign = "-" if value < 0 and nano else ""
    exact = Fraction(int(nano), 10**9)
    if nano == 0:
        return "0"
    if match["suffix"] in _BINARY and exact >= 1024 and exact.denominator == 1:
        return sign + format_binary(int(exact))
    exponents = range(18, -12, -3)
    exponent = next(power for power in exponents if (exact / Fraction(10) ** power).denominator == 1)
    number = int(exact / Fraction(10) ** exponent)
    if match["exponent"] is not None:
        return f"{sign}{number}e{exponent}" if exponent else f"{sign}{number}"
    suffix = next(name for name, factor in _DECIMAL.items() if factor == Fraction(10) ** exponent)
    return f"{sign}{number}{suffix}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
