"""`mooring simulate` without a server: figures, a file of jobs, and errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet
import pytest

from mooring.simulation.outputs import job_table
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer

# Two jobs of four processors: the second waits for the first.
LOG = """; MaxProcs: 4
1 0 -1 100 4 -1 -1 4 200 -1 1 3 -1 -1 -1 -1 -1 -1
2 0 -1 50 4 -1 -1 4 60 -1 1 5 -1 -1 -1 -1 -1 -1
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


@pytest.mark.parametrize("cluster", [("--cpu", "4"), ("--nodes", "4", "--cpu", "1")])
def test_simulate_prints_the_figures_of_a_log(anonymous: Mooring, log: Path, cluster: tuple[str, ...]) -> None:
    result = anonymous("simulate", "--trace", str(log), *cluster, "-o", "json")
    assert result.exit_code == 0
    figures = json.loads(result.stdout)
    assert (figures["jobs"], figures["mean_wait_seconds"], figures["utilisation"]) == (2, 50, {"cpu": 1.0})


def test_simulate_reads_accounting_of_slurm(anonymous: Mooring, tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    rows = ("1|2026-03-01T08:00:00|00:01:40|UNLIMITED|4", "2|2026-03-01T08:00:00|00:00:50|00:01:00|4")
    path.write_text("\n".join(("JobID|Submit|Elapsed|Timelimit|NCPUS", *rows, "")))
    result = anonymous("simulate", "--trace", str(path), "--cpu", "4", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["mean_wait_seconds"]) == (0, 50)


def test_simulate_writes_a_row_per_job(anonymous: Mooring, log: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    assert anonymous("simulate", "--trace", str(log), "--cpu", "4", "--jobs", str(jobs)).exit_code == 0
    assert jobs.read_text().splitlines() == [
        "job,user,submitted,start,end,wait_seconds,tasks,status,project,pool,priority,first_start,planned_start,bounded_slowdown,attempts,preemptions,nodes",
        "job-1,3,0,0,100,0,1,ended,,default,10,0,,1.0,1,0,node",
        "job-2,5,0,100,150,100,1,ended,,default,10,100,200,3.0,1,0,node",
    ]


def test_names_of_a_trace_are_no_formulas_in_the_table_of_jobs(anonymous: Mooring, tmp_path: Path) -> None:
    path, jobs = tmp_path / "log.swf", tmp_path / "jobs.csv"
    path.write_text("1 0 0 100 4 -1 -1 4 200 -1 1 =HYPERLINK(1) 1 1 1 -1 -1 -1\n")
    assert anonymous("simulate", "--trace", str(path), "--cpu", "4", "--jobs", str(jobs)).exit_code == 0
    [row] = csv.DictReader(jobs.open())
    assert row["user"] == "'=HYPERLINK(1)"


def test_simulate_writes_the_same_rows_as_parquet(anonymous: Mooring, log: Path, tmp_path: Path) -> None:
    parquet, text = tmp_path / "jobs.parquet", tmp_path / "jobs.csv"
    for path in (parquet, text):
        assert anonymous("simulate", "--trace", str(log), "--cpu", "4", "--jobs", str(path)).exit_code == 0
    table = pyarrow.parquet.read_table(parquet)
    assert [str(table.schema.field(name).type) for name in ("job", "start", "planned_start", "bounded_slowdown")] == [
        "string",
        "int64",
        "int64",
        "double",
    ]
    shown = [{name: "" if value is None else str(value) for name, value in row.items()} for row in table.to_pylist()]
    with text.open(newline="") as file:
        assert shown == list(csv.DictReader(file))


def test_parquet_without_its_library_is_refused_before_the_simulation(
    anonymous: Mooring, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_table, "find_spec", lambda name: None)
    jobs = tmp_path / "jobs.parquet"
    result = anonymous("simulate", "--trace", str(log), "--cpu", "4", "--jobs", str(jobs))
    assert (result.exit_code, result.stdout, jobs.exists()) == (2, "", False)
    assert "install mooring[parquet]" in result.stderr


def test_wrong_line_is_named_and_no_file_is_written(anonymous: Mooring, log: Path, tmp_path: Path) -> None:
    log.write_text(LOG + "3 0\n")
    jobs = tmp_path / "jobs.csv"
    result = anonymous("simulate", "--trace", str(log), "--cpu", "4", "--jobs", str(jobs))
    assert result.exit_code == 2
    assert "log.swf, line 4: 2 columns; SWF has 18" in result.stderr
    assert not jobs.exists()


def test_missing_log_and_unknown_sequencer_are_refused(anonymous: Mooring, log: Path, tmp_path: Path) -> None:
    missing = anonymous("simulate", "--trace", str(tmp_path / "none.swf"), "--cpu", "4")
    assert (missing.exit_code, "No such file" in missing.stderr) == (2, True)
    unknown = anonymous("simulate", "--trace", str(log), "--cpu", "4", "--sequencer", "fastest")
    assert (unknown.exit_code, "fastest" in unknown.stderr) == (2, True)


SCENARIO = """
cluster: [{count: 2, resources: {cpu: 8, gpu: 2}}]
workloads:
  - poisson:
      jobs_per_hour: 20
      duration: 12h
      kinds:
        - {name: train, resources: {cpu: 2, gpu: 1}, run: 30m, deadline_factor: 2, project: vision}
        - {name: prep, resources: {cpu: 4}, run: 10m, limit_factor: 2, project: data}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "lab.yaml"
    path.write_text(SCENARIO)
    return path


def test_scenario_gives_figures_of_gpus_deadlines_and_tenants(anonymous: Mooring, scenario: Path) -> None:
    result = anonymous("simulate", str(scenario), "-o", "json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert {each["name"] for each in figures["tenants"]} == {"vision", "data"}
    assert 0 < figures["deadline_hits"] <= figures["deadlines"] < figures["jobs"]
    assert 0 < figures["gpu"]["fragmented_percent"] <= figures["gpu"]["unallocated_percent"] < 100
    assert anonymous("simulate", str(scenario), "-o", "json", "--seed", "9").stdout != result.stdout


def test_simulate_writes_a_report(anonymous: Mooring, scenario: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    assert anonymous("simulate", str(scenario), "--report", str(report)).exit_code == 0
    assert "<title>lab.yaml" in report.read_text()


def test_scenarios_are_compared_over_seeds(anonymous: Mooring, scenario: Path, tmp_path: Path) -> None:
    other = tmp_path / "strict.yaml"
    other.write_text(SCENARIO + "pools: {default: {head_of_line: strict}}\n")
    compared = anonymous("simulate", "--compare", str(scenario), str(other), "--seeds", "2", "-o", "json")
    assert compared.exit_code == 0, compared.output
    document = json.loads(compared.stdout)
    assert document["seeds"] == [1, 2]
    assert [each["name"] for each in document["scenarios"]] == ["lab", "strict"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give one of a scenario file and --trace"),
        (("a.yaml", "--trace", "b"), "give one of a scenario file and --trace"),
        (("a.yaml", "b.yaml"), "compare several with --compare"),
        (("a.yaml", "--compare"), "two or more scenario files"),
        (("--trace", "a.swf"), "--trace needs nodes"),
    ],
)
def test_options_that_do_not_fit_are_refused(anonymous: Mooring, arguments: tuple[str, ...], message: str) -> None:
    result = anonymous("simulate", *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_schema_of_scenario_files_is_printed(anonymous: Mooring) -> None:
    assert json.loads(anonymous("simulate", "--schema").stdout)["title"] == "Mooring scenario"


def test_nodes_and_pools_are_those_of_the_server(mooring: Mooring, server: FakeServer, log: Path) -> None:
    figures = json.loads(mooring("simulate", "--trace", str(log), "--from-server", "-o", "json").stdout)
    slots = server.nodes["node-1"].slots
    assert figures["utilisation"].keys() == {slot for slot in slots if slots[slot].allocatable != "0"}
    assert figures["jobs"] == 2


def test_paused_pool_of_the_server_is_refused(mooring: Mooring, server: FakeServer, log: Path) -> None:
    pool = server.nodes["node-1"].pool
    server.pools[pool] = server.pools[pool].model_copy(update={"paused": True})
    result = mooring("simulate", "--trace", str(log), "--from-server")
    assert (result.exit_code, f"pool {pool}: the simulation does not model the option 'paused'" in result.stderr) == (
        2,
        True,
    )
