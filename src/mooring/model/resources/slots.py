"""Slots: the named countable resources, each with the base unit that its int64 amounts are in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from mooring.model.errors import InvalidInput
from mooring.model.quantity import format_binary, format_decimal, to_units

Kind = Literal["milli", "bytes", "count"]

UNITS_PER_ONE: Mapping[Kind, int] = {"milli": 1000, "bytes": 1, "count": 1}
_NAME = re.compile(r"[a-z0-9]([-a-zA-Z0-9._/]{0,61}[a-zA-Z0-9])?", re.ASCII)

Amounts = Mapping[str, int]
"""Slot name to int64 in the slot's base unit."""


@dataclass(frozen=True, slots=True)
class SlotType:
    """What a slot counts: thousandths (cores, devices), bytes, or things."""

    name: str
    kind: Kind
    description: str = ""
    compressible: bool = False
    """Its use can be slowed down instead of ended, so that more of it may be promised than there is."""
    devices: bool = False
    """It is made of single devices, which tasks get as wholes or shares."""
    quantum: int = 1
    """Amounts are multiples of this many base units."""

    def parse(self, text: str | int) -> int:
        """Base units of a written amount; one that the unit or the quantum cannot hold exactly is an error."""
        units = to_units(text, UNITS_PER_ONE[self.kind], what=self.name)
        if units % self.quantum:
            raise InvalidInput(
                f"{self.name}: {text} is not a multiple of {self.format(self.quantum)}", code="invalid-quantum"
            )
        return units

    def format(self, units: int) -> str:
        return format_binary(units) if self.kind == "bytes" else format_decimal(units, UNITS_PER_ONE[self.kind])


BUILT_IN = (
    SlotType("cpu", "milli", "processor cores, in thousandths", compressible=True),
    SlotType("memory", "bytes", "main memory"),
    SlotType("gpu", "milli", "graphics processors, in thousandths of a device", devices=True),
    SlotType("storage", "bytes", "disk space of a task"),
)
_EPHEMERAL = SlotType("ephemeral-storage", "bytes", "disk space that ends with the task", compressible=True)
_BY_NAME = {slot.name: slot for slot in (*BUILT_IN, _EPHEMERAL)}


def slot_type(name: str) -> SlotType:
    """The type of a slot by its name: the built-in ones, hugepages in bytes, any other name a count."""
    known = _BY_NAME.get(name)
    if known is not None:
        return known
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name[:64]!r} is not a slot name", code="invalid-slot")
    return SlotType(name, "bytes" if name.startswith("hugepages-") else "count")


def parse_amounts(written: Mapping[str, str | int]) -> dict[str, int]:
    return {name: slot_type(name).parse(value) for name, value in written.items()}


def amounts(**written: str | int) -> dict[str, int]:
    """Amounts by slot in base units, written as a person would: `amounts(cpu="500m", memory="2Gi", gpu=1)`."""
    return parse_amounts(written)


def format_amounts(amounts: Amounts) -> dict[str, str]:
    return {name: slot_type(name).format(units) for name, units in amounts.items()}


def describe_amounts(amounts: Amounts) -> str:
    """One line for people: `2 cpu, 2Gi memory`."""
    return ", ".join(f"{slot_type(name).format(units)} {name}" for name, units in amounts.items() if units) or "nothing"


def total(parts: Iterable[Amounts]) -> dict[str, int]:
    """The sum of several amounts, slot by slot."""
    result: dict[str, int] = {}
    for part in parts:
        for name, units in part.items():
            result[name] = result.get(name, 0) + units
    return result


def fits(allocatable: int, held: int, reserved: int, used: int, request: int) -> bool:
    """The one fit rule: filter, bind guard, audit and simulator all mean this."""
    return held + reserved + used + request <= allocatable
