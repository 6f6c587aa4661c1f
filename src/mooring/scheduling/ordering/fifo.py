"""First come, first served within a priority; the highest priority first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mooring.model.workloads import Workload


class FifoSequencer:
    def order(self, workloads: Sequence[Workload]) -> Sequence[Workload]:
        return sorted(workloads, key=_turn)


def _turn(workload: Workload) -> tuple[int, datetime, int]:
    return -workload.priority, workload.created_at, workload.id.int
