from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

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
    lines = mooring("events", "-o", "csv", "--columns", "cursor,object,event,node").stdout.splitlines()
    assert lines == [
        "cursor,object,event,node",
        "7-1,workload w1,pending,-",
        "7-2,node node-1,added,-",
        "7-3,task web/0,scheduled,node-1",
        "7-4,booking lecture,confirmed,-",
        f"7-5,scale-request {scaled.id},delivered,-",
    ]
    table = mooring("events").stdout.splitlines()
    assert table[0].split() == ["CURSOR", "TIME", "OBJECT", "EVENT", "NODE", "MESSAGE"]
    assert [line.split("  ")[0] for line in table[1:]] == ["7-1", "7-2", "7-3", "7-4", "7-5"]
    assert mooring("events", "-o", "name").stdout.split() == ["7-1", "7-2", "7-3", "7-4", "7-5"]
    assert [each["cursor"] for each in json.loads(mooring("events", "-o", "json").stdout)][-1] == "7-5"
    after = mooring("events", "--since", "7-2", "--workload", "web", "--json").stdout.splitlines()
    assert [json.loads(line)["cursor"] for line in after] == ["7-3", "7-4", "7-5"]
    assert server.last("GET", "/api/events").query["workload"] == "web"


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (["-o", "csv", "--columns", "cursor,event"], ["cursor,event", "7-1,pending", "7-2,added"]),
        (["--columns", "cursor,object"], ["CURSOR  OBJECT", "7-1     workload w1", "7-2     node node-1"]),
        (["-o", "name"], ["7-1", "7-2"]),
    ],
)
def test_followed_events_have_one_title_and_a_line_each(
    server: FakeServer, mooring: Mooring, options: list[str], lines: list[str]
) -> None:
    server.events = [event_view(1), event_view(2, noun="node", kind="added", workload=None, node="node-1")]
    assert mooring("events", "--follow", "--since", "7-0", "--limit", "2", *options).stdout.splitlines() == lines


def test_followed_events_are_documents_of_their_own(server: FakeServer, mooring: Mooring) -> None:
    server.events = [event_view(1), event_view(2)]
    follow = ("events", "--follow", "--since", "7-0", "--limit", "2", "-o")
    assert [json.loads(line)["cursor"] for line in mooring(*follow, "json").stdout.splitlines()] == ["7-1", "7-2"]
    documents = yaml.safe_load_all(mooring(*follow, "yaml").stdout)
    assert [each["cursor"] for each in documents] == ["7-1", "7-2"]
    assert mooring(*follow, "json", "--columns", "cursor").exit_code == 2


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
