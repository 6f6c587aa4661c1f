"""The example package is installed as a user would, and used by name through the registry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "mooring-example-plugins"

PROGRAM = """
from mooring import Node, Registry, Scheduler, Workload, amounts, new_tasks
from mooring.scheduling.compiled.engine import CompiledEngine

registry = Registry()
registry.discover()

def node(name, cpu, memory, **labels):
    told = {f"example.com/{key.replace('_', '-')}": value for key, value in labels.items()}
    return Node(name=name, labels=told, allocatable=amounts(cpu=cpu, memory=memory))

NODES = [
    node("a", 8, "64Gi", approved="yes", renewable_percent="20"),
    node("b", 8, "8Gi", approved="yes", renewable_percent="90"),
    node("c", 8, "32Gi", approved="yes", renewable_percent="plenty"),
    node("d", 64, "512Gi", renewable_percent="100"),
]

def placed(compiled, *, replicas, **composed):
    profile = registry.profile(**composed)
    scheduler = Scheduler(NODES, profile=profile, compiled=compiled)
    work = Workload(name="w", request=amounts(cpu=1, memory="1Gi"), tasks=new_tasks("w", replicas))
    decision = scheduler.decide(work)
    return " ".join(placement.node_name for placement in decision.placements), decision.reason

print("green", placed(False, replicas=1, weights={"green_power": 1})[0])
names, reason = placed(False, replicas=50, extra_filters=["approved"], weights={"green_power": 1})
print("approved", len(names.split()), "d" in names, reason.message)
print("alone", placed(False, replicas=4, extra_filters=["approved"], weights={"few_neighbours": 1})[0])
print("memory", placed(False, replicas=3, extra_filters=["approved"], weights={"memory_per_core": 1})[0])
both = {"extra_filters": ["approved"], "weights": {"memory_per_core": 3, "green_power": 1}}
print("same", placed(True, replicas=20, **both) == placed(False, replicas=20, **both))
scheduler = Scheduler(NODES, profile=registry.profile(**both))
print("compiled", CompiledEngine(scheduler.cluster, scheduler.profile).sync())
neighbours = registry.profile(weights={"few_neighbours": 1})
print("numpy", not CompiledEngine(scheduler.cluster, neighbours).sync())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", str(target), str(EXAMPLE)], check=True)
    return target


@pytest.mark.slow
def test_installed_example_plugins_are_found_and_decide(installed: Path):
    folders = [str(installed), *(folder for folder in sys.path if folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    answers = dict(line.split(" ", 1) for line in ended.stdout.splitlines())
    # Without the filter the greenest node wins; with it that node takes nothing, however much is left to place.
    assert answers["green"] == "d"
    assert answers["approved"].startswith("24 False ")
    assert "1 not approved (example.com/approved is not 'yes')" in answers["approved"]
    # Each task makes its node less attractive: every node in turn.
    assert answers["alone"] == "a b c a"
    # 63 GiB for 7 cores are enough, 62 for 6 still, and more per core from then on.
    assert answers["memory"] == "a a a"
    # A formula for the kernels decides as its NumPy twin does, in the kernels; NumPy alone keeps to its own face.
    assert answers["same"] == answers["compiled"] == answers["numpy"] == "True"


def test_the_example_plugins_are_absent_before_installation():
    from mooring.scheduling import Registry

    registry = Registry()
    registry.discover()
    with pytest.raises(Exception, match="there is no filter 'approved'; known are architecture"):
        registry.profile(extra_filters=["approved"])
