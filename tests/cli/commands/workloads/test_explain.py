from __future__ import annotations

import json
from datetime import UTC, datetime

from mooring.cli.rendering.formatting import instant
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer, explanation, removed

WAITS = {"code": "insufficient-resources", "message": "0 of 5,000 nodes: 5,000 lack 2 gpu (best has 1)"}


def test_explain_shows_the_reasons_that_exclude_nodes(server: FakeServer, mooring: Mooring) -> None:
    server.add("web", "PENDING")
    server.explanation = explanation(
        outcome="waiting",
        reason=WAITS,
        nodes=5000,
        candidates=0,
        removed=[
            removed("resources", "3,100 lack 2 gpu (best has 1)") | {"nodes": 3100},
            removed("taints", "1,900 with untolerated taint a:NoSchedule") | {"nodes": 1900, "cure": "change"},
        ],
        winner=None,
        tasks=[{"index": 0, "node": None, "status": "PENDING", "score": None}],
    )
    lines = mooring("explain", "web").stdout.splitlines()
    assert "status:     pending" in lines
    assert "candidates: 0 of 5,000 nodes could run one of its tasks" in lines
    assert f"reason:     insufficient-resources: {WAITS['message']}" in lines
    assert "3,100  resources  3,100 lack 2 gpu (best has 1)              freed capacity" in lines
    assert "1,900  taints     1,900 with untolerated taint a:NoSchedule  a change" in lines
    assert "node-2  lacks 2 cpu (best has 1)" in lines
    assert not any("Scores" in line for line in lines)


def test_explain_compares_the_own_node_with_the_runner_up(server: FakeServer, mooring: Mooring) -> None:
    server.add("web")
    own = {"node": "node-1", "score": 0.875, "scores": {"resources": 0.75, "load": 1.0}}
    other = {"node": "node-9", "score": 0.5, "scores": {"resources": 0.5, "load": 0.5}}
    also = {"node": "node-2", "score": 0.6, "scores": {"resources": 0.6, "load": 0.6}}
    server.explanation = explanation(winner=own, placed_on=[own, also], runner_up=other)
    lines = mooring("explain", "web").stdout.splitlines()
    assert "node-1  its own     87.5           75.0     100.0" in lines
    assert "node-9  runner-up   50.0           50.0      50.0" in lines
    assert not any(line.startswith("node-2") for line in lines)
    assert "\nnode-2  its own " in mooring("explain", "web", "-o", "wide").stdout


def test_explain_reports_capacity_that_is_free_by_now(server: FakeServer, mooring: Mooring) -> None:
    server.add("web", "PENDING")
    lines = mooring("explain", "web").stdout.splitlines()
    assert (
        "candidates: 1 of 3 nodes could run one of its tasks; there is capacity, so it is placed in the next pass"
        in lines
    )


def test_explain_shows_the_basis_of_an_estimate(server: FakeServer, mooring: Mooring) -> None:
    server.add("web", "PENDING")
    at = datetime(2027, 1, 2, 3, tzinfo=UTC)
    server.explanation = explanation(outcome="waiting", reason=WAITS, candidates=0, winner=None, estimated_start=at)
    assert f"about {instant(at)}, if all work runs to its time limit" in mooring("explain", "web").stdout
    server.explanation = server.explanation.model_copy(update={"estimate_is_stored": True})
    assert f"about {instant(at)}, an earlier estimate: too many workloads are ahead" in mooring("explain", "web").stdout


def test_explain_as_json_is_the_answer_of_the_api(server: FakeServer, mooring: Mooring) -> None:
    workload = server.add("web", "PENDING")
    shown = json.loads(mooring("explain", "web", "-o", "json").stdout)
    assert shown == server.explanation.model_dump(mode="json") | {
        "id": str(workload.view.id),
        "name": "web",
        "status": "PENDING",
    }
    missing = mooring("explain", "nothing")
    assert missing.exit_code == 3
    assert missing.stderr.startswith("error: not-found")


def test_a_dry_run_of_a_deployment_submits_nothing(server: FakeServer, mooring: Mooring) -> None:
    result = mooring("deploy", "web", "--image", "nginx", "--cpu", "2", "--replicas", "3", "--dry-run")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "status:     would be placed (dry run)" in lines
    assert "Tasks would go to" in lines
    assert "   0  placed  node-1   87.5  2000" in lines
    assert server.workloads == {}
    sent = server.last("POST", "/api/workloads/dry-run").body
    assert (sent["name"], sent["replicas"], sent["kind"]) == ("web", 3, "deployment")
    shown = json.loads(mooring("deploy", "web", "--image", "nginx", "--dry-run", "-o", "json").stdout)
    assert (shown["id"], shown["name"]) == (None, "web")


def test_a_dry_run_of_a_command_submits_nothing(server: FakeServer, mooring: Mooring) -> None:
    server.explanation = explanation(outcome="waiting", reason=WAITS, candidates=0, winner=None)
    result = mooring("run", "--dry-run", "--cpu", "2", "--", "sleep", "5")
    assert result.exit_code == 2, "a dry run that would wait"
    assert "status:     would be pending (dry run)" in result.stdout.splitlines()
    assert server.workloads == {}
    assert server.last("POST", "/api/workloads/dry-run").body["containers"][0]["command"] == ["sleep", "5"]


def test_a_long_list_of_tasks_is_cut_short(server: FakeServer, mooring: Mooring) -> None:
    tasks = [{"index": index, "node": "node-1", "status": "PLACED", "score": 0.5} for index in range(25)]
    server.explanation = explanation(tasks=tasks)
    text = mooring("deploy", "web", "--image", "nginx", "--dry-run").stdout
    assert "and 5 more tasks (-o wide shows all)" in text
    assert "more tasks" not in mooring("deploy", "web", "--image", "nginx", "--dry-run", "-o", "wide").stdout
