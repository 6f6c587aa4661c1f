"""Points: Kubernetes' whole numbers from 0 to 100, and their normalisation."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Scores

ONE_POINT = SCORE_ONE // 100


def by_largest(raw: Scores, *, reverse: bool = False) -> Scores:
    """Scale so that the largest becomes 100; reversed, subtract the result from 100."""
    largest = int(raw.max(initial=0))
    points = raw if largest == 0 else raw * 100 // largest
    return 100 - points if reverse else points


def by_range(raw: Scores) -> Scores:
    """Scale so that the smallest becomes 0 and the largest 100; all 0 if they are equal."""
    if not len(raw):
        return raw
    smallest, largest = int(raw.min()), int(raw.max())
    if smallest == largest:
        return np.zeros(len(raw), dtype=np.int64)
    points: Scores = (100 * ((raw - smallest) / (largest - smallest))).astype(np.int64)
    return points
