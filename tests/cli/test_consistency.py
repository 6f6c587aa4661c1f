"""Rules that hold for all commands: times, multi-word values, suggestions, and lists of output and events."""

from __future__ import annotations

import json

import pytest

from mooring.cli.input.durations import parse_seconds, seconds_at_least
from mooring.model.errors import InvalidInput
from tests.cli.conftest import Mooring
from tests.cli.terminal import run_in_pipe
from tests.client.fake_server import FakeServer, event_view


@pytest.mark.parametrize(
    ("written", "seconds"), [("90", 90), ("0", 0), ("0.5", 0.5), ("90s", 90), ("30m", 1800), ("1h30m", 5400)]
)
def test_a_time_is_a_duration_or_plain_seconds(written: str, seconds: float) -> None:
    assert parse_seconds(written) == seconds


@pytest.mark.parametrize("written", ["", "soon", "-5", "1.5h", "nan", "1e9", "٣"])
def test_anything_else_is_not_a_time(written: str) -> None:
    with pytest.raises(InvalidInput):
        parse_seconds(written)


def test_a_time_below_its_minimum_is_refused() -> None:
    with pytest.raises(InvalidInput, match="shorter than 10 seconds"):
        seconds_at_least(10)("5s")


def test_options_of_hand_and_of_models_take_durations(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("token", "create", "--name", "edge", "--expires-in", "30m").exit_code == 0
    assert server.last("POST", "/api/join-tokens").body["expires_in_seconds"] == 1800
    assert mooring("pool", "change", "default", "--pending-timeout", "2h").exit_code == 0
    assert server.last("PATCH", "/api/pools/default").body == {"pending_timeout_seconds": 7200}
    wrong = mooring("token", "create", "--name", "edge", "--expires-in", "soon")
    assert (wrong.exit_code, "'soon' is not a duration" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("written", ["scale-up", "scale_up"])
def test_multi_word_values_take_both_spellings(server: FakeServer, mooring: Mooring, written: str) -> None:
    assert mooring("pool", "change", "default", "--on-insufficient", written).exit_code == 0
    assert server.last("PATCH", "/api/pools/default").body == {"on_insufficient": "scale_up"}
    assert mooring("run", "-d", "--on-insufficient", written, "true").exit_code == 0
    assert server.last("POST", "/api/workloads").body["on_insufficient"] == "scale_up"


def test_a_mistyped_name_suggests_the_nearest_that_the_user_may_see(server: FakeServer, mooring: Mooring) -> None:
    server.add("frontend")
    server.add("backend", status="SUCCEEDED")
    server.add("frontends", user="someone-else")
    result = mooring("status", "fronted")
    assert result.exit_code == 3
    assert "hint: did you mean frontend?" in result.stderr
    assert "hint: did you mean backend?" in mooring("status", "backand").stderr
    assert "did you mean" not in mooring("status", "zzz").stderr


def test_mistyped_commands_and_options_suggest_the_nearest(anonymous: Mooring) -> None:
    assert "'nodes'" in anonymous("nods").stderr
    assert "--everyone" in anonymous("ps", "--everyon").stderr


def test_user_of_a_missing_project_is_created_only_with_create_project(server: FakeServer, mooring: Mooring) -> None:
    result = mooring("user", "create", "ann", "--project", "vison")
    assert result.exit_code == 3
    assert "--create-project" in result.stderr
    assert server.requests("POST", "/api/users") == []
    assert mooring("user", "create", "ann", "--project", "vison", "--create-project").exit_code == 0
    assert server.last("POST", "/api/users").body["project"] == "vison"


def test_detached_run_prints_a_document_on_request(server: FakeServer, mooring: Mooring) -> None:
    assert json.loads(mooring("run", "-d", "-o", "json", "true").stdout)["status"]


def test_events_limit_shows_the_newest(server: FakeServer, mooring: Mooring) -> None:
    server.events = [event_view(1), event_view(2), event_view(3)]
    assert mooring("events", "-o", "name").stdout.split() == ["7-1", "7-2", "7-3"]
    assert mooring("events", "--limit", "1", "-o", "name").stdout.split() == ["7-3"]


def test_logs_of_all_tasks_are_prefixed(server: FakeServer, mooring: Mooring) -> None:
    server.add("web").log = b"one\ntwo\n"
    assert mooring("logs", "web", "--all-tasks", "--task", "0").exit_code == 2
    assert run_in_pipe("logs", "web", "--all-tasks").stdout.splitlines() == ["web/0 | one", "web/0 | two"]
