"""Task templates survive the round trip through a JSON column, which omits unset fields of containers."""

import json

import pytest

from mooring.model.workloads.containers import (
    Container,
    Mount,
    Probe,
    Pull,
    Restart,
    TaskTemplate,
    Volume,
    VolumeKind,
)
from mooring.store.workloads import templates

FULL = Container(
    name="web",
    image="nginx:1",
    command=("nginx", "-g"),
    environment={"A": "b"},
    working_folder="/srv",
    slots={"cpu": 500},
    limits={"cpu": 1000},
    sidecar=True,
    pull=Pull.ALWAYS,
    ports=(80, 443),
    mounts=(Mount("data", "/data", read_only=True), Mount("tmp", "/tmp")),
    secrets={"key": "api-key"},
    readiness=Probe(path="/", port=80),
    liveness=Probe(command=("true",), failures=1),
    user="1000:1000",
    read_only=True,
    capabilities=("CHOWN",),
    privileged=True,
    shared_memory=1 << 30,
    terminal=True,
)


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(TaskTemplate((Container(command=("true",)),)), id="little"),
        pytest.param(
            TaskTemplate(
                (FULL,),
                restart=Restart.ALWAYS,
                max_restarts=1,
                stop_grace_seconds=0,
                architecture="aarch64",
                init_containers=(FULL, Container("second", image="busybox")),
                overhead={"memory": 1},
                requests={"cpu": 2},
                limits={"cpu": 3},
                volumes=(Volume("data", VolumeKind.HOST, "/srv/data"), Volume("tmp")),
            ),
            id="everything",
        ),
    ],
)
def test_an_encoded_template_is_read_back(template: TaskTemplate):
    assert templates.decode(json.loads(json.dumps(templates.encode(template)))) == template


def test_only_what_was_said_is_written():
    assert templates.encode(TaskTemplate((Container(image="nginx", ports=(80,)),))) == {
        "containers": [{"name": "main", "image": "nginx", "ports": [80]}],
        "restart": "never",
        "max_restarts": 5,
        "stop_grace_seconds": 10,
    }


def test_templates_stored_before_containers_had_more_fields_can_be_read():
    stored = {
        "containers": [
            {
                "name": "main",
                "image": None,
                "command": ["true"],
                "environment": {"A": "b"},
                "working_folder": None,
                "slots": {"cpu": 1000},
            }
        ],
        "restart": "on-failure",
        "max_restarts": 3,
        "stop_grace_seconds": 20,
    }
    assert templates.decode(stored) == TaskTemplate(
        (Container(command=("true",), environment={"A": "b"}, slots={"cpu": 1000}),),
        restart=Restart.ON_FAILURE,
        max_restarts=3,
        stop_grace_seconds=20,
    )
