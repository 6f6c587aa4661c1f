"""Bookings, labs and maintenance as they are typed and shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mooring.cli.input.windows import moment_in
from mooring.model.errors import InvalidInput
from mooring.wire.workloads.timeslots import LabView
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer, workload_view
from tests.client.fake_timeslots import timeslot_view

BERLIN = ZoneInfo("Europe/Berlin")
ON_TWO_NODES: dict[str, Any] = {
    "status": "CONFIRMED",
    "places": [{"node": "n1", "tasks": 2}, {"node": "n2", "tasks": 1}],
}
REFUSED: dict[str, Any] = {
    "status": "REFUSED",
    "reason": {
        "code": "no-room",
        "message": "fits from 14:20, or with 6 instead of 8",
        "details": {"alternatives": {"start": "2026-11-20T14:20:00+00:00", "count": 6}},
    },
}


def test_a_booking_is_sent_as_typed_and_its_nodes_are_printed(server: FakeServer, mooring: Mooring) -> None:
    server.bookings.answers = [{"status": "REQUESTED"}, ON_TWO_NODES]
    result = mooring(
        "book", "--name", "lecture", "--start", "2026-11-20T14:00", "--timezone", "Europe/Berlin", "--end", "16:00",
        "--count", "3", "--cpu", "2", "--gpu", "0.5", "--user", "ben", "--user", "eve", "--for-project", "vision",
        "--lead", "20m", "--grace", "0", "--release-after", "15m", "--purpose", "AI 1", "--select", "disk=ssd",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("lecture is confirmed: ")
    assert result.stdout.rstrip().endswith("3 x 2 cpu on n1 (2), n2")
    sent = server.last("POST", "/api/timeslots")
    assert sent.key
    start, end = (datetime.fromisoformat(sent.body.pop(name)) for name in ("start", "end"))
    assert (start, end) == (datetime(2026, 11, 20, 14, tzinfo=BERLIN), datetime(2026, 11, 20, 16, tzinfo=BERLIN))
    assert sent.body.pop("placement")["node_selector"] == {"disk": "ssd"}
    assert sent.body == {
        "name": "lecture",
        "count": 3,
        "resources": {"cpu": "2", "gpu": "0.5"},
        "users": ["ben", "eve"],
        "projects": ["vision"],
        "lead": "20m",
        "grace": "0",
        "release_after": "15m",
        "purpose": "AI 1",
        "timezone": "Europe/Berlin",
    }


def test_a_rejected_booking_shows_alternatives(server: FakeServer, mooring: Mooring) -> None:
    server.bookings.answers = [REFUSED]
    result = mooring("book", "--start", "+2h", "--for", "1h", "--cpu", "2", "--count", "8")
    assert (result.exit_code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()[-2:]
    assert error == "error: no-room: fits from 14:20, or with 6 instead of 8"
    here = datetime(2026, 11, 20, 14, 20, tzinfo=UTC).astimezone()
    assert hint == f"hint: try --start {here.isoformat()} or --count 6"


def test_a_series_is_listed_and_fails_if_a_booking_is_rejected(server: FakeServer, mooring: Mooring) -> None:
    server.bookings.answers = [ON_TWO_NODES, REFUSED]
    typed = ("book", "--start", "+1h", "--for", "1h", "--cpu", "1", "--every", "FREQ=WEEKLY;COUNT=2")
    result = mooring(*typed, "--timezone", "Europe/Berlin")
    assert result.exit_code == 1
    assert [line.split()[1] for line in result.stdout.splitlines()] == ["STATUS", "confirmed", "refused"]
    assert "1 booking of 2 rejected; the others are kept" in result.stderr
    sent = server.last("POST", "/api/timeslots").body
    assert (sent["rule"], sent["timezone"]) == ("FREQ=WEEKLY;COUNT=2", "Europe/Berlin")


def test_the_zone_of_a_series_is_that_of_the_machine_if_none_is_named(
    server: FakeServer, mooring: Mooring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    assert mooring("book", "--for", "1h", "--cpu", "1", "--every", "FREQ=DAILY;COUNT=2").exit_code == 0
    assert server.last("POST", "/api/timeslots").body["timezone"] == "America/New_York"


def test_no_wait_returns_before_the_decision(server: FakeServer, mooring: Mooring) -> None:
    result = mooring("book", "--start", "now", "--for", "1h", "--cpu", "1", "--no-wait")
    assert "start" not in server.last("POST", "/api/timeslots").body
    [slot] = server.bookings.slots.values()
    assert (result.exit_code, result.stdout, slot.status) == (0, f"{slot.id}\n", "REQUESTED")


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        (("--start", "teatime", "--for", "1h", "--cpu", "1"), "is not a time"),
        (("--for", "long", "--cpu", "1"), "is not a duration"),
        (("--for", "1h", "--cpu", "much"), "much"),
        (("--for", "1h"), "no resources are given; use --cpu"),
        (("--for", "1h", "--cpu", "1", "--timezone", "Moon/Base"), "there is no time zone"),
    ],
)
def test_invalid_options_are_not_sent(
    server: FakeServer, mooring: Mooring, typed: tuple[str, ...], problem: str
) -> None:
    result = mooring("book", *typed)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert server.requests("POST", "/api/timeslots") == []


def test_bookings_are_listed_shown_and_exported(server: FakeServer, mooring: Mooring, tmp_path: Path) -> None:
    server.bookings.add(timeslot_view("lecture", users=["ben"], rule="FREQ=DAILY;COUNT=2", timezone="UTC"))
    assert mooring("bookings").stdout == mooring("bookings", "list").stdout
    assert mooring("bookings").stdout.splitlines()[1].split()[:2] == ["lecture", "confirmed"]
    assert json.loads(mooring("bookings", "list", "-o", "json").stdout)[0]["name"] == "lecture"
    shown = mooring("bookings", "show", "lecture").stdout
    for line in ("also for: ben", "series:   FREQ=DAILY;COUNT=2 (UTC)", "capacity: 1 x 2 cpu", "grace:    5m"):
        assert line in shown
    file = tmp_path / "mine.ics"
    assert mooring("bookings", "export", str(file)).exit_code == 0
    assert file.read_bytes() == b"BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n"
    assert mooring("bookings", "export").stdout.startswith("BEGIN:VCALENDAR")


def test_the_list_asks_for_a_window_and_a_status(server: FakeServer, mooring: Mooring) -> None:
    typed = ("--from", "2026-01-01T00:00+00:00", "--until", "2026-01-02T00:00+00:00", "--status", "at risk", "-A")
    assert mooring("bookings", "list", *typed).exit_code == 0
    query = server.last("GET", "/api/timeslots").query
    assert datetime.fromisoformat(query["from"]) == datetime(2026, 1, 1, tzinfo=UTC)
    assert datetime.fromisoformat(query["until"]) == datetime(2026, 1, 2, tzinfo=UTC)
    assert (query["status"], query["everyone"]) == ("AT_RISK", "true")


def test_bookings_are_cancelled_each_by_itself(server: FakeServer, mooring: Mooring) -> None:
    server.bookings.add(timeslot_view("lecture"))
    result = mooring("bookings", "cancel", "nothing", "lecture")
    assert (result.exit_code, result.stdout) == (3, "lecture\n")
    assert mooring("bookings", "cancel", "lecture", "--series").stdout == "lecture: 1 booking cancelled\n"
    assert server.seen[-1].query == {"series": "true"}


def test_a_rejected_change_leaves_the_booking_unchanged(server: FakeServer, mooring: Mooring) -> None:
    server.bookings.add(timeslot_view("lecture"))
    server.bookings.answers = [REFUSED, ON_TWO_NODES]
    result = mooring("bookings", "change", "lecture", "--for", "2h", "--count", "3")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "the booking is unchanged"
    assert server.last("PATCH", "/api/timeslots/lecture").body == {"duration": "2h", "count": 3}
    assert mooring("bookings", "change", "lecture", "--cpu", "1").exit_code == 0


def test_a_new_end_counts_from_the_start_that_the_booking_has(server: FakeServer, mooring: Mooring) -> None:
    start = datetime(2026, 11, 20, 14, tzinfo=UTC)
    for typed, end in (("+3h", start + timedelta(hours=3)), ("18:00", start + timedelta(hours=4))):
        server.bookings.slots.clear()
        server.bookings.add(timeslot_view("lecture", start=start))
        result = mooring("bookings", "change", "lecture", "--end", typed, "--timezone", "UTC")
        assert result.exit_code == 0, result.stderr
        sent = server.last("PATCH", "/api/timeslots/lecture").body
        assert {name: datetime.fromisoformat(at) for name, at in sent.items()} == {"end": end}


def test_a_booking_cannot_be_moved_to_now(server: FakeServer, mooring: Mooring) -> None:
    server.bookings.add(timeslot_view("lecture"))
    result = mooring("bookings", "change", "lecture", "--start", "now")
    assert (result.exit_code, "must be in the future" in result.stderr) == (2, True)


def test_the_list_needs_no_word_of_its_own(server: FakeServer, mooring: Mooring) -> None:
    server.bookings.add(timeslot_view("lecture"))
    assert [slot["name"] for slot in json.loads(mooring("bookings", "-o", "json").stdout)] == ["lecture"]


def test_work_names_the_booking_that_it_runs_in(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("run", "-d", "--in", "lecture", "true").exit_code == 0
    assert server.last("POST", "/api/workloads").body["booking"] == "lecture"


def test_nodes_are_taken_for_maintenance(server: FakeServer, mooring: Mooring) -> None:
    result = mooring("maintenance", "n1", "n2", "--start", "+1h", "--for", "4h", "--reason", "new disks")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("maintenance-1: n1, n2 from ")
    sent = server.last("POST", "/api/maintenance").body
    assert (sent["nodes"], sent["duration"], sent["reason"]) == (["n1", "n2"], "4h", "new disks")


def test_a_lab_is_booked_shown_and_given_up(server: FakeServer, mooring: Mooring) -> None:
    server.bookings.answers = [ON_TWO_NODES]
    result = mooring(
        "lab", "create", "--name", "lab7", "--for", "2h", "--replicas", "2", "--cpu", "1", "--ports", "2", "sleep", "9"
    )
    assert (result.exit_code, result.stdout.split(":")[0]) == (0, "lab7 is confirmed"), result.stderr
    sent = server.last("POST", "/api/labs").body
    assert (sent["duration"], sent["workload"]["replicas"], sent["workload"]["gang"]) == ("2h", 2, True)
    assert sent["workload"]["placement"]["ports"] == 2
    slot = timeslot_view("lab7", kind="lab", places=[{"node": "n1", "tasks": 2}])
    workload = workload_view("lab7").model_copy(update={"replicas": 2})
    server.bookings.labs = [LabView(state="ready", timeslot=slot, workload=workload, ports={0: [30001], 1: [30002]})]
    assert mooring("lab", "list").stdout.splitlines()[1].split()[:2] == ["lab7", "ready"]
    shown = mooring("lab", "show", "lab7").stdout
    assert "state:     ready" in shown
    assert "ports:     0: 30001; 1: 30002" in shown
    assert mooring("lab", "cancel", "lab7").stdout == "lab7\n"
    server.bookings.answers = [REFUSED]
    refused = mooring("lab", "create", "--for", "2h", "--replicas", "8", "--cpu", "1", "sleep", "9")
    assert refused.stderr.splitlines()[-1].endswith("or --replicas 6")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("14:00", "2026-03-28T14:00+01:00"),
        ("12:00", "2026-03-29T12:00+02:00"),  # the next one, on the day when summer time begins
        ("11:59", "2026-03-29T11:59+02:00"),
        ("+2h", "2026-03-28T14:00+01:00"),
        ("+1d", "2026-03-29T13:00+02:00"),
        ("2026-03-29T09:00", "2026-03-29T09:00+02:00"),
        ("2026-03-29T09:00Z", "2026-03-29T09:00+00:00"),
    ],
)
def test_a_time_is_read_by_the_clock_of_its_zone(written: str, expected: str) -> None:
    noon = datetime(2026, 3, 28, 12, tzinfo=BERLIN).astimezone(UTC)
    assert moment_in(written, BERLIN, after=noon) == datetime.fromisoformat(expected)


def test_a_time_without_a_zone_is_read_by_the_clock_of_this_machine() -> None:
    assert moment_in("2026-03-29T09:00", None) == datetime(2026, 3, 29, 9).astimezone()
    noon = datetime(2026, 3, 28, 12).astimezone()
    assert moment_in("12:02", None, after=noon) == datetime(2026, 3, 28, 12, 2).astimezone()
    with pytest.raises(InvalidInput, match="is not a time"):
        moment_in("25:00", None)


def test_the_earliest_window_is_booked_where_the_first_is_taken(server: FakeServer, mooring: Mooring) -> None:
    server.bookings.answers = [REFUSED, ON_TWO_NODES]
    typed = ("book", "--start", "2026-11-20T14:00+00:00", "--for", "90m", "--cpu", "1", "--earliest")
    result = mooring(*typed)
    assert result.exit_code == 0, result.stderr
    sent = server.last("POST", "/api/timeslots").body
    assert [datetime.fromisoformat(sent[name]) for name in ("start", "end")] == [
        datetime(2026, 11, 20, 14, 20, tzinfo=UTC),
        datetime(2026, 11, 20, 15, 50, tzinfo=UTC),
    ]
    assert mooring(*typed, "--no-wait").exit_code == 2


def test_dates_of_a_series_are_left_out(server: FakeServer, mooring: Mooring) -> None:
    typed = ("book", "--for", "1h", "--cpu", "1", "--every", "FREQ=DAILY;COUNT=4", "--timezone", "UTC")
    assert mooring(*typed, "--except", "2026-12-25", "--except", "2026-12-26").exit_code == 0
    assert server.last("POST", "/api/timeslots").body["exceptions"] == ["2026-12-25", "2026-12-26"]
    assert mooring(*typed, "--except", "christmas").exit_code == 2


CALENDAR = """BEGIN:VCALENDAR\r
VERSION:2.0\r
BEGIN:VEVENT\r
UID:one@school\r
SUMMARY:Lecture: AI 1\r
DTSTART;TZID=Europe/Berlin:20270111T090000\r
DURATION:PT90M\r
RRULE:FREQ=WEEKLY;COUNT=3\r
EXDATE;TZID=Europe/Berlin:20270118T090000\r
END:VEVENT\r
BEGIN:VEVENT\r
UID:two@school\r
DTSTART:20270301T120000Z\r
DTEND:20270301T140000Z\r
END:VEVENT\r
END:VCALENDAR\r
"""


def test_a_calendar_is_imported_event_by_event_and_only_once(
    server: FakeServer, mooring: Mooring, tmp_path: Path
) -> None:
    file = tmp_path / "term.ics"
    file.write_text(CALENDAR, newline="")
    assert mooring("bookings", "import", str(file), "--cpu", "2", "--timezone", "UTC").exit_code == 0
    lecture, other = (each for each in server.seen if (each.method, each.path) == ("POST", "/api/timeslots"))
    start = datetime(2027, 1, 11, 9, tzinfo=BERLIN)
    assert datetime.fromisoformat(lecture.body.pop("start")) == start
    assert datetime.fromisoformat(lecture.body.pop("end")) == start + timedelta(minutes=90)
    assert lecture.body == {
        "name": "lecture-ai-1",
        "purpose": "Lecture: AI 1",
        "resources": {"cpu": "2"},
        "rule": "FREQ=WEEKLY;COUNT=3",
        "timezone": "Europe/Berlin",
        "exceptions": ["2027-01-18"],
    }
    assert "name" not in other.body
    keys = [lecture.key, other.key]
    assert mooring("bookings", "import", str(file), "--cpu", "2", "--timezone", "UTC").exit_code == 0
    again = [each for each in server.seen if (each.method, each.path) == ("POST", "/api/timeslots")][2:]
    assert [each.key for each in again] == keys


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hello", "not an iCalendar file"),
        ("BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n", "no event"),
        (CALENDAR.replace("DURATION:PT90M", "X-NOTHING:1"), "neither an end nor a duration"),
        (CALENDAR.replace("UID:one@school", "RECURRENCE-ID:20270111T080000Z"), "changes one occurrence"),
    ],
)
def test_a_calendar_that_cannot_be_imported_books_nothing(
    server: FakeServer, mooring: Mooring, tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "odd.ics"
    file.write_text(text, newline="")
    refused = mooring("bookings", "import", str(file), "--cpu", "2")
    assert (refused.exit_code, why in refused.stderr) == (2, True), refused.stderr
    assert not [each for each in server.seen if each.method == "POST"]
