"""Arrays: one workload with a task for each of many indexes, `0-9999%50`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mooring.model.errors import InvalidInput, NotFound

LARGEST_INDEX = 2**31 - 1
_WRITTEN = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?(?:%(\d{1,10}))?", re.ASCII)
MAX_INDEXES_TEXT = 1000
"""Maximum length of a written list of indexes."""


@dataclass(frozen=True, slots=True)
class Array:
    """The task with index n has the array's index first + step x n."""

    first: int
    step: int
    count: int
    parallel: int | None = None
    """Maximum tasks that have a node at the same time."""

    def index(self, task_index: int) -> int:
        return self.first + self.step * task_index

    @property
    def indexes(self) -> range:
        return range(self.first, self.index(self.count), self.step)


def parse_array(written: str) -> Array:
    """`FIRST[-LAST[:STEP]][%PARALLEL]`."""
    match = _WRITTEN.fullmatch(written)
    if match is None:
        raise _invalid(written, "write FIRST-LAST[:STEP][%PARALLEL], such as 0-9999%50")
    first, last, step, parallel = (None if text is None else int(text) for text in match.groups())
    assert first is not None
    last, step = first if last is None else last, 1 if step is None else step
    if last < first or step < 1 or parallel == 0:
        raise _invalid(written, "the last index cannot be below the first, and step and parallel must be at least 1")
    if last > LARGEST_INDEX:
        raise _invalid(written, f"the largest index is {LARGEST_INDEX:,}")
    return Array(first, step, (last - first) // step + 1, parallel)


def parse_indexes(written: str) -> list[range]:
    """Return the indexes of `FIRST[-LAST[:STEP]],...`, such as `3,5-9`."""
    if len(written) > MAX_INDEXES_TEXT:
        raise InvalidInput(f"a list of indexes has at most {MAX_INDEXES_TEXT:,} characters", code="invalid-array")
    if "%" in written:
        raise _invalid(written, "a list of indexes has no %PARALLEL")
    if not all(_WRITTEN.fullmatch(part) for part in written.split(",")):
        raise _invalid(written, "write indexes as FIRST[-LAST[:STEP]], separated by commas, such as 3,5-9")
    return [parse_array(part).indexes for part in written.split(",")]


def select_tasks(array: Array, written: str, name: str) -> list[int]:
    """Return the task indexes that a list of the array's indexes selects; raise if the array has not all of them."""
    wanted = parse_indexes(written)
    for part in wanted:
        if (unknown := _first_unknown(part, array.indexes)) is not None:
            by = f" by {array.step}" if array.step > 1 else ""
            has = f"its indexes are {array.first}-{array.indexes[-1]}{by}"
            raise NotFound(f"array {name!r} has no index {unknown}: {has}", code="unknown-task")
    if sum(map(len, wanted)) > array.count:
        raise _invalid(written, "an index is listed more than once")
    return sorted({(index - array.first) // array.step for part in wanted for index in part})


def _first_unknown(part: range, known: range) -> int | None:
    """Return the first index that is not among the known ones; a part may be far longer than an array."""
    if part[0] not in known:
        return part[0]
    if len(part) > 1 and part.step % known.step:
        return part[1]
    behind = range(part[0], known[-1] + 1, part.step)
    return part[len(behind)] if len(behind) < len(part) else None


def _invalid(written: str, advice: str) -> InvalidInput:
    return InvalidInput(f"array {written[:40]!r}: {advice}", code="invalid-array")
