from __future__ import annotations

import numpy as np
import pytest

from mooring.model.decisions import SCORE_ONE
from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import REGIONS
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.scorers import BUILT_IN_SCORERS
from mooring.scheduling.plugins.scorers.locality import LocalityScorer
from mooring.scheduling.plugins.scorers.most_allocated import MostAllocatedScorer
from tests.scheduling.builders import NodeBuilder, WorkloadBuilder, decide, node, workload

SCORERS = {scorer.name: scorer for scorer in BUILT_IN_SCORERS}

N1 = node("n1").cpu(8).memory("16384Mi").load(20, 30)
N2 = node("n2").cpu(4).memory("8192Mi").load(0, 0)
N3 = node("n3").cpu(16).memory("32768Mi").load(80, 70)
ASKS = workload("asks").cpu(2).memory("2048Mi")


def score(scorer: str, on: NodeBuilder, asks: WorkloadBuilder) -> int:
    cluster = Cluster([on.node])
    return int(SCORERS[scorer].score(shape_of(asks.workload, cluster), cluster, cluster.rows)[0])


@pytest.mark.parametrize(
    ("name", "on", "asks", "total"),
    [
        # resources ((8-2)/8 + (16384-2048)/16384) / 2 = 0.8125; load (0.8 + 0.7) / 2 = 0.75; near 1
        # 0.4 * 0.8125 + 0.3 * 0.75 + 0.3 * 1 = 0.325 + 0.225 + 0.3
        ("no region asked for", N1, ASKS, 850_000),
        # resources (2/4 + 6144/8192) / 2 = 0.625; load 1; near 1: 0.25 + 0.3 + 0.3
        ("a smaller idle node ties", N2, ASKS, 850_000),
        # resources (14/16 + 30720/32768) / 2 = 0.90625; load (0.2 + 0.3) / 2 = 0.25; 200 ms away: 0.3625 + 0.075 + 0
        ("loaded and farthest", N3.region("ap-northeast"), ASKS.region("eu-west"), 437_500),
        # near 1 - 80/200 = 0.6: 0.325 + 0.225 + 0.18
        ("80 ms away", N1.region("us-east"), ASKS.region("eu-west"), 730_000),
        # near 1 - 5/200 = 0.975: 0.325 + 0.225 + 0.2925
        ("same region", N1.region("eu-west"), ASKS.region("eu-west"), 842_500),
    ],
)
def test_the_profile_locality_gives_the_worked_totals(name, on, asks, total):
    assert decide([on], asks).placements[0].score == total, name


def test_a_tie_goes_to_the_lowest_name():
    assert decide([N2, N1], ASKS).placements[0].node_name == "n1"


@pytest.mark.parametrize(
    ("name", "on", "asks", "expected"),
    [
        # cpu (8 - 4 - 2)/8 = 0.25, memory (16 - 8 - 4)/16 = 0.25
        (
            "what is taken counts, however it is taken",
            node("a").cpu(8).memory("16Gi").held(cpu=1).reserved(cpu=1).used(cpu=2, memory="8Gi"),
            workload("w").cpu(2).memory("4Gi"),
            250_000,
        ),
        # cpu 0, memory (16 - 4)/16 = 0.75
        ("a node without cores", node("a").memory("16Gi"), workload("w").memory("4Gi"), 375_000),
        ("a node with nothing", node("a"), workload("w"), 0),
        # cpu (2 - 5) is below 0 and counts as 0, memory 1
        ("a node that shrank below its tasks", node("a").cpu(2).memory("1Gi").used(cpu=5), workload("w"), 500_000),
        # cpu 1, memory (4 - 1)/4 = 0.75
        (
            "amounts whose product with the scale leaves int64",
            node("a").cpu(1).memory("4Ei"),
            workload("w").memory("1Ei"),
            875_000,
        ),
    ],
)
def test_the_free_fraction_of_cpu_and_memory_is_scored(name, on, asks, expected):
    assert score("resources", on, asks) == expected, name


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        (0, 0, SCORE_ONE),
        (100, 100, 0),
        (12.5, 0, 937_500),  # 1 - 0.125 / 2
        (250, -3, 500_000),  # beyond the scale is the end of the scale: (1 + 0) / 2
        (float("nan"), 0, 500_000),  # an unknown load is not taken for idleness
    ],
)
def test_the_measured_load_counts_half_cpu_half_memory(cpu, memory, expected):
    assert score("load", node("a").load(cpu, memory), workload("w")) == expected


