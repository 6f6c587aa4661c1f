"""The version of the configuration, by which caches of it are valid or not."""

from __future__ import annotations

from mooring.model.events import Topics
from mooring.store.control.events import PLACED, USAGE
from mooring.store.core.configuration import TENANTS

_WORK = frozenset({"workload", "task", "timeslot", "scale-request"})
_ROUTINE = frozenset({("pool", PLACED), ("tenant", USAGE)})


class ConfigurationVersion:
    """Counts the commits that may have changed tenants, credentials, policies, pools or nodes.

    It receives the topics of every commit: those of this process after each commit and before its answer, so that a
    cache is never older than an answer of this server, and those of other servers when their signals arrive.
    """

    def __init__(self) -> None:
        self.number = 0
        self.cluster_number = 0
        """Counts commits that may have changed more than tenants and credentials; no user can cause one."""

    def receive(self, topics: Topics) -> None:
        changes = None if topics is None else [each for each in topics if each[0] not in _WORK and each not in _ROUTINE]
        if changes is None or changes:
            self.number += 1
        if changes is None or any(each != TENANTS and each[0] != "tenant" for each in changes):
            self.cluster_number += 1
