"""Prefers nodes near the requested region: 1 - latency / 200 ms."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.model.errors import InvalidInput
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn

SAME_REGION_MS = 5
FARTHEST_MS = 200
"""Also assumed between regions whose latency is unknown."""

DEFAULT_REGION = "us-east"
"""The region of nodes without one."""

DEFAULT_LATENCIES = (
    "us-east/us-west=45, us-east/eu-west=80, us-east/eu-central=90, us-east/ap-south=180, us-east/ap-northeast=150, "
    "us-west/eu-west=120, us-west/eu-central=130, us-west/ap-south=160, us-west/ap-northeast=100, "
    "eu-west/eu-central=15, eu-west/ap-south=120, eu-west/ap-northeast=200, eu-central/ap-south=100, "
    "eu-central/ap-northeast=180, ap-south/ap-northeast=80"
)
_PAIR = re.compile(r"([a-z0-9][a-z0-9.-]{0,62})/([a-z0-9][a-z0-9.-]{0,62})=([0-9]{1,4})")

Latencies = Mapping[frozenset[str], int]
"""Milliseconds by pair of regions."""


def parse_latencies(text: str) -> Latencies:
    """Read `REGION/REGION=MILLISECONDS` pairs with spaces or commas between."""
    found: dict[frozenset[str], int] = {}
    for part in text.replace(",", " ").split():
        match = _PAIR.fullmatch(part)
        if match is None or match[1] == match[2]:
            raise InvalidInput(
                f"{part[:80]!r} is not a pair of regions with a latency, for example us-east/eu-west=80",
                code="invalid-latency",
            )
        pair = frozenset((match[1], match[2]))
        if pair in found:
            raise InvalidInput(f"the regions {match[1]} and {match[2]} are named twice", code="invalid-latency")
        found[pair] = int(match[3])
    return found


class LocalityScorer:
    """Return the scores; without a requested region all nodes are equally near."""

    name = "locality"
    depends_on: DependsOn = "static"

    def __init__(self, latencies: str = DEFAULT_LATENCIES, default_region: str = DEFAULT_REGION) -> None:
        self._latencies = parse_latencies(latencies)
        self._default_region = default_region

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        wanted = shape.region
        if wanted is None:
            return np.full(len(rows), SCORE_ONE, dtype=np.int64)
        by_code = np.array([self.nearness(wanted, region) for region in cluster.regions.values], dtype=np.int64)
        return by_code[cluster.region[rows]]

    def nearness(self, wanted: str, region: str | None) -> int:
        latency = min(self.latency_ms(wanted, region or self._default_region), FARTHEST_MS)
        return SCORE_ONE * (FARTHEST_MS - latency) // FARTHEST_MS

    def latency_ms(self, one: str, other: str) -> int:
        return SAME_REGION_MS if one == other else self._latencies.get(frozenset((one, other)), FARTHEST_MS)
