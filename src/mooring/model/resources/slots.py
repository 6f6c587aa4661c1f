"""Slots: named countable resources, each with the base unit of its int64 amounts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from mooring.model.errors import InvalidInput
from mooring.model.resources.quantity import format_binary, format_decimal, parse_quantity, to_units

Kind = Literal["milli", "bytes", "count"]

UNITS_PER_ONE: Mapping[Kind, int] = {"milli": 1000, "bytes": 1, "count": 1}
_NAME = re.compile(r"[a-z0-9]([-a-zA-Z0-9._/]{0,61}[a-zA-Z0-9])?", re.ASCII)

_DIGITS = frozenset("0123456789.")
_LIKELY_GIBIBYTES = 512
_LIKELY_BYTES = 1 << 20

Amounts = Mapping[str, int]
"""Slot name to int64 in the slot's base unit."""


@dataclass(frozen=True, slots=True)
class SlotType:
    """The unit of a slot: thousandths (cores, devices), bytes, or items."""

    name: str
    kind: Kind
    description: str = ""
    compressible: bool = False
    """Its use can be throttled instead of ended, so it can be overcommitted."""
    devices: bool = False
    """It consists of devices, which tasks get as a whole or as device shares."""
    quantum: int = 1
    """Amounts are multiples of this many base units."""

    def parse(self, text: str | int) -> int:
        """Return the base units of a written amount; raise if the unit or the quantum cannot represent it exactly.

        Amounts of bytes may end in B: 2048B, 2GiB.
        """
        number = text.removesuffix("B") if self.kind == "bytes" and isinstance(text, str) else text
        units = to_units(number, UNITS_PER_ONE[self.kind], what=self.name)
        if units % self.quantum:
            raise InvalidInput(
                f"{self.name}: {text} is not a multiple of {self.format(self.quantum)}", code="invalid-quantum"
            )
        return units

    def parse_with_unit(self, text: str | int) -> int:
        """Parse an amount written by a person, who has to give the unit of bytes: 2048 may mean MiB or bytes."""
        if self.kind == "bytes" and str(text)[-1:] in _DIGITS and (number := parse_quantity(str(text))):
            raise InvalidInput(
                f"{self.name}: {text} has no unit; write {_with_likely_units(number)}", code="missing-unit"
            )
        return self.parse(text)

    def format(self, units: int) -> str:
        return format_binary(units) if self.kind == "bytes" else format_decimal(units, UNITS_PER_ONE[self.kind])


def _with_likely_units(number: Fraction) -> str:
    """Return the amounts of bytes that a number without a unit may mean, the likeliest first."""
    if number.denominator != 1:
        return f"{float(number):g}Gi or {float(number):g}Mi"
    units = int(number)
    if units < _LIKELY_GIBIBYTES:
        return f"{units}Gi, {units}Mi or {units}B"
    if units < _LIKELY_BYTES:
        size = format_binary(units << 20)
        return f"{units}Mi or {units}B" if size == f"{units}Mi" else f"{size}, {units}Mi or {units}B"
    size = format_binary(units)
    return f"{units}B" if size == str(units) else f"{size} or {units}B"


BUILT_IN = (
    SlotType("cpu", "milli", "CPU cores, in thousandths", compressible=True),
    SlotType("memory", "bytes", "memory"),
    SlotType("gpu", "milli", "GPUs, in thousandths of a device", devices=True),
    SlotType("storage", "bytes", "disk space of a task"),
)
_EPHEMERAL = SlotType("ephemeral-storage", "bytes", "disk space that ends with the task", compressible=True)
_HUGE_PAGES = "hugepages-"
_BY_NAME = {slot.name: slot for slot in (*BUILT_IN, _EPHEMERAL)}


def slot_type(name: str) -> SlotType:
    """Return the type of a slot: a built-in one, hugepages in bytes, or a count for any other name."""
    known = _BY_NAME.get(name)
    if known is not None:
        return known
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name[:64]!r} is not a slot name", code="invalid-slot")
    if name.startswith(_HUGE_PAGES):
        return SlotType(name, "bytes", "huge pages of one size", quantum=_page_bytes(name))
    return SlotType(name, "count")


def _page_bytes(name: str) -> int:
    """Return the page size of a hugepages slot from its name: only whole pages can be allocated."""
    try:
        size = to_units(name.removeprefix(_HUGE_PAGES), UNITS_PER_ONE["bytes"], what=name)
    except InvalidInput as error:
        raise InvalidInput(
            f"{name[:64]!r} does not name the size of a page, as hugepages-2Mi does", code="invalid-slot"
        ) from error
    if size < 1:
        raise InvalidInput(f"{name[:64]!r} names no size of a page, as hugepages-2Mi does", code="invalid-slot")
    return size


def parse_amounts(written: Mapping[str, str | int]) -> dict[str, int]:
    return {name: slot_type(name).parse(value) for name, value in written.items()}


def amounts(**written: str | int) -> dict[str, int]:
    """Return amounts by slot in base units from readable ones: `amounts(cpu="500m", memory="2Gi", gpu=1)`."""
    return parse_amounts(written)


def format_amounts(amounts: Amounts) -> dict[str, str]:
    return {name: slot_type(name).format(units) for name, units in amounts.items()}


def describe_amounts(amounts: Amounts) -> str:
    """Return one readable line: `2 cpu, 2Gi memory`."""
    return ", ".join(f"{slot_type(name).format(units)} {name}" for name, units in amounts.items() if units) or "nothing"


def total(parts: Iterable[Amounts]) -> dict[str, int]:
    """Return the sum of several amounts, by slot."""
    result: dict[str, int] = {}
    for part in parts:
        for name, units in part.items():
            result[name] = result.get(name, 0) + units
    return result


def fits(allocatable: int, held: int, reserved: int, used: int, request: int) -> bool:
    """The fit rule, shared by filter, commit guard, audit and simulator."""
    return held + reserved + used + request <= allocatable