@pytest.mark.parametrize(
    ("wanted", "region", "expected"),
    [
        ("us-east", None, 975_000),  # a node without a region counts as us-east: 1 - 5/200
        ("eu-west", None, 600_000),
        ("eu-central", "eu-west", 925_000),  # 1 - 15/200
        ("eu-west", "eu-central", 925_000),
        ("eu-west", "moon", 0),  # a distance that is not known is the farthest
        ("moon", "moon", 975_000),
    ],
)
def test_nearness_is_one_minus_latency_over_200_ms(wanted, region, expected):
    assert LocalityScorer().nearness(wanted, region) == expected


def test_every_pair_of_known_regions_has_a_distance_that_is_the_same_both_ways():
    scorer = LocalityScorer()
    for one in REGIONS:
        for other in REGIONS:
            assert 5 <= scorer.latency_ms(one, other) == scorer.latency_ms(other, one) <= 200


def test_a_pool_names_its_own_regions_and_latencies():
    scorer = LocalityScorer("oslo/bergen=20 oslo/tromso=60, bergen/tromso=1000", default_region="oslo")
    assert scorer.nearness("bergen", None) == 900_000
    assert scorer.nearness("tromso", "oslo") == 700_000
    assert scorer.nearness("tromso", "bergen") == 0
    assert scorer.nearness("us-east", "eu-west") == 0


@pytest.mark.parametrize("wrong", ["oslo=3", "oslo/oslo=3", "oslo/bergen", "oslo/bergen=-1", "a/b=1 b/a=2", "a/b=x"])
def test_invalid_latencies_are_rejected(wrong):
    with pytest.raises(InvalidInput):
        LocalityScorer(wrong)


def test_without_a_requested_region_all_nodes_are_equally_near():
    assert score("locality", node("a").region("ap-south"), workload("w")) == SCORE_ONE


@pytest.mark.parametrize("scorer", BUILT_IN_SCORERS, ids=lambda scorer: scorer.name)
def test_scores_are_int64_one_per_row(scorer):
    cluster = Cluster([N1.node, N2.node, N3.node])
    scores = scorer.score(shape_of(ASKS.region("us-west").workload, cluster), cluster, cluster.rows[1:])
    assert scores.dtype == np.int64
    assert scores.shape == (2,)


def after(cpu_left: int, memory_left: int) -> NodeBuilder:
    """A node of 10 cores and 10 bytes on which this much is left once a task of one each is there."""
    return node("a").cpu(10).memory(10).used(cpu=9 - cpu_left, memory=9 - memory_left)


ONE_EACH = workload("w").cpu(1).memory(1)


@pytest.mark.parametrize(
    ("scorer", "on", "expected"),
    [
        ("resources", after(6, 2), 400_000),  # (0.6 + 0.2) / 2
        ("most_allocated", after(6, 2), 600_000),  # 1 - that
        ("balanced", after(6, 2), 600_000),  # 1 - |0.6 - 0.2|
        ("balanced", after(3, 3), SCORE_ONE),
        ("unused_capability", after(6, 2), SCORE_ONE),
        ("unused_capability", after(6, 2).slot("gpu", 1), 500_000),  # 1 / (1 + one slot that it does not ask for)
        ("unused_capability", after(6, 2).slot("gpu", 1).used(gpu=1), SCORE_ONE),
    ],
)
def test_free_capacity_is_scored_on_an_absolute_scale(scorer, on, expected):
    assert score(scorer, on, ONE_EACH) == expected


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (4, 750_000),  # 0.6 of the target 0.8
        (2, SCORE_ONE),  # the target itself
        (1, 500_000),  # half of the way from the target to full
        (0, 0),
    ],
)
def test_bin_packing_may_have_a_target_utilisation_below_full(left, expected):
    cluster = Cluster([after(left, left).node])
    shape = shape_of(ONE_EACH.workload, cluster)
    assert int(MostAllocatedScorer(target_percent=80).score(shape, cluster, cluster.rows)[0]) == expected
