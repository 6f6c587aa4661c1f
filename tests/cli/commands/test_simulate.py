"""`mooring simulate` without a server: figures, a file of jobs, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Mooring

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
        "job,user,submitted,start,end,wait_seconds,tasks",
        "job-1,3,0,0,100,0,1",
        "job-2,5,0,100,150,100,1",
    ]


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
