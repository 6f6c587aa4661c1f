"""GPUs as the driver's tool lists and measures them, and the use of them by task."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.agent.node.gpus import GpuUse, gpu_use, gpus, has_gpus, use_of_tasks
from mooring.wire.agents.agent_protocol import DeviceFact
from tests.agent.builders import order

MIB = 1024**2


def tool(folder: Path, output: str) -> None:
    """A driver's tool that prints this."""
    script = folder / "nvidia-smi"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
    script.chmod(0o755)


def test_the_drivers_tool_names_devices_with_model_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tool(tmp_path, "0, NVIDIA A100-SXM4-80GB, 81920\n1, Tesla, V100, [N/A]\nno devices were found")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert gpus() == [
        DeviceFact(index=0, model="NVIDIA A100-SXM4-80GB", memory=80 * 1024**3),
        DeviceFact(index=1, model="Tesla, V100", memory=None),
    ]


def test_without_the_tool_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus() == []


def test_the_tool_measures_the_devices_that_can_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tool(tmp_path, "0, 37, 1024\n1, [N/A], [N/A]\n2, 100, 0\nno such device")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert gpu_use() == {0: GpuUse(370, 1024 * MIB), 2: GpuUse(1000, 0)}
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert gpu_use() == {}


def test_tasks_count_for_a_device_that_they_share_by_their_shares():
    large = order("large", devices={"gpu": [(0, 1000), (1, 600)]})
    small = order("small", devices={"gpu": [(1, 200)]})
    ending = order("ending", devices={"gpu": [(2, 1000)]}, action="stop")
    unknown = order("unknown", devices={"gpu": [(7, 1000)]})
    uses = {0: GpuUse(500, 10 * MIB), 1: GpuUse(800, 8 * MIB), 2: GpuUse(1000, MIB)}
    tasks = [large, small, ending, unknown, order("plain")]
    assert use_of_tasks(tasks, uses) == {
        large.task_id: GpuUse(500 + 600, 16 * MIB),
        small.task_id: GpuUse(200, 2 * MIB),
    }
    assert has_gpus(tasks)
    assert not has_gpus([ending, order("plain")])
