"""The report: series that add up, a page that loads nothing, and names that cannot become markup."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import HeadOfLine, PoolPolicy
from mooring.simulation.engine import replay
from mooring.simulation.jobs import Job
from mooring.simulation.metrics import figures_of
from mooring.simulation.outputs.report.html import render, write_report
from mooring.simulation.outputs.report.series import POINTS, report_data
from mooring.simulation.scenario import Fault, Scenario

NODES = [Node(name=name, allocatable={"cpu": 4000}) for name in ("a", "b")]
POLICY = PoolPolicy("balanced", sequencer="fifo", head_of_line=HeadOfLine.SKIP)


def job(number: int, submitted: int, run: int, cores: int, *, tasks: int = 1, user: str = "ada") -> Job:
    return Job(number, f"job-{number}", submitted, run, run, {"cpu": cores * 1000}, tasks, user=user)


def scenario(*jobs: Job) -> Scenario:
    return Scenario(NODES, jobs, {"default": POLICY}, faults=[Fault(("b",), 600, 900)])


JOBS = (job(0, 0, 600, 4), job(1, 0, 300, 4, user="bob"), job(2, 100, 400, 4, tasks=2), job(3, 1100, 100, 1))


def test_series_have_the_mean_that_the_figures_state():
    case = scenario(*JOBS)
    result = replay(case)
    data = report_data(result, case, "title")
    # 600 * 4 + 300 * 4 + 2 * 400 * 4 + 100 cores, of 8 cores all the time: the series counts lost nodes as unused.
    used = 600 * 4 + 300 * 4 + 2 * 400 * 4 + 100
    assert len(data["utilisation"]["cpu"]) == POINTS
    assert sum(data["utilisation"]["cpu"]) / POINTS == pytest.approx(used / (8 * result.end), rel=1e-3)
    waits = sum(each.wait_seconds or 0 for each in result.outcomes)
    assert sum(data["queue"]["waiting jobs"]) / POINTS * result.end == pytest.approx(waits, rel=1e-3)


def test_schedule_has_a_bar_per_node_of_each_attempt_and_no_bars_overlap():
    case = scenario(*JOBS)
    chart = report_data(replay(case), case, "title")["gantt"]
    assert sorted(name for *_, name in chart["bars"]) == ["job-0", "job-1", "job-2", "job-2", "job-3"]
    by_lane: dict[int, list[tuple[int, int]]] = {}
    for lane, start, end, *_ in chart["bars"]:
        by_lane.setdefault(lane, []).append((start, end))
    for bars in by_lane.values():
        bars.sort()
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(bars))


def test_page_loads_nothing_and_names_cannot_end_the_data():
    evil = Job(0, "</script><script>alert(1)</script><!--", 0, 5, 5, {"cpu": 1000}, user="<b>")
    case = scenario(evil)
    page = render(report_data(replay(case), case, "<i>title</i>"))
    assert "alert(1)</script>" not in page
    assert "<i>title" not in page
    assert not re.search(r"""(?:src|href)\s*=|@import|url\(|fetch\(|https?://(?!www\.w3\.org/2000/svg)""", page)
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    assert json.loads(found[1])["gantt"]["bars"][0][-1] == evil.name


def test_scenario_without_a_start_gives_a_report():
    case = scenario(job(0, 0, 5, 64))
    result = replay(case)
    page = render(report_data(result, case, "title", figures_of(result, case)))
    assert '"bars":[]' in page


def test_report_stays_small_for_many_jobs():
    jobs = [job(number, number * 3, 40, 1, user=f"user-{number % 50}") for number in range(5000)]
    case = scenario(*jobs)
    data = report_data(replay(case), case, "title")
    assert len(data["gantt"]["bars"]) <= 4000
    assert len(data["tenants"]) + data["more_tenants"] == 50
    assert len(render(data)) < 500_000


def test_file_that_cannot_be_written_is_named(tmp_path: Path):
    case = scenario(*JOBS)
    with pytest.raises(InvalidInput, match=r"none/report\.html cannot be written"):
        write_report(tmp_path / "none" / "report.html", report_data(replay(case), case, "title"))
