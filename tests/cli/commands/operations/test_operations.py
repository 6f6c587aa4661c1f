from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from mooring.wire.cluster.operations import LoopView, StartErrors
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer, server_view


def loop_view(name: str, *, next_in: float, error: str | None = None) -> LoopView:
    at = datetime.now(UTC)
    return LoopView(
        name=name,
        server="first",
        term=4,
        last_run_at=at - timedelta(minutes=10, seconds=30),
        duration_seconds=0.0123,
        outcome="failed" if error else "ok",
        error=error,
        next_run_at=at + timedelta(seconds=next_in),
        runs=9,
        failures=2 if error else 0,
        found_by_timer=1,
    )


def test_the_leader_is_shown_with_its_standbys(server: FakeServer, mooring: Mooring) -> None:
    server.servers += [server_view("second", "standby"), server_view("web", "api")]
    lines = dict(line.split(":", 1) for line in mooring("leader").stdout.splitlines())
    assert (lines["leader"].strip(), lines["term"].strip()) == ("first", "4")
    assert (lines["chosen by"].strip(), lines["standbys"].strip()) == ("database", "second")
    assert json.loads(mooring("leader", "-o", "json").stdout)["url"] == "http://first:8000"


def test_a_leader_hands_over_and_the_next_one_is_named(server: FakeServer, mooring: Mooring) -> None:
    refused = mooring("leader", "resign")
    assert (refused.exit_code, "no-standby" in refused.stderr) == (1, True)
    server.servers.append(server_view("second", "standby"))
    lines = mooring("leader", "resign").stdout.splitlines()
    assert lines == ["first: resigned from term 4", "second: leads in term 5"]


def test_a_pass_is_asked_for_and_its_result_shown(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("leader", "pass").stdout == "1 workload placed, 2 waiting, 0 impossible (250ms)\n"
    assert json.loads(mooring("leader", "pass", "-o", "json").stdout)["waiting"] == 2


def test_servers_are_listed_with_their_standing(server: FakeServer, mooring: Mooring) -> None:
    server.servers += [server_view("second", "silent")]
    lines = [line.split() for line in mooring("servers").stdout.splitlines()]
    assert lines[0] == ["NAME", "ROLE", "STANDING", "VERSION", "SEEN", "UP", "URL"]
    assert [line[:4] for line in lines[1:]] == [["first", "all", "leader", "1.2"], ["second", "all", "silent", "1.2"]]
    assert len(json.loads(mooring("servers", "-o", "json").stdout)["servers"]) == 2


def test_loops_are_listed_and_one_that_is_overdue_is_late(server: FakeServer, mooring: Mooring) -> None:
    server.loops = [
        loop_view("holds", next_in=600),
        loop_view("nodes", next_in=5, error="OSError: odd"),
        loop_view("limits", next_in=-300),
    ]
    lines = mooring("loops").stdout.splitlines()
    assert lines[1].split()[:4] == ["holds", "ok", "10m", "12ms"]
    assert lines[1].split()[5:8] == ["9", "0", "1"]
    assert lines[2].split()[1] == "failed"
    assert lines[2].endswith("OSError: odd")
    assert lines[3].split()[1] == "late"
    assert json.loads(mooring("loops", "-o", "json").stdout)["loops"][1]["failures"] == 2


def test_loops_show_the_error_of_predicted_starts(server: FakeServer, mooring: Mooring) -> None:
    assert "Predicted starts" not in mooring("loops").stdout
    server.start_errors = StartErrors(workloads=42, late=5, moved=7, median_seconds=12, p90_seconds=180)
    expected = "Predicted starts: 42 workloads in 7 days, error median 12s, p90 3m, 5 late, 7 moved before"
    assert expected in mooring("loops").stdout.splitlines()
