"""Desired tasks in the agent protocol: their contents, and their position in their workload."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from mooring.api.agents.orders import desired_task, variables_of
from mooring.model.workloads.containers import (
    Container,
    Mount,
    Probe,
    TaskTemplate,
    Volume,
    VolumeKind,
)
from mooring.model.workloads.workload import Kind
from mooring.store.workloads import templates
from mooring.store.workloads.mounts import Mounted
from mooring.wire.agents.desired_tasks import ContainerSpec, DesiredTask, MountSpec, Peer, ProbeSpec, VolumeSpec


@pytest.mark.parametrize(
    ("kind", "array", "tasks", "index", "received"),
    [
        (Kind.SESSION, None, 1, 0, {"MOORING_TASK_ROLE": "main", "MOORING_CLUSTER_SIZE": "1"}),
        (Kind.SESSION, None, 3, 2, {"MOORING_TASK_ROLE": "sub", "MOORING_CLUSTER_SIZE": "3"}),
        (
            Kind.SESSION,
            {"first": 1, "step": 2},
            50,
            49,
            {"MOORING_ARRAY_INDEX": "99", "MOORING_ARRAY_COUNT": "50"},
        ),
        (Kind.DEPLOYMENT, None, 3, 1, {}),
    ],
)
def test_a_task_gets_its_index_or_its_role(
    kind: Kind, array: dict[str, int] | None, tasks: int, index: int, received: dict[str, str]
):
    assert variables_of(kind, array, tasks, index) == received


def ordered(
    template: TaskTemplate, gang: Sequence[Any] = (), mounted: Sequence[Mounted] = (), **changes: Any
) -> DesiredTask:
    row: dict[str, Any] = {
        "id": UUID(int=1),
        "workload_id": UUID(int=2),
        "name": "web",
        "task_index": 0,
        "attempt": 1,
        "status": "SCHEDULED",
        "user_id": UUID(int=3),
        "project_id": UUID(int=4),
        "project_number": 1,
        "project": "vision",
        "node": "n1",
        "os_user": None,
        "ports": None,
        "devices": None,
        "kind": Kind.DEPLOYMENT,
        "array": None,
        "replicas": 1,
        "deadline_at": None,
        "warning_signal": None,
        "template": templates.encode(template),
        "node_id": UUID(int=5),
    }
    return desired_task(SimpleNamespace(**row | changes), gang, mounted)


def test_every_task_gets_the_names_of_its_node_and_project():
    template = TaskTemplate((Container(command=("true",)),))
    for kind in (Kind.DEPLOYMENT, Kind.SESSION):
        variables = ordered(template, kind=kind).variables
        assert (variables["MOORING_NODE"], variables["MOORING_PROJECT"]) == ("n1", "vision")


def other(index: int, status: str = "SCHEDULED", **changes: Any) -> Any:
    """A task of a session of several, on a node of its own."""
    row = {"task_index": index, "status": status, "node_id": UUID(int=index), "address": None, "ports": None}
    return SimpleNamespace(**{**row, "node_address": f"10.0.0.{index}", **changes})


@pytest.mark.parametrize(
    ("others", "action"),
    [
        pytest.param(["SCHEDULED", "RUNNING"], "prepare", id="one has only its node"),
        pytest.param(["PREPARING", "RUNNING"], "prepare", id="one is made ready"),
        pytest.param(["RUNNING", "RUNNING"], "run", id="they run"),
        pytest.param(["SUCCEEDED", "RUNNING"], "run", id="one has run already"),
        pytest.param(["PENDING", "RUNNING"], "run", id="one waits for room"),
    ],
)
def test_main_starts_when_the_others_on_nodes_run(others: list[str], action: str):
    template = TaskTemplate((Container(command=("true",)),))
    gang = [other(0), *(other(index, status) for index, status in enumerate(others, start=1))]
    assert ordered(template, gang).action == action
    assert ordered(template, gang, task_index=1).action == "run"
    assert ordered(template, gang, status="TERMINATING").action == "stop"


def test_a_task_gets_its_peers_until_it_has_started():
    template = TaskTemplate((Container(image="nginx", ports=(80,)),))
    ports = [["tcp", 30001], ["tcp", 30002]]
    gang = [
        other(0, ports=ports),
        other(1, "RUNNING", address="10.88.0.4", ports=ports),
        other(2, "RUNNING", address="10.88.0.5", ports=ports, node_id=UUID(int=5)),
        other(3, "PENDING", node_id=None, node_address=None),
    ]
    assert ordered(template, gang).peers == [
        Peer(index=0, name="main", address="10.0.0.0", ports=[30001, 30002]),
        Peer(index=1, name="sub1", address="10.0.0.1", ports=[30001, 30002]),
        # On the same node it is reached in the network that they share, on the port that it listens on.
        Peer(index=2, name="sub2", address="10.88.0.5", ports=[80, 30002]),
        Peer(index=3, name="sub3"),
    ]
    assert ordered(template, gang, status="RUNNING").peers == []


@pytest.mark.parametrize("loopback", ["127.0.0.1", "::1", "localhost"])
def test_a_container_does_not_get_the_loopback_address_of_a_node(loopback: str):
    gang = [other(0, node_address=loopback), other(1, "RUNNING", node_address=loopback, ports=[["tcp", 30001]])]
    contained, process = Container(image="nginx"), Container(command=("work",))
    assert [peer.address for peer in ordered(TaskTemplate((contained,)), gang).peers] == [None, None]
    assert [peer.address for peer in ordered(TaskTemplate((process,)), gang).peers] == [loopback, loopback]


def test_an_agent_gets_every_field_of_the_containers():
    fetch = Container("fetch", image="busybox", mounts=(Mount("data", "/data"),))
    log = Container("log", image="log", sidecar=True)
    main = Container(
        image="nginx", ports=(80,), mounts=(Mount("data", "/www", read_only=True),), readiness=Probe(port=80)
    )
    order = ordered(TaskTemplate((main,), init_containers=(fetch, log), volumes=(Volume("data"),)))
    assert order.init_containers == [
        ContainerSpec(name="fetch", image="busybox", mounts=[MountSpec(volume="data", path="/data")]),
        ContainerSpec(name="log", image="log", sidecar=True),
    ]
    assert order.containers == [
        ContainerSpec(
            name="main",
            image="nginx",
            ports=[80],
            mounts=[MountSpec(volume="data", path="/www", read_only=True)],
            readiness=ProbeSpec(port=80),
        )
    ]
    assert order.volumes == [VolumeSpec(name="data")]


@pytest.mark.parametrize(
    ("slots", "limits", "quality"),
    [
        ({}, {}, "BestEffort"),
        ({"cpu": 1000}, {}, "Burstable"),
        ({"cpu": 1000, "memory": 1 << 30}, {}, "Guaranteed"),
        ({"cpu": 1000, "memory": 1 << 30}, {"cpu": 2000}, "Burstable"),
    ],
)
def test_a_task_limited_to_its_request_has_the_guaranteed_quality(
    slots: dict[str, int], limits: dict[str, int], quality: str
):
    assert ordered(TaskTemplate((Container(image="nginx", slots=slots, limits=limits),))).quality == quality


def test_project_volumes_are_sent_with_their_ids():
    asked = (
        Volume("data", VolumeKind.NAMED),
        Volume("pictures", VolumeKind.NAMED),
        Volume("disk", VolumeKind.HOST, "/data"),
        Volume("tmp"),
    )
    here, everywhere = UUID(int=8), UUID(int=9)
    received = ordered(
        TaskTemplate((Container(image="busybox"),), volumes=asked),
        mounted=[
            Mounted(here, "data", 1, False, UUID(int=7), "n1"),
            Mounted(everywhere, "pictures", 1, True, None, None, "/mnt/shared"),
        ],
    ).volumes
    assert received == [
        VolumeSpec(name="data", kind="named", volume_id=here),
        VolumeSpec(name="pictures", kind="shared", volume_id=everywhere, path="/mnt/shared"),
        VolumeSpec(name="disk", kind="host", path="/data"),
        VolumeSpec(name="tmp"),
    ]
