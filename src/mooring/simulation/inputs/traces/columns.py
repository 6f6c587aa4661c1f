"""CSV files of any kind, such as the traces of Google and Azure: a mapping says which column holds what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from mooring.model.resources.slots import UNITS_PER_ONE, slot_type
from mooring.simulation.inputs.text_files import MOST_JOBS, csv_rows, invalid
from mooring.simulation.jobs import DEFAULT_PRIORITY, Job

_LARGEST = 1 << 62
_MOST_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Number:
    """A number per row: a column times a factor, or a constant."""

    column: str | None = None
    factor: Fraction = Fraction(1)
    value: Fraction | None = None

    def of(self, row: Mapping[str, str], where: str) -> Fraction | None:
        """Return the number; None if the field is empty."""
        if self.value is not None:
            return self.value
        assert self.column is not None
        text = row[self.column].strip()
        if not text:
            return None
        try:
            if len(text) > _MOST_CHARACTERS or abs(exponent_of(text)) > _MOST_CHARACTERS:
                raise ValueError
            return Fraction(text) * self.factor
        except (ValueError, ZeroDivisionError):
            raise invalid(f"{where}: {self.column} is {text[:20]!r}, not a number") from None


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """Times are seconds, amounts are in cores, bytes, devices or items, after the factor."""

    submitted: Number
    ended: Number | None = None
    run: Number | None = None
    """One of `ended` and `run`; a row without a value does not end within the trace."""
    limit: Number | None = None
    request: Mapping[str, Number] = field(default_factory=dict)
    tasks: Number | None = None
    priority: Number | None = None
    deadline: Number | None = None
    name: str | None = None
    user: str | None = None
    project: str | None = None
    header: Sequence[str] | None = None
    """The names of the columns, if the file has no header."""

    @property
    def columns(self) -> list[str]:
        numbers = [self.submitted, self.ended, self.run, self.limit, self.tasks, self.priority, self.deadline]
        named = [each.column for each in (*numbers, *self.request.values()) if each is not None]
        return [each for each in (*named, self.name, self.user, self.project) if each is not None]


def read_columns(lines: Iterator[str], name: str, mapping: ColumnMapping) -> list[Job]:
    """Return the jobs. Amounts are rounded up to base units; rows that run for less than a second are left out."""
    jobs: list[Job] = []
    for where, row in csv_rows(lines, name, required=mapping.columns, header=mapping.header):
        submitted = _seconds(mapping.submitted, row, where)
        if submitted is None or submitted < 0:
            raise invalid(f"{where}: the submission time is missing or negative")
        run = None if mapping.run is None else _seconds(mapping.run, row, where)
        if mapping.ended is not None and (ended := _seconds(mapping.ended, row, where)) is not None:
            run = ended - submitted
        tasks = _whole(mapping.tasks, row, where, 1)
        request = {slot: _amount(slot, number, row, where) for slot, number in mapping.request.items()}
        if (run is not None and run <= 0) or tasks <= 0 or not any(request.values()):
            continue
        if len(jobs) >= MOST_JOBS:
            raise invalid(f"{where}: more than {MOST_JOBS:,} jobs; use `first` to take a part")
        limit = None if mapping.limit is None else _seconds(mapping.limit, row, where)
        jobs.append(
            Job(
                len(jobs),
                row[mapping.name] if mapping.name else f"job-{len(jobs)}",
                submitted,
                run if run is None or limit is None else min(run, limit),
                limit,
                {slot: amount for slot, amount in request.items() if amount},
                tasks,
                user=row[mapping.user] if mapping.user else "",
                project=row[mapping.project] if mapping.project else "",
                priority=_whole(mapping.priority, row, where, DEFAULT_PRIORITY),
                deadline=None if mapping.deadline is None else _seconds(mapping.deadline, row, where),
            )
        )
    return jobs


def exponent_of(text: str) -> int:
    """Return the written exponent of a number, so that no tiny text makes a huge number."""
    _, found, exponent = text.lower().partition("e")
    return int(exponent) if found else 0


def _seconds(number: Number, row: Mapping[str, str], where: str) -> int | None:
    found = number.of(row, where)
    return None if found is None else _checked(int(found), where)


def _whole(number: Number | None, row: Mapping[str, str], where: str, default: int) -> int:
    found = None if number is None else number.of(row, where)
    return default if found is None else _checked(int(found), where)


def _amount(slot: str, number: Number, row: Mapping[str, str], where: str) -> int:
    found = number.of(row, where)
    units = 0 if found is None else found * UNITS_PER_ONE[slot_type(slot).kind]
    if units < 0:
        raise invalid(f"{where}: the amount of {slot} is negative")
    return _checked(-(-int(units.numerator) // int(units.denominator)), where)


def _checked(value: int, where: str) -> int:
    if abs(value) > _LARGEST:
        raise invalid(f"{where}: a value is too large")
    return value
