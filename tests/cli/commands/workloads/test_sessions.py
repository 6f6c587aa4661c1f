"""Sessions and their terms as they are typed and shown."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer, task_view

TERMS = (
    "--time", "1-12:00:00", "--signal", "USR1@300", "--after-ok", "prepare", "--after-fail", "check", "--keep-waiting",
    "--singleton", "turn", "--retries", "3", "--retry-on", "1,75", "--start-at", "2026-05-01T12:00:00+02:00",
    "--private", "--project", "vision", "--idle-timeout", "30m",
)  # fmt: skip
SENT = {
    "time": "1-12:00:00",
    "idle_timeout": "30m",
    "signal": "USR1@300",
    "dependencies": [
        {"workload": "prepare", "condition": "after-ok"},
        {"workload": "check", "condition": "after-fail"},
    ],
    "on_dependency_failure": "wait",
    "singleton": "turn",
    "retries": 3,
    "retry_on": [1, 75],
    "private": True,
    "project": "vision",
}


def test_a_session_is_created_as_it_was_typed(server: FakeServer, mooring: Mooring) -> None:
    result = mooring(
        "session", "create", "--name", "train", "--type", "batch", "--size", "4", "--mode", "single-node", "--node",
        "n1", "--only-nodes", "--cpu", "2", *TERMS, "python", "train.py", "--fast",
    )  # fmt: skip
    assert (result.exit_code, result.stdout) == (0, "train\n"), result.stderr
    sent = server.last("POST", "/api/sessions").body
    assert datetime.fromisoformat(sent.pop("starts_at")) == datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert sent == {
        "name": "train",
        "type": "batch",
        "command": ["python", "train.py", "--fast"],
        "cluster_size": 4,
        "mode": "single-node",
        "nodes": ["n1"],
        "nodes_strictly": True,
        "resources": {"cpu": "2"},
        **SENT,
    }
    assert server.last("POST", "/api/sessions").key


def test_a_command_that_is_run_takes_the_same_terms(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("run", "--detach", *TERMS, "true").exit_code == 0
    sent = server.last("POST", "/api/workloads").body
    assert {name: sent[name] for name in SENT} == SENT
    assert mooring("deploy", "web", "--image", "x", "--no-wait", "--after-any", "prepare").exit_code == 0
    assert server.last("POST", "/api/workloads").body["dependencies"] == [
        {"workload": "prepare", "condition": "after-any"}
    ]


def test_an_array_is_left_running(server: FakeServer, mooring: Mooring) -> None:
    result = mooring("run", "--name", "sweep", "--array", "0-9999%50", "true")
    assert (result.exit_code, result.stdout) == (0, "sweep\n")
    assert server.last("POST", "/api/workloads").body["array"] == "0-9999%50"


def test_a_start_is_counted_from_now(server: FakeServer, mooring: Mooring) -> None:
    before = datetime.now(UTC)
    assert mooring("run", "-d", "--start-at", "+2h", "true").exit_code == 0
    sent = datetime.fromisoformat(server.last("POST", "/api/workloads").body["starts_at"])
    assert before + timedelta(hours=2) <= sent <= datetime.now(UTC) + timedelta(hours=2)


@pytest.mark.parametrize(
    ("option", "text", "advice"),
    [
        ("--time", "soon", "write seconds, or 30m"),
        ("--signal", "KILL@5", "signals are HUP"),
        ("--array", "9-0", "the last index"),
        ("--start-at", "tomorrow", "is not a time"),
        ("--retry-on", "one", "write exit codes"),
        ("--singleton", "Not A Name", "singleton"),
    ],
)
def test_invalid_options_are_rejected_before_anything_is_sent(
    server: FakeServer, mooring: Mooring, option: str, text: str, advice: str
) -> None:
    result = mooring("session", "create", option, text, "true")
    assert result.exit_code == 2
    assert advice in result.stderr
    assert not server.requests("POST", "/api/sessions")


def test_sessions_are_listed_shown_and_cancelled(server: FakeServer, mooring: Mooring) -> None:
    server.add("train", type="batch")
    assert "train" in mooring("session", "list", "--type", "batch", "--status", "running").stdout
    query = server.last("GET", "/api/sessions").query
    assert (query["type"], query["status"]) == ("batch", "RUNNING")
    assert "session (batch)" in mooring("session", "show", "train").stdout
    assert mooring("session", "cancel", "train", "nobody").exit_code == 3
    assert server.find("train").view.status == "CANCELLED"


def test_a_gang_restart_uses_one_retry(server: FakeServer, mooring: Mooring) -> None:
    server.add("pair", retries=2, tasks=[task_view(index, failures=1) for index in range(2)])
    assert "retries:   up to 2; 1 used\n" in mooring("session", "show", "pair").stdout


def test_status_shows_time_limits_retries_and_dependencies(server: FakeServer, mooring: Mooring) -> None:
    need = {"id": "00000000-0000-7000-8000-000000000001", "name": "prepare", "condition": "after-ok"}
    starts_at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    server.add(
        "train",
        time_limit_seconds=5400,
        signal="USR1@300",
        deadline_at=datetime.now(UTC) + timedelta(minutes=50, seconds=30),
        retries=3,
        retry_on=[1, 75],
        dependencies=[{**need, "status": "FAILED", "fate": "broken"}],
        on_dependency_failure="wait",
        singleton="turn",
        private=True,
        starts_at=starts_at,
        admission={"failed": [{"by": "concurrency", "code": "session-limit", "message": "3 of 3 sessions run"}]},
    )
    shown = mooring("status", "train").stdout
    assert re.search(r"time: +at most 1h30m; signal USR1@300; ends at .* \(in 50m\)\n", shown)
    assert re.search(r"retries: +up to 3 after exit code 1, 75; 0 used\n", shown)
    assert re.search(r"after: +after-ok prepare \(failed, broken\); stays pending\n", shown)
    assert re.search(r"singleton: +turn\n", shown)
    assert re.search(r"private: +yes\n", shown)
    assert re.search(rf"starts: +{starts_at.astimezone():%Y-%m-%d}", shown)
    assert re.search(r"admission: +concurrency: 3 of 3 sessions run\n", shown)
    server.add("plain")
    assert not re.search(r"(time|retries|after|array|starts):", mooring("status", "plain").stdout)


def test_the_status_shows_how_long_a_session_is_idle_and_when_it_ends(server: FakeServer, mooring: Mooring) -> None:
    since = datetime.now(UTC) - timedelta(minutes=12, seconds=5)
    server.add("notebook", idle_timeout_seconds=1800, idle_since=since, idle_ends_at=since + timedelta(minutes=30))
    shown = mooring("status", "notebook").stdout
    assert re.search(r"idle: +for 12m, ends at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d.* if it stays idle\n", shown)
    server.add("busy", idle_timeout_seconds=1800, idle_since=datetime.now(UTC))
    assert re.search(r"idle: +ends when idle for 30m\n", mooring("status", "busy").stdout)


def test_an_array_is_summed_up_and_listed_on_request(server: FakeServer, mooring: Mooring) -> None:
    counts = {"PENDING": 1440, "RUNNING": 50, "SUCCEEDED": 10}
    sweep = server.add("sweep", array={"first": 1, "step": 2}, parallel=50, counts=counts)
    sweep.view = sweep.view.model_copy(
        update={"replicas": 1500, "running": 50, "tasks": [task_view(index) for index in range(1500)]}
    )
    shown = mooring("status", "sweep").stdout
    assert "1-2999 by 2, at most 50 at a time: 1,440 pending, 50 running, 10 succeeded" in shown
    assert "20 of 1,500 tasks; --tasks lists all" in shown
    assert "50/1500 (10 succeeded)" in mooring("ps").stdout
    whole = mooring("status", "sweep", "--tasks").stdout.splitlines()
    assert whole[-1].split()[:2] == ["1499", "2999"]
    assert len(json.loads(mooring("session", "show", "sweep", "--tasks", "-o", "json").stdout)["tasks"]) == 1500


def test_a_session_is_given_more_time(server: FakeServer, mooring: Mooring) -> None:
    server.add("train", time_limit_seconds=1800)
    assert mooring("extend", "train", "+30m").stdout == "train: at most 1h\n"
    assert server.last("POST", "/api/workloads/train/extend").body == {"by": 1800}
    assert mooring("extend", "train", "--time", "2h").stdout == "train: at most 2h\n"
    for wrong in (("train",), ("train", "+1h", "--time", "2h"), ("train", "+soon")):
        assert mooring("extend", *wrong).exit_code == 2
