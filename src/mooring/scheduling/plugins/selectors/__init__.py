"""Selectors: which of the feasible nodes? One file each."""

from __future__ import annotations

from mooring.scheduling.plugins.selectors.highest import HighestScore, Ties
from mooring.scheduling.plugins.selectors.lexicographic import Concentrated, Dispersed
from mooring.scheduling.plugins.selectors.round_robin import RoundRobin

__all__ = ["Concentrated", "Dispersed", "HighestScore", "RoundRobin", "Ties"]
