from __future__ import annotations

import csv
import io
import json

from mooring.wire.tenancy import accounting
from tests.cli.conftest import Mooring
from tests.cli.terminal import run_on_terminal
from tests.client.fake_server import FakeServer


def test_usage_is_shown_in_slot_hours(server: FakeServer, mooring: Mooring) -> None:
    lines = mooring("usage", "--by", "user", "--since", "2026-03-01", "--until", "2026-03-31", "--pool", "gpu").stdout
    assert [line.split() for line in lines.splitlines()] == [
        ["USER", "SLOT", "HOURS", "MEASURED", "OF"],
        ["lab/vision", "cpu", "1.500", "0.250", "1"],
        ["lab/vision", "memory", "0.000", "-", "Gi"],
    ]
    asked = server.last("GET", "/api/usage").query
    assert asked == {"by": "user", "since": "2026-03-01", "until": "2026-03-31", "pool": "gpu"}
    assert mooring("usage", "--since", "yesterday").exit_code == 2
    assert mooring("usage", "--by", "node").exit_code == 2


def test_usage_is_exact_for_programs(server: FakeServer, mooring: Mooring) -> None:
    assert json.loads(mooring("usage", "-o", "json").stdout)["usage"][0]["amount_seconds"] == 5_400_000
    rows = list(csv.DictReader(io.StringIO(mooring("usage", "-o", "csv").stdout)))
    assert rows[0] == {"project": "lab/vision", "slot": "cpu", "hours": "1.500", "measured": "0.250", "of": "1"}


def test_ended_workloads_are_listed_by_their_records(server: FakeServer, mooring: Mooring) -> None:
    line = mooring("usage", "--workloads", "--limit", "5").stdout.splitlines()[1]
    assert line.split()[2:] == ["job", "failed", "lab/vision", "ada", "default", "2", "2", "cpu", "90s", "2h"]
    assert server.last("GET", "/api/usage/workloads").query == {"limit": "5"}
    [row] = csv.DictReader(io.StringIO(mooring("usage", "--workloads", "-o", "csv").stdout))
    assert (row["waited"], row["ran"], row["nodes"]) == ("90", "7200", "n1, n2")
    assert row["ended"] == "2026-01-01T00:00:00+00:00"


def test_top_shows_usage_next_to_requests(server: FakeServer, mooring: Mooring) -> None:
    lines = mooring("top", "web", "--pool", "gpu", "--user", "ada", "--sort", "memory").stdout.splitlines()
    asked = {"pool": "gpu", "user": "ada", "name": "web", "sort": "memory", "limit": "50"}
    assert server.last("GET", "/api/usage/tasks").query == asked
    assert lines[1].split() == ["web", "0", "n1", "1.3", "8", "1.5Gi", "2Gi", "4Ki", "0", "ada", "3s", "ago"]
    # one that was not measured yet, and asked for no memory
    assert lines[2].split() == ["web", "1", "n2", "-", "8", "-", "-", "-", "-", "ada", "not", "yet"]
    assert json.loads(mooring("top", "-o", "json").stdout)["tasks"][0]["cpu_millicores"] == 1300
    [first, _] = csv.DictReader(io.StringIO(mooring("top", "--once", "-o", "csv").stdout))
    assert (first["cpu"], first["cpu_asked"], first["sent/s"]) == ("1.3", "8", "-")
    assert mooring("top", "--sort", "age").exit_code == 2


def test_top_refreshes_on_a_terminal_until_it_is_interrupted(server: FakeServer, mooring: Mooring) -> None:
    with run_on_terminal("top", "--interval", "0.5") as terminal:
        for _ in range(2):
            terminal.expect("WORKLOAD")
            terminal.expect("web")
        terminal.interrupt()
        assert terminal.exit_code() == 0


def test_free_shows_the_largest_requests_within_quotas(server: FakeServer, mooring: Mooring) -> None:
    boxes = [{"cpu": "3", "memory": "16Gi"}, {"cpu": "8", "memory": "4Gi"}]
    some = accounting.PoolFreeCapacity(
        pool="default",
        nodes=2,
        free={"cpu": "11", "memory": "20Gi"},
        largest={"cpu": "8", "memory": "16Gi"},
        boxes=boxes,
    )
    none = accounting.PoolFreeCapacity(pool="toy", nodes=0, free={}, largest={}, boxes=[])
    left = accounting.QuotaLeft(scope="project", name="vision", left={"gpu": "2"})
    server.free_capacity = accounting.FreeCapacity(pools=[some, none], quotas=[left])
    lines = mooring("free").stdout.splitlines()
    assert lines[1].split() == ["default", "2", "11", "cpu,", "20Gi", "memory", "3", "cpu,", "16Gi", "memory"]
    assert lines[2].endswith("8 cpu, 4Gi memory")
    assert lines[3].split() == ["toy", "0", "-", "-"]
    assert lines[-1].split() == ["project", "vision", "2", "gpu"]
    assert json.loads(mooring("free", "--pool", "default", "-o", "json").stdout)["pools"][0]["boxes"] == boxes
    assert server.last("GET", "/api/free").query == {"pool": "default"}
