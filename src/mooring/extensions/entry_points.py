"""Discovery of entry points of installed packages."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoints

# Looked for once in a process: the metadata of every installed package is read.
_all = cache(metadata.entry_points)


def entry_points(group: str) -> EntryPoints:
    return _all().select(group=group)
