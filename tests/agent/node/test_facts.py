"""The devices of a machine: found through the driver's tool, or as an operator writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.agent.node.facts import declared_devices, graphics_processors, machine_facts
from mooring.agent.options import Options
from mooring.agent.runtimes.process.isolation import Isolation
from mooring.model.errors import InvalidInput
from mooring.wire.agents.agent_protocol import DeviceFact


def tool(folder: Path, output: str) -> None:
    """A driver's tool that prints this."""
    script = folder / "nvidia-smi"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
    script.chmod(0o755)


def test_the_drivers_tool_names_devices_with_model_and_memory(tmp_path, monkeypatch):
    tool(tmp_path, "0, NVIDIA A100-SXM4-80GB, 81920\n1, Tesla, V100, [N/A]\nno devices were found")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert graphics_processors() == [
        DeviceFact(index=0, model="NVIDIA A100-SXM4-80GB", memory=80 * 1024**3),
        DeviceFact(index=1, model="Tesla, V100", memory=None),
    ]


def test_without_the_tool_there_are_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert graphics_processors() == []


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
