from __future__ import annotations

import json
from pathlib import Path

import pytest

from mooring.cli.commands.cluster import events as command
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer, event_view

WORKLOAD = {"name": "one", "containers": [{"command": ["true"]}]}


def test_all_events_are_shown_page_by_page(
    server: FakeServer, mooring: Mooring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_PAGE", 2)
    placed = event_view(3, noun="task", kind="SCHEDULED", workload="web", task_index=0, node="node-1")
    booked = event_view(4, noun="timeslot", kind="CONFIRMED", workload=None, timeslot="lecture")
    scaled = event_view(5, noun="scale-request", kind="delivered", workload=None)
    added = event_view(2, noun="node", kind="added", workload=None, node="node-1")
    server.events = [event_view(1), added, placed, booked, scaled]
    lines = mooring("events").stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["7-1", "7-2", "7-3", "7-4", "7-5"]
    assert lines[3].endswith("booking lecture  confirmed")
    assert lines[4].endswith(f"scale-request {scaled.id}  delivered")
    assert lines[0].endswith("workload w1  pending")
    assert lines[1].endswith("node node-1  added")
    assert lines[2].endswith("task web/0  scheduled on node-1")
    after = mooring("events", "--since", "7-2", "--workload", "web", "--json").stdout.splitlines()
    assert [json.loads(line)["cursor"] for line in after] == ["7-3", "7-4", "7-5"]
    assert server.last("GET", "/api/events").query["workload"] == "web"


def test_events_are_followed_until_they_cannot_be(server: FakeServer, mooring: Mooring) -> None:
    server.events = [event_view(1)]
    gone = mooring("events", "--follow", "--since", "0-0")
    assert (gone.exit_code, "events-purged" in gone.stderr) == (1, True)


def test_history_shows_failed_attempts(server: FakeServer, mooring: Mooring) -> None:
    server.add("web")
    shown = mooring("history", "web").stdout
    assert "start task 0" in shown
    assert "image-missing" in shown


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([WORKLOAD, {**WORKLOAD, "name": "taken"}]),
        f"{json.dumps(WORKLOAD)}\n{json.dumps({**WORKLOAD, 'name': 'taken'})}\n",
    ],
)
def test_a_file_of_workloads_is_submitted_at_once(
    server: FakeServer, mooring: Mooring, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "work.json"
    file.write_text(text)
    result = mooring("submit", "-f", str(file), "--key", "mine")
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [["one", "accepted"], ["taken", "refused"]]
    assert (result.exit_code, "1 of 2 workloads were rejected" in result.stderr) == (1, True)
    assert server.last("POST", "/api/workloads/batch").key == "mine"
    given = mooring("submit", "-f", "-", "-o", "json", typed=json.dumps(WORKLOAD))
    assert given.exit_code == 0
    assert json.loads(given.stdout)[0]["workloads"][0]["name"] == "one"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no workload"),
        ("[{]", "not JSON"),
        ('[{"name": "x"}]', "workload 1: containers"),
        (json.dumps([WORKLOAD] * 1001), "at most 1000"),
    ],
)
def test_errors_in_a_file_are_reported_before_anything_is_sent(
    server: FakeServer, mooring: Mooring, text: str, problem: str
) -> None:
    result = mooring("submit", "-f", "-", "--key", "mine", typed=text)
    assert (result.exit_code, problem in result.stderr) == (2, True), result.stderr
    assert server.requests("POST", "/api/workloads/batch") == []
