"""Corrections as values: cells to change, each with its reason, and cases that the sources do not decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Table, and_, delete, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

Key = Mapping[str, Any]
"""The primary key of a row, by column."""


class Cell(NamedTuple):
    column: str
    before: Any
    after: Any
    why: str


@dataclass(frozen=True, slots=True)
class Correction:
    """One row to insert, change or delete."""

    table: Table
    key: Key
    cells: tuple[Cell, ...]
    rule: str
    subject: str
    inserts: bool = False
    deletes: bool = False

    @property
    def row(self) -> str:
        return " ".join(str(value) for value in self.key.values())


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Sources that contradict each other without a majority; reported and left unchanged."""

    rule: str
    subject: str
    found: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for one object: corrections, or an unresolved contradiction that leaves it unchanged."""

    corrections: tuple[Correction, ...] = ()
    unresolved: tuple[Unresolved, ...] = ()


def changed(table: Table, key: Key, cells: Sequence[Cell], rule: str, subject: str) -> list[Correction]:
    """Return the correction of the cells that differ, if any do."""
    wrong = tuple(cell for cell in cells if cell.before != cell.after)
    return [Correction(table, key, wrong, rule, subject)] if wrong else []


def inserted(table: Table, key: Key, values: Mapping[str, Any], why: str, rule: str, subject: str) -> Correction:
    cells = tuple(Cell(column, None, value, why) for column, value in values.items())
    return Correction(table, key, cells, rule, subject, inserts=True)


def deleted(table: Table, key: Key, values: Mapping[str, Any], why: str, rule: str, subject: str) -> Correction:
    cells = tuple(Cell(column, value, None, why) for column, value in values.items())
    return Correction(table, key, cells, rule, subject, deletes=True)


async def write(connection: AsyncConnection, corrections: Sequence[Correction]) -> None:
    """Write the corrections. Deletions come first: a wrong row may have the key of a missing one."""
    for each in sorted(corrections, key=lambda correction: not correction.deletes):
        row = and_(*(each.table.c[column] == value for column, value in each.key.items()))
        after = {cell.column: cell.after for cell in each.cells}
        if each.deletes:
            await connection.execute(delete(each.table).where(row))
        elif each.inserts:
            await connection.execute(insert(each.table).values({**each.key, **after}))
        else:
            await connection.execute(update(each.table).where(row).values(after))


def shown(value: Any) -> str:
    """Return a value as text for a message."""
    if value is None:
        return "nothing"
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def as_json(value: Any) -> Any:
    """Return a cell as the record of administrative actions stores it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
