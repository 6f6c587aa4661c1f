"""Scorers: how good is this node, as fixed point from 0 to SCORE_ONE on an absolute scale? One file each.

No scorer normalises by what it sees on other nodes, so a placement changes the score of its own node and no other.
"""

from __future__ import annotations

from mooring.scheduling.plugins import Scorer
from mooring.scheduling.scorers.load import LoadScorer
from mooring.scheduling.scorers.locality import LocalityScorer
from mooring.scheduling.scorers.resources import ResourcesScorer

BUILT_IN_SCORERS: tuple[Scorer, ...] = (ResourcesScorer(), LoadScorer(), LocalityScorer())
