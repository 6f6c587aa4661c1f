"""The kernels give nodes the values that the definition gives them, whatever their devices, CPU and demand."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.nodes.node import Node
from mooring.model.resources.devices import WHOLE, Device
from mooring.scheduling import Cluster, Registry
from mooring.scheduling.cluster.typical_requests import TypicalRequest
from mooring.scheduling.compiled.engine import CompiledEngine
from mooring.scheduling.compiled.expected_fill.arrays import NODE
from mooring.scheduling.compiled.expected_fill.values import value_of
from mooring.scheduling.expected_fill.demand import CPU_LEVELS
from tests.selection import examples

DEVICES = 8
AMOUNTS = st.one_of(st.integers(1, 20).map(lambda tenth: tenth * 50), st.sampled_from([0, WHOLE, 2 * WHOLE, 8 * WHOLE]))
CPU = st.one_of(st.integers(0, 4_000), st.integers(4_000, 300_000), st.just(2_000_000))
TYPICAL = st.builds(
    lambda gpu, cpu, weight, models: TypicalRequest({"gpu": gpu, "cpu": cpu}, weight, models),
    AMOUNTS,
    st.sampled_from([0, 500, 2_000, 4_250, 11_400, 64_000]),
    st.integers(1, 200),
    st.sampled_from([frozenset[str](), frozenset({"old"}), frozenset({"new"})]),
)
PARTS = st.lists(st.one_of(st.just(WHOLE), st.just(0), st.integers(0, WHOLE)), min_size=DEVICES, max_size=DEVICES)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(TYPICAL, min_size=1, max_size=12), st.integers(0, CPU_LEVELS), st.lists(st.tuples(CPU, PARTS), min_size=5)
)
def test_values_of_nodes_equal_those_of_the_definition(
    typical: list[TypicalRequest], level: int, states: list[tuple[int, list[int]]]
) -> None:
    cluster = Cluster()
    for model in ("old", "new"):
        devices = tuple(Device(index, model=model) for index in range(DEVICES))
        cluster.upsert(Node(name=model, allocatable={"gpu": DEVICES * WHOLE}, devices={"gpu": devices}))
    cluster.set_typical_requests("default", typical)
    fill = cluster.expected_fill.of("default")
    engine = CompiledEngine(cluster, Registry().profile("gpu"))
    engine.sync()
    arrays = engine.shapes.fill
    for cpu, parts in states:
        for of_class in range(fill.demand.classes):
            ascending = sorted(parts)
            arrays.scratch[NODE, :DEVICES] = ascending
            found = value_of(arrays, fill.number * (CPU_LEVELS + 1) + level, of_class, cpu)
            assert found == fill.values.value(level, of_class, cpu, tuple(ascending))
