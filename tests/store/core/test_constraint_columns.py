"""Constraints as JSON columns lose nothing."""

import json

import pytest

from mooring.model.labels import equal_to
from mooring.model.resources.devices import DeviceDemand
from mooring.model.workloads.constraints import (
    Constraints,
    HostPort,
    Spread,
    Toleration,
)
from mooring.store.core.constraint_columns import decode_constraints, encode_constraints
from mooring.store.workloads import pending
from tests.store.harness import Harness


@pytest.mark.parametrize(
    "constraints",
    [
        pytest.param(Constraints(), id="none"),
        pytest.param(
            Constraints(devices=(DeviceDemand("gpu", frozenset({"A100", "H100"}), 8 << 30), DeviceDemand("fpga"))),
            id="devices",
        ),
        pytest.param(
            Constraints(
                tolerations=(Toleration("dedicated", exists=True),),
                spread=(Spread("zone", 1, equal_to({"app": "web"})),),
                host_ports=(HostPort(80),),
            ),
            id="of other kinds",
        ),
    ],
)
def test_encoded_constraints_are_decoded_unchanged(constraints: Constraints):
    encoded = json.loads(json.dumps(encode_constraints(constraints)))
    assert decode_constraints(encoded) == constraints


def test_default_constraints_are_not_encoded():
    assert encode_constraints(Constraints()) == {}
    assert encode_constraints(Constraints(devices=(DeviceDemand("gpu", frozenset({"T4"})),))) == {
        "devices": ({"slot": "gpu", "models": ["T4"], "memory": 0},)
    }


async def test_workloads_with_equal_constraints_share_one_object(harness: Harness):
    demanding = Constraints(devices=(DeviceDemand("gpu", frozenset({"T4"})),), host_ports=(HostPort(80),))
    ids = [await harness.submit(name, constraints=each) for name, each in (("a", demanding), ("b", demanding))]
    other = await harness.submit("c")
    async with harness.database.read() as connection:
        found = await pending.constraints_of(connection, [*ids, other])
        placed = {each.id: each.constraints for each in await pending.waiting(connection)}
    assert found == {ids[0]: demanding, ids[1]: demanding, other: Constraints()} == placed
    assert found[ids[0]] is found[ids[1]] is placed[ids[0]]


async def test_large_constraints_are_not_kept(harness: Harness):
    large = Constraints(labels=tuple((f"label-{number}", "x" * 60) for number in range(60)))
    ids = [await harness.submit(name, constraints=large) for name in ("a", "b")]
    async with harness.database.read() as connection:
        found = await pending.constraints_of(connection, ids)
    assert found == dict.fromkeys(ids, large)
    assert found[ids[0]] is not found[ids[1]]
