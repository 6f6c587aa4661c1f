"""Events: notices of changes, which tell a reader which rows to read again."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Literal, NamedTuple
from uuid import UUID

from mooring.model.errors import InvalidInput

Noun = Literal["workload", "task", "node", "pool", "tenant", "timeslot", "scale-request"]

Topic = tuple[str, str]
"""The noun and the kind of an event: the subject of a commit, for receivers of commit signals."""
Topics = Set[Topic] | None
"""The topics of the events of one commit; None if they are unknown, so that it may concern everybody."""

CURSOR_PATTERN = r"^[0-9]{1,19}-[0-9]{1,19}$"
_LARGEST = 2**63 - 1


class Event(NamedTuple):
    """An entry of the feed. It carries no state, only where to look; `node_id` is the node whose counters moved."""

    revision: int
    noun: Noun
    object_id: UUID
    version: int
    kind: str
    node_id: UUID | None = None
    workload_id: UUID | None = None


class Cursor(NamedTuple):
    """A position in the feed: everything up to it was read, nothing after it.

    The feed is ordered by the transaction that wrote an event, then by its revision. Revisions alone would not do:
    a transaction may commit after another one that took higher revisions, and a reader that went on behind those
    would never see it. Where the database writes one transaction after the other the first number is always 0.
    """

    transaction: int
    revision: int

    def __str__(self) -> str:
        return f"{self.transaction}-{self.revision}"


def parse_cursor(text: str) -> Cursor:
    if re.fullmatch(CURSOR_PATTERN, text) is not None:
        cursor = Cursor(*map(int, text.split("-")))
        if max(cursor) <= _LARGEST:
            return cursor
    raise InvalidInput(
        f"{text[:60]!r} is not a position in the event feed; use the cursor of an event, or the `next` of a page",
        code="invalid-cursor",
    )


def encode_topics(topics: Set[Topic]) -> str:
    return ",".join(sorted(f"{noun}:{kind}" for noun, kind in topics))


def decode_topics(text: str) -> Topics:
    """Return the topics of a notification; None if it names none."""
    parts = (part.partition(":") for part in text.split(",") if part)
    return frozenset((noun, kind) for noun, _, kind in parts) or None
