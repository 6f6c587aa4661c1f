"""How often agents send a heartbeat, and from when on their silence counts."""

from __future__ import annotations

from dataclasses import dataclass

_SUSPECT_INTERVALS, _LOST_INTERVALS = 2, 3


@dataclass(frozen=True, slots=True)
class Pace:
    """By the number of nodes: the more there are, the less often each speaks, and the longer it may be silent."""

    least_seconds: float = 5.0
    most_per_second: float = 50.0
    """Of all agents together."""
    grace_seconds: float = 5.0
    """For a heartbeat that is on its way, before it counts as missing."""
    timeout_seconds: float = 30.0

    def interval_seconds(self, nodes: int) -> float:
        return max(self.least_seconds, nodes / self.most_per_second)

    def suspect_seconds(self, nodes: int) -> float:
        """So long a silence keeps new tasks away."""
        return _SUSPECT_INTERVALS * self.interval_seconds(nodes) + self.grace_seconds

    def lost_seconds(self, nodes: int) -> float:
        """So long a silence costs the node its tasks."""
        return max(self.timeout_seconds, _LOST_INTERVALS * self.interval_seconds(nodes))
