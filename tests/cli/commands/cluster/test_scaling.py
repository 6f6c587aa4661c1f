"""Pools that grow and shrink, at the command line."""

from __future__ import annotations

import json
from uuid import uuid4

from mooring.wire.cluster.scaling import (
    AdviceView,
    ScaleRequestView,
    ScalingView,
    UnmetView,
)
from tests.cli.conftest import Mooring
from tests.client.fake_server import NOW, FakeServer


def test_templates_are_set_listed_and_removed(server: FakeServer, mooring: Mooring) -> None:
    made = mooring(
        "pool", "template", "set", "default", "large", "--cpu", "16", "--memory", "64Gi", "--gpu", "2", "--device",
        "gpu=2:A100:80Gi", "--cost", "7", "--boot", "10m", "--least", "1", "--most", "3", "--region", "eu-west",
        "--label", "disk=ssd", "--taint", "spot", "--licence", "enterprise", "--machine-image", "cml",
        "--machine-image-version", "2.7", "--runtime", "process", "--arch", "aarch64", "--max-tasks", "9",
    )  # fmt: skip
    assert made.stdout == "default/large: set\n", made.stderr
    assert server.last("PUT", "/api/pools/default/templates/large").body == {
        "resources": {"cpu": "16", "memory": "64Gi", "gpu": "2"},
        "devices": {"gpu": [{"count": 2, "model": "A100", "memory": "80Gi"}]},
        "cost": 7,
        "boot_seconds": 600,
        "least": 1,
        "most": 3,
        "region": "eu-west",
        "labels": {"disk": "ssd"},
        "taints": [{"key": "spot", "value": ""}],
        "licence": "enterprise",
        "machine_image": "cml",
        "machine_image_version": "2.7",
        "runtimes": ["process"],
        "architecture": "aarch64",
        "max_tasks": 9,
    }
    [_, line] = mooring("pool", "template", "list", "default").stdout.splitlines()
    assert line.split()[0] == "large"
    assert "16 cpu, 64Gi memory, 2 gpu" in line
    assert "cml 2.7" in line
    assert json.loads(mooring("pool", "template", "list", "default", "-o", "json").stdout)["templates"][0]["cost"] == 7
    assert mooring("pool", "template", "remove", "default", "large").stdout == "default/large: removed\n"
    assert mooring("pool", "template", "remove", "default", "large").exit_code == 3
    wrong = mooring("pool", "template", "set", "default", "t", "--cpu", "1", "--memory", "1Gi", "--device", "gpu=many")
    assert (wrong.exit_code, "SLOT=COUNT" in wrong.stderr) == (2, True)


def test_scaling_shows_requested_nodes_unmet_work_and_removable_nodes(server: FakeServer, mooring: Mooring) -> None:
    request = ScaleRequestView(
        id=uuid4(), pool="default", template="large", status="REFUSED", nodes=3, joined=1, workloads=[uuid4()],
        attempts=2, error="the resource controller answered 409: out of stock", created_at=NOW, expires_at=NOW,
    )  # fmt: skip
    unmet = UnmetView(
        pool="default", workload_id=uuid4(), workload="train", code="no-template", message="no node template fits"
    )
    advice = AdviceView(pool="default", node="n1", step="drain", since=NOW)
    server.scaling = ScalingView(requests=[request], unmet=[unmet], advice=[advice])
    shown = mooring("scaling", "--pool", "default").stdout
    assert server.last("GET", "/api/scaling").query == {"pool": "default", "limit": "20"}
    for words in ("large", "refused", "1/3", "out of stock", "train", "no node template fits", "n1", "drain"):
        assert words in shown
    assert json.loads(mooring("scaling", "-o", "json").stdout)["requests"][0]["nodes"] == 3


def test_work_asks_for_machines_and_for_nodes(server: FakeServer, mooring: Mooring) -> None:
    options = ["--licence", "personal", "--machine-image", "cml:>=2.6,<3", "--on-insufficient", "scale_up"]
    assert mooring("run", "-d", *options, "true").exit_code == 0
    assert mooring("deploy", "web", "--no-wait", "--image", "nginx", *options).exit_code == 0
    asked = [seen.body for seen in server.seen if (seen.method, seen.path) == ("POST", "/api/workloads")]
    assert [body["on_insufficient"] for body in asked] == ["scale_up", "scale_up"]
    for place in (body["placement"] for body in asked):
        assert place["licence"] == "personal"
        assert place["machine_image"] == {"name": "cml", "version": ">=2.6,<3"}
