"""Prefers nodes near the region that the workload asks for: 1 - latency / 200 ms."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.shapes import Shape

SAME_REGION_MS = 5
FARTHEST_MS = 200
"""Counts for every pair of regions whose distance is not known, too."""

DEFAULT_REGION = "us-east"
"""Where a node is that names no region."""

LATENCY_MS = {
    frozenset(pair): milliseconds
    for pair, milliseconds in {
        ("us-east", "us-west"): 45,
        ("us-east", "eu-west"): 80,
        ("us-east", "eu-central"): 90,
        ("us-east", "ap-south"): 180,
        ("us-east", "ap-northeast"): 150,
        ("us-west", "eu-west"): 120,
        ("us-west", "eu-central"): 130,
        ("us-west", "ap-south"): 160,
        ("us-west", "ap-northeast"): 100,
        ("eu-west", "eu-central"): 15,
        ("eu-west", "ap-south"): 120,
        ("eu-west", "ap-northeast"): 200,
        ("eu-central", "ap-south"): 100,
        ("eu-central", "ap-northeast"): 180,
        ("ap-south", "ap-northeast"): 80,
    }.items()
}


class LocalityScorer:
    """Without a wish for a region every node is equally near."""

    name = "locality"
    depends_on: DependsOn = "static"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        wanted = shape.region
        if wanted is None:
            return np.full(len(rows), SCORE_ONE, dtype=np.int64)
        by_code = np.array([nearness(wanted, region) for region in cluster.regions.values], dtype=np.int64)
        return by_code[cluster.region[rows]]


def nearness(wanted: str, region: str | None) -> int:
    return SCORE_ONE * (FARTHEST_MS - latency_ms(wanted, region or DEFAULT_REGION)) // FARTHEST_MS


def latency_ms(one: str, other: str) -> int:
    return SAME_REGION_MS if one == other else LATENCY_MS.get(frozenset((one, other)), FARTHEST_MS)
