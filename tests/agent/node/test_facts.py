"""The devices of a machine: found through the driver's tool, or as an operator writes them."""

from __future__ import annotations

import pytest

from mooring.agent.node.facts import declared_devices, machine_facts
from mooring.agent.options import Options
from mooring.agent.runtimes.process.isolation import Isolation
from mooring.model.errors import InvalidInput


def test_declared_devices_are_numbered_and_make_the_capacity(tmp_path):
    devices = declared_devices(["gpu=2:A100:80Gi", "gpu=1:T4", "fpga=2"])
    assert [(d.index, d.model, d.memory) for d in devices["gpu"]] == [
        (0, "A100", 80 * 1024**3),
        (1, "A100", 80 * 1024**3),
        (2, "T4", None),
    ]
    facts = machine_facts(
        tmp_path,
        runtimes={"process": {}},
        multi_tenant=True,
        isolation=Isolation("user", "no namespaces"),
        options=Options(devices=devices),
    )
    assert (facts.isolation, facts.isolation_reason) == ("user", "no namespaces")
    assert (facts.capacity["gpu"], facts.capacity["fpga"]) == (3000, 2)
    assert facts.enforces == {"gpu": "environment", "fpga": "environment"}


@pytest.mark.parametrize("written", ["gpu", "gpu=", "gpu=0", "gpu=x", "gpu=1000", "cpu=4", "=2", "gpu=1:A100:much"])
def test_text_without_devices_is_refused(written):
    with pytest.raises(InvalidInput):
        declared_devices([written])
