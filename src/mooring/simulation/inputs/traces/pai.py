"""Tasks of the Alibaba GPU trace of 2020 ("PAI"): `pai_task_table.csv`, with or without its header."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import chain

from mooring.model.resources.devices import WHOLE
from mooring.simulation.inputs.text_files import csv_rows, invalid
from mooring.simulation.inputs.traces.columns import Number
from mooring.simulation.jobs import Job

COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
_STATUSES = frozenset({"Terminated", "Failed", "Running", "Waiting"})
_MOST_INSTANCES = 100_000
_PERCENT = Fraction(1, 100)
_UNITS = {
    "cpu": Number("plan_cpu", 1000 * _PERCENT),
    "memory": Number("plan_mem", Fraction(1 << 30)),
    "gpu": Number("plan_gpu", WHOLE * _PERCENT),
}


def is_pai(first_line: str) -> bool:
    fields = [field.strip() for field in first_line.split(",")]
    return len(fields) == len(COLUMNS) and (fields[0] == COLUMNS[0] or fields[3] in _STATUSES)


def read_pai(lines: Iterator[str], name: str) -> list[Job]:
    """Return the tasks that ran, in the order of their starts; time 0 is the first one. Instances form a gang.

    The table has no submission times, so a task counts as submitted when it started. A task without any amount is left
    out. The GPU type is the assigned one, which no task demands.
    """
    first = next(lines, "")
    own_header = first.split(",")[0].strip() == COLUMNS[0]
    rows = csv_rows(chain([first], lines), name, header=None if own_header else COLUMNS, required=COLUMNS)
    found = sorted((task for where, row in rows if (task := _task(row, where)) is not None), key=lambda task: task[0])
    begins = found[0][0] if found else 0
    return [
        Job(number, label, start - begins, seconds, None, request, instances)
        for number, (start, seconds, label, request, instances) in enumerate(found)
    ]


def _task(row: Mapping[str, str], where: str) -> tuple[int, int, str, dict[str, int], int] | None:
    start, end = _whole(row, "start_time", where), _whole(row, "end_time", where)
    request = {slot: int(amount) for slot, unit in _UNITS.items() if (amount := unit.of(row, where))}
    if start is None or end is None or end <= start or not request:
        return None
    instances = _whole(row, "inst_num", where) or 1
    if min(request.values()) < 0 or max(request.values()) >> 62 or not 0 < instances <= _MOST_INSTANCES:
        raise invalid(f"{where}: an amount or the number of instances is negative or too large")
    return start, end - start, f"{row['job_name']}/{row['task_name']}", request, instances


def _whole(row: Mapping[str, str], column: str, where: str) -> int | None:
    value = Number(column).of(row, where)
    return None if value is None else int(value)
