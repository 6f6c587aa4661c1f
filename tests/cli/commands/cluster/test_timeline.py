"""The hours ahead in a terminal of eighty columns, with or without colour."""

from __future__ import annotations

import json

from mooring.wire.cluster.timeline import ForecastView, SlotForecast, TimelineView
from tests.cli.conftest import Mooring
from tests.client.fake_server import NOW, FakeServer

STEPS = 70


def forecast(**of: str | int) -> ForecastView:
    half = [8000] * 35 + [4000] * 35
    booked = [0] * 50 + [1] * 10 + [0] * 10
    cpu = SlotForecast(
        slot="cpu", capacity=8000, running=half, booked=booked, planned=[0] * STEPS, free=[0] * 35 + [4000] * 35
    )
    gpu = SlotForecast(slot="gpu", capacity=0, running=[0], booked=[0], planned=[0], free=[0])
    return ForecastView.model_validate({"pool": "default", "nodes": 2, "slots": [cpu, gpu], **of})


def test_the_timeline_draws_columns_as_high_as_the_occupied_capacity(server: FakeServer, mooring: Mooring) -> None:
    server.timeline = TimelineView(starts_at=NOW, step_seconds=60, steps=STEPS, outlooks=[forecast()])
    lines = mooring("timeline", "--hours", "12", "--pool", "default").stdout.splitlines()
    assert server.last("GET", "/api/timeline").query == {"pool": "default", "hours": "12", "steps": "70"}
    assert lines[0] == "default: 8 cpu on 2 nodes"
    assert lines[1] == "running  " + "█" * 35 + "▄" * 35
    # However little it is, it is seen; a line with nothing on it is not drawn.
    assert lines[2].rstrip() == "booked   " + " " * 50 + "▁" * 10
    assert [line.split()[0] for line in lines[3:4]] == ["free"]
    assert lines[4].split()[1:] != []
    assert max(map(len, lines)) <= 80


def test_a_slot_that_no_node_has_is_refused_with_those_that_there_are(server: FakeServer, mooring: Mooring) -> None:
    server.timeline = TimelineView(starts_at=NOW, step_seconds=60, steps=STEPS, outlooks=[forecast()])
    result = mooring("timeline", "--slot", "fpga")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no node has the slot 'fpga'; available slots: cpu, gpu" in result.stderr


def test_the_timeline_draws_the_free_capacity_of_nodes(server: FakeServer, mooring: Mooring) -> None:
    server.timeline = TimelineView(starts_at=NOW, step_seconds=60, steps=STEPS, outlooks=[forecast(node="n1", nodes=1)])
    lines = mooring("timeline", "--nodes").stdout.splitlines()
    assert server.last("GET", "/api/timeline").query["nodes"] == "true"
    assert lines[0] == "n1       " + " " * 35 + "▄" * 35
    assert json.loads(mooring("timeline", "-o", "json").stdout)["outlooks"][0]["node"] == "n1"


def test_the_timeline_lists_the_amounts_of_each_step(server: FakeServer, mooring: Mooring) -> None:
    server.timeline = TimelineView(starts_at=NOW, step_seconds=60, steps=STEPS, outlooks=[forecast()])
    lines = mooring("timeline", "-o", "csv", "--columns", "pool,capacity,running,free").stdout.splitlines()
    assert (len(lines), lines[0], lines[1], lines[-1]) == (
        STEPS + 1,
        "pool,capacity,running,free",
        "default,8,8,0",
        "default,8,4,4",
    )
