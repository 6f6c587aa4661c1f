"""Selectors: which of the nodes that may take the task? One file each."""

from __future__ import annotations

from mooring.scheduling.selectors.highest import HighestScore, Ties
from mooring.scheduling.selectors.lexicographic import Concentrated, Dispersed
from mooring.scheduling.selectors.round_robin import RoundRobin

__all__ = ["Concentrated", "Dispersed", "HighestScore", "RoundRobin", "Ties"]
