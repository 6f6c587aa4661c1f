"""The engine's specification of containers, derived from the order."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mooring.agent.options import Options
from mooring.agent.runtimes.container.engine import addresses
from mooring.agent.runtimes.container.specification import (
    EngineCapabilities,
    PreparedResources,
    check,
    configuration,
    enforces,
)
from mooring.model.errors import InvalidInput
from mooring.wire.agents.desired_tasks import DesiredTask, MountSpec, Peer, VolumeSpec
from tests.agent.runtimes.container.conftest import container, order

GIB = 1024**3


def received(task: DesiredTask, capabilities: EngineCapabilities | None = None, **place: Any) -> dict[str, Any]:
    """The body of `create` for the task's first container."""
    where = PreparedResources(node_id=uuid4(), memory_bytes=16 * GIB, image="sha256:1", **place)
    options = Options(max_processes=100, log_bytes=1000, log_files=2)
    return configuration(task, task.containers[0], "main", where, capabilities or EngineCapabilities(), options)


def test_limits_are_those_that_were_asked_for_and_swap_is_none():
    asked = container(slots={"cpu": 1500, "memory": GIB}, limits={"memory": 2 * GIB}, shared_memory=64)
    host = received(order(containers=[asked]))["HostConfig"]
    assert (host["NanoCpus"], host["CpuShares"]) == (1_500_000_000, 1536)
    assert (host["Memory"], host["MemorySwap"]) == (2 * GIB, 2 * GIB)
    assert (host["PidsLimit"], host["ShmSize"]) == (100, 64)


def test_limits_that_the_engine_cannot_enforce_are_left_out():
    asked = container(slots={"cpu": 1500, "memory": GIB, "storage": GIB})
    without = EngineCapabilities(cpu=False, memory=False, pids=False)
    host = received(order(containers=[asked]), without)["HostConfig"]
    assert not {"NanoCpus", "Memory", "MemorySwap", "PidsLimit", "StorageOpt"} & host.keys()
    assert enforces(without) == {"cpu": "none", "memory": "none", "pids": "none", "storage": "none"}
    with_quota = received(order(containers=[asked]), EngineCapabilities(storage=True))["HostConfig"]
    assert with_quota["StorageOpt"] == {"size": str(GIB)}


def test_no_rights_but_those_that_were_asked_for():
    host = received(order(containers=[container(capabilities=["NET_BIND_SERVICE"], read_only=True)]))["HostConfig"]
    assert (host["CapDrop"], host["CapAdd"]) == (["ALL"], ["NET_BIND_SERVICE"])
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert (host["Privileged"], host["ReadonlyRootfs"], host["IpcMode"]) == (False, True, "private")
    assert host["NetworkMode"] == "none"
    assert host["RestartPolicy"] == {"Name": "no"}
    assert not {"PidMode", "UTSMode", "UsernsMode"} & host.keys()


