"""Nodes: machines that run tasks, as placement sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from mooring.model.lifecycle import NodeStatus
from mooring.model.slots import Amounts

REGIONS = ("us-east", "us-west", "eu-west", "eu-central", "ap-south", "ap-northeast")
"""The regions whose distances are known; a node may name any other."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node with what it offers and what is taken of it, per slot in base units."""

    id: UUID
    name: str
    pool: str
    status: NodeStatus = NodeStatus.READY
    schedulable: bool = True
    unschedulable_reason: str | None = None
    runtimes: frozenset[str] = frozenset()
    architecture: str = "x86_64"
    region: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False
    owner: UUID | None = None
    """Only this user's tasks may run here (an agent without root runs nothing of others)."""
    max_tasks: int | None = None
    generation: int = 1
    """Raised by every change that placement depends on, other than the counters."""
    allocatable: Amounts = field(default_factory=dict)
    held: Amounts = field(default_factory=dict)
    reserved: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    tasks: int = 0
    """How many tasks occupy it."""
    cpu_percent: float = 0.0
    memory_percent: float = 0.0
    """Measured load, 0..100."""

    @property
    def ready(self) -> bool:
        return self.status is NodeStatus.READY and self.schedulable
