"""The policy of a pool: how its workloads are placed and how decisions become durable."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mooring.model.preemption import Preemption


class Binding(StrEnum):
    """How decisions are committed: at once, after locking the chosen nodes, or when all agents have prepared."""

    OPTIMISTIC = "optimistic"
    PESSIMISTIC = "pessimistic"
    TWO_PHASE = "two_phase"


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    profile: str
    weights: tuple[tuple[str, int], ...] | None = None
    """Scorers and their weights in place of the profile's own."""
    binding: Binding = Binding.OPTIMISTIC
    hold_seconds: int = 60
    """How long a chosen place is kept while it is being made ready."""
    fragmentation: bool = False
    """A share of a device may be split over several devices where none has enough left."""
    preemption: Preemption | None = None
