"""What installed packages offer to Mooring."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoints


@cache
def entry_points(group: str) -> EntryPoints:
    """Looked for once in a process: the metadata of every installed package is read."""
    return metadata.entry_points(group=group)
