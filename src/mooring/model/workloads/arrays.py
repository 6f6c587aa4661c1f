"""Arrays: one workload with a task for each of many indexes, `0-9999%50`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mooring.model.errors import InvalidInput

LARGEST_INDEX = 2**31 - 1
_WRITTEN = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?(?:%(\d{1,10}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Array:
    """The task with index n has the array's index first + step x n."""

    first: int
    step: int
    count: int
    parallel: int | None = None
    """So many of its tasks have a node at the same time."""

    def index(self, task_index: int) -> int:
        return self.first + self.step * task_index


def parse_array(written: str) -> Array:
    """`FIRST[-LAST[:STEP]][%PARALLEL]`."""
    match = _WRITTEN.fullmatch(written)
    if match is None:
        raise _invalid(written, "write FIRST-LAST[:STEP][%PARALLEL], such as 0-9999%50")
    first, last, step, parallel = (None if text is None else int(text) for text in match.groups())
    assert first is not None
    last, step = first if last is None else last, 1 if step is None else step
    if last < first or step < 1 or parallel == 0:
        raise _invalid(written, "the last index is not below the first, and step and parallel begin at 1")
    if last > LARGEST_INDEX:
        raise _invalid(written, f"the largest index is {LARGEST_INDEX:,}")
    return Array(first, step, (last - first) // step + 1, parallel)


def _invalid(written: str, advice: str) -> InvalidInput:
    return InvalidInput(f"array {written[:40]!r}: {advice}", code="invalid-array")
