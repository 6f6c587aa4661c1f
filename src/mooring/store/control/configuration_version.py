"""The version of the configuration, by which caches of it are valid or not."""

from __future__ import annotations

from mooring.model.events import Topics
from mooring.store.control.events import PLACED, USAGE

_WORK = frozenset({"workload", "task", "timeslot", "scale-request"})
_ROUTINE = frozenset({("pool", PLACED), ("tenant", USAGE)})


class ConfigurationVersion:
    """Counts the commits that may have changed tenants, credentials, policies, pools or nodes.

    It receives the topics of every commit: those of this process after each commit and before its answer, so that a
    cache is never older than an answer of this server, and those of other servers when their signals arrive.
    """

    def __init__(self) -> None:
        self.number = 0

    def receive(self, topics: Topics) -> None:
        if topics is None or any(noun not in _WORK and (noun, kind) not in _ROUTINE for noun, kind in topics):
            self.number += 1
