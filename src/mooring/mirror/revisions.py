"""The placement revision of each pool up to which a view is complete."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID


class Revisions:
    """A pool's placements are numbered without gaps, but may become readable out of order. A view is complete up to
    the highest number below which none is missing."""

    def __init__(self, known: Mapping[UUID, int] | None = None) -> None:
        self._complete: dict[UUID, int] = dict(known or {})
        self._ahead: dict[UUID, set[int]] = {}

    def of(self, pool_id: UUID) -> int:
        return self._complete.get(pool_id, 0)

    def seen(self, pool_id: UUID, revision: int) -> None:
        """Note that the view contains the placements of this revision. Repeats are allowed."""
        complete = self.of(pool_id)
        if revision <= complete:
            return
        ahead = self._ahead.setdefault(pool_id, set())
        ahead.add(revision)
        while complete + 1 in ahead:
            complete += 1
            ahead.remove(complete)
        self._complete[pool_id] = complete
