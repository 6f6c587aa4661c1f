"""The interval of agent heartbeats, and the limits of silence."""

from __future__ import annotations

from dataclasses import dataclass

_SUSPECT_INTERVALS, _LOST_INTERVALS = 2, 3


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals by the number of nodes: with more nodes, each sends less often and may be silent for longer."""

    least_seconds: float = 5.0
    most_per_second: float = 50.0
    """Maximum heartbeats per second of all agents together."""
    grace_seconds: float = 5.0
    """Allowance for a heartbeat in transit, before it counts as missing."""
    timeout_seconds: float = 30.0

    def interval_seconds(self, nodes: int) -> float:
        return max(self.least_seconds, nodes / self.most_per_second)

    def suspect_seconds(self, nodes: int) -> float:
        """Return the silence after which the node gets no new tasks."""
        return _SUSPECT_INTERVALS * self.interval_seconds(nodes) + self.grace_seconds

    def lost_seconds(self, nodes: int) -> float:
        """Return the silence after which the node's tasks are lost."""
        return max(self.timeout_seconds, _LOST_INTERVALS * self.interval_seconds(nodes))
