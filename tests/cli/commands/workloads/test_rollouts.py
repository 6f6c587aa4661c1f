"""Deployments from one revision to the next, at the command line."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Mooring
from tests.client.fake_rollouts import rollout_view, rolls
from tests.client.fake_server import NOW, FakeServer, FakeWorkload, workload_view


@pytest.fixture
def web(server: FakeServer) -> FakeWorkload:
    view = workload_view("web", kind="deployment", replicas=3, rollout=rollout_view())
    workload = server.workloads[view.id] = FakeWorkload(view)
    workload.become("RUNNING")
    return workload


def step(**fields: object) -> Callable[[FakeWorkload], None]:
    return lambda workload: rolls(workload, **fields)


def test_an_update_sends_only_changes(server: FakeServer, mooring: Mooring, web: FakeWorkload) -> None:
    result = mooring(
        "update", "web", "--image", "nginx:2", "-e", "A=1", "--unset", "B", "--cpu", "2", "--replicas", "4", "--surge",
        "25%", "--unavailable", "1", "--drain", "9", "--deadline", "5m", "--steady", "10s",
        "--container", "main", "--cause", "a fix", "--", "serve", "now",
    )  # fmt: skip
    assert result.stdout == "web: running, 3 of 3 running, revision 2 rolling: 0 updated, 3 outdated\n", result.stderr
    assert server.last("POST", "/api/deployments/web/update").body == {
        "image": "nginx:2",
        "command": ["serve", "now"],
        "environment": {"A": "1", "B": None},
        "resources": {"cpu": "2"},
        "replicas": 4,
        "rollout": {
            "surge": "25%",
            "unavailable": "1",
            "steady_seconds": 10,
            "drain_seconds": 9,
            "deadline_seconds": 300,
        },
        "container": "main",
        "cause": "a fix",
    }
    assert mooring("update", "web").exit_code == 2
    assert mooring("update", "web", "--surge", "many").exit_code == 2


def test_a_waiting_client_sees_progress_and_the_end(server: FakeServer, mooring: Mooring, web: FakeWorkload) -> None:
    web.steps = [step(updated=1, outdated=2), step(updated=3, outdated=0, phase="done")]
    result = mooring("update", "web", "--image", "nginx:2", "--wait")
    assert result.exit_code == 0
    assert "revision 2 rolling: 1 updated, 2 outdated" in result.stderr
    assert result.stdout == "web: running, 3 of 3 running\n"


def test_a_rollout_that_stalls_is_a_failure_that_says_how_to_go_back(mooring: Mooring, web: FakeWorkload) -> None:
    web.steps = [step(phase="stalled", reason="nothing got better; `mooring rollout undo web` goes back")]
    result = mooring("update", "web", "--image", "nginx:2", "--wait")
    assert result.exit_code == 1
    assert "rollout-stalled" in result.stderr
    assert "mooring rollout undo web" in result.stderr
    shown = mooring("rollout", "status", "web").stdout
    assert "stalled" in shown
    assert "mooring rollout undo web" in shown


def test_it_is_paused_resumed_and_taken_back(server: FakeServer, mooring: Mooring, web: FakeWorkload) -> None:
    mooring("update", "web", "--image", "nginx:2")
    assert "paused" in mooring("rollout", "pause", "web").stdout
    assert "rolling" in mooring("rollout", "resume", "web").stdout
    assert mooring("rollout", "undo", "web", "--to", "1").exit_code == 0
    assert server.last("POST", "/api/deployments/web/rollback").body == {"revision": 1}
    assert json.loads(mooring("rollout", "status", "web", "-o", "json").stdout)["rollout"]["revision"] == 3
    late = mooring("rollout", "status", "web", "--wait", "--timeout", "0.1")
    assert (late.exit_code, "rolling" in late.stderr) == (124, True)


def test_revisions_and_endpoints_are_listed(mooring: Mooring, web: FakeWorkload) -> None:
    _, first, second = mooring("rollout", "revisions", "web").stdout.splitlines()
    assert first.split()[0] == "1"
    assert second.split()[:3] == ["2*", "image", "nginx:2"]
    [_, line] = mooring("endpoints", "web").stdout.splitlines()
    assert line.split() == ["4", "node-1", "10.0.0.2", "30001", "2"]
    assert json.loads(mooring("endpoints", "web", "-o", "json").stdout)["cursor"] == "0-7"


def test_extra_replicas_are_counted_separately(mooring: Mooring, web: FakeWorkload) -> None:
    web.view = web.view.model_copy(update={"running": 4, "ready": 4})
    assert " 3/3+1 " in mooring("ps").stdout
    assert "3 of 3 running and 1 extra, 4 ready\n" in mooring("status", "web").stdout


def test_tasks_that_are_not_ready_are_counted_separately(
    server: FakeServer, mooring: Mooring, web: FakeWorkload
) -> None:
    web.view = web.view.model_copy(update={"ready": 1})
    assert "3/3, 1 ready" in mooring("ps").stdout
    first, second, third = web.view.tasks
    replaced = {"retires_at": NOW, "current": False}
    web.view.tasks[:] = [first.model_copy(update={"ready": False}), second.model_copy(update=replaced), third]
    third.revision = 2
    shown = mooring("status", "web").stdout
    assert "3 of 3 running, 1 ready" in shown
    assert "running, not ready  " in shown
    assert "running, retires  " in shown
    assert "REVISION" in shown


def test_only_deployments_are_rolled_out(server: FakeServer, mooring: Mooring) -> None:
    view = workload_view("job")
    server.workloads[view.id] = FakeWorkload(view)
    result = mooring("rollout", "status", "job")
    assert (result.exit_code, "not a deployment" in result.stderr) == (2, True)
