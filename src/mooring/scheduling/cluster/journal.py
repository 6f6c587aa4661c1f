"""The journal of changed rows, so that a reader refreshes only the rows that changed since its revision."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_LIMIT = 1 << 16
"""Entries kept. A reader that is further behind reads everything again, which costs no more than catching up."""


class Journal:
    """An append-only list of changed rows; a revision is a position in it."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._dropped = 0

    @property
    def revision(self) -> int:
        return self._dropped + len(self._rows)

    def note(self, rows: Iterable[int]) -> None:
        self._rows.extend(rows)
        if len(self._rows) > _LIMIT:
            surplus = len(self._rows) - _LIMIT // 2
            del self._rows[:surplus]
            self._dropped += surplus

    def since(self, revision: int) -> NDArray[np.intp] | None:
        """Return the rows that changed after `revision`, each once, unordered; None if that is no longer known."""
        if revision < self._dropped:
            return None
        changed = set(self._rows[revision - self._dropped :])
        return np.fromiter(changed, dtype=np.intp, count=len(changed))