def test_graphics_processors_are_handed_over_by_index_where_the_engine_can():
    task = order(devices={"gpu": [(1, 1000), (3, 1000)]})
    assert "DeviceRequests" not in received(task)["HostConfig"]
    assert "CUDA_VISIBLE_DEVICES=1,3" in received(task)["Env"]
    requests = received(task, EngineCapabilities(devices="request"))["HostConfig"]["DeviceRequests"]
    assert requests == [{"Driver": "nvidia", "DeviceIDs": ["1", "3"], "Capabilities": [["gpu"]]}]
    requests = received(task, EngineCapabilities(devices="cdi"))["HostConfig"]["DeviceRequests"]
    assert requests == [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1", "nvidia.com/gpu=3"]}]
    assert enforces(EngineCapabilities(devices="cdi"))["gpu"] == "device"


def test_a_container_sees_its_own_graphics_processors_and_no_others():
    task = order(devices={"gpu": [(1, 1000), (3, 1000)]})
    # Inside, those that were handed over are the first and the second.
    requested = received(task, EngineCapabilities(devices="request"))["Env"]
    assert {"CUDA_VISIBLE_DEVICES=0,1", "NVIDIA_VISIBLE_DEVICES=1,3"} <= set(requested)
    assert {"CUDA_VISIBLE_DEVICES=0,1", "NVIDIA_VISIBLE_DEVICES=void"} <= set(
        received(task, EngineCapabilities(devices="cdi"))["Env"]
    )
    # Many images ask for all of the machine's, and an engine may be set to give them.
    greedy = order(containers=[container(environment={"NVIDIA_VISIBLE_DEVICES": "all"})])
    for devices in ("request", "cdi", None):
        env = received(greedy, EngineCapabilities(devices=devices))["Env"]
        assert {"CUDA_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES=void"} <= set(env)


def test_ports_of_the_node_lead_to_those_of_the_containers_in_order():
    task = order(containers=[container(ports=[80]), container(name="more", ports=[9000])], ports=[31000, 31001, 31002])
    config = received(task, network="mooring-net")
    assert config["HostConfig"]["PortBindings"] == {
        "80/tcp": [{"HostPort": "31000"}],
        "9000/tcp": [{"HostPort": "31001"}],
        "31002/tcp": [{"HostPort": "31002"}],
    }
    assert "PortBindings" not in received(task)["HostConfig"]
    assert "PortBindings" not in received(task, network="container:1")["HostConfig"]


def test_a_task_that_works_with_others_is_found_by_its_name_in_the_network_that_they_share():
    peers = [Peer(index=0, name="main"), Peer(index=1, name="sub1", address="10.88.0.4")]
    config = received(order(peers=peers), network="mooring-net")
    assert config["NetworkingConfig"] == {"EndpointsConfig": {"mooring-net": {"Aliases": ["main"]}}}
    assert config["HostConfig"]["ExtraHosts"] == ["sub1:10.88.0.4"]
    for elsewhere in ("none", "container:1"):
        assert "NetworkingConfig" not in received(order(peers=peers), network=elsewhere)
    assert "NetworkingConfig" not in received(order(), network="mooring-net")


def test_volumes_and_secrets_are_mounted_from_where_the_node_has_them():
    mounts = [MountSpec(volume="data", path="/data", read_only=True)]
    config = received(order(containers=[container(mounts=mounts)]), folders={"data": Path("/v")}, secrets=Path("/s"))
    assert config["HostConfig"]["Mounts"] == [
        {"Type": "bind", "Source": "/v", "Target": "/data", "ReadOnly": True},
        {"Type": "bind", "Source": "/s", "Target": "/run/secrets", "ReadOnly": True},
    ]


def test_output_is_bounded_by_the_engine():
    assert received(order())["HostConfig"]["LogConfig"]["Config"] == {"max-size": "1000", "max-file": "2"}
    assert received(order(), EngineCapabilities(kind="podman"))["HostConfig"]["LogConfig"]["Config"] == {
        "max-size": "2000"
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": {"A=B": "c"}},
        {"environment": {"": "c"}},
        {"mounts": [MountSpec(volume="data", path="/data,source=/etc")]},
        {"mounts": [MountSpec(volume="data", path="/data:/etc")]},
        {"mounts": [MountSpec(volume="data", path="/data/../etc")]},
        {"mounts": [MountSpec(volume="data", path="data")]},
        {"mounts": [MountSpec(volume="data", path="/")]},
        {"mounts": [MountSpec(volume="other", path="/data")]},
        {"secrets": {"../../etc/shadow": "token"}},
        {"secrets": {"..": "token"}},
        {"capabilities": ["SYS_ADMIN"]},
        {"image": None},
    ],
)
def test_values_with_another_meaning_to_the_engine_are_refused(changes: dict[str, Any]):
    with pytest.raises(InvalidInput):
        check(order(containers=[container("true", **changes)], volumes=[VolumeSpec(name="data")]))


def test_an_engine_is_looked_for_where_the_operator_says(tmp_path: Path):
    assert addresses("unix:///x.sock", {"DOCKER_HOST": "tcp://other:2375"}) == ["unix:///x.sock"]
    assert addresses(None, {"DOCKER_HOST": "tcp://other:2375"}) == ["tcp://other:2375"]
    assert addresses("none", {"DOCKER_HOST": "tcp://other:2375"}) == []
    (tmp_path / "docker.sock").touch()
    assert f"unix://{tmp_path}/docker.sock" not in addresses(None, {"XDG_RUNTIME_DIR": str(tmp_path)})
