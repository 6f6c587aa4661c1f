"""Versions, compared as versions: 2.10 is newer than 2.9. Patterns are globs or comparisons such as `>=2.4,<3`."""

from __future__ import annotations

import operator
import re
from fnmatch import fnmatchcase
from itertools import takewhile

_PART = re.compile(r"[0-9]+|[a-zA-Z]+")
_COMPARISON = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*")
_COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def allows(pattern: str, version: str) -> bool:
    """Return whether a version matches a pattern; every comma-separated part must match."""
    return all(_holds(part.strip(), version) for part in pattern.split(","))


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return the sort key of a version: numbers numerically, words (such as `rc`) before the release without one."""
    parts = [(1, int(part), "") if part.isdigit() else (-1, 0, part.lower()) for part in _PART.findall(version)]
    release = list(takewhile(lambda part: part[0] == 1, parts))
    rest = parts[len(release) :]
    while release and release[-1][1] == 0:
        release.pop()
    return (*release, *rest, (0, 0, ""))


def _holds(part: str, version: str) -> bool:
    comparison = _COMPARISON.fullmatch(part)
    if comparison is None:
        return fnmatchcase(version, part)
    return bool(version) and bool(_COMPARE[comparison[1]](version_key(version), version_key(comparison[2])))
