"""Jobs of the Standard Workload Format, and errors that name the file and the line."""

from __future__ import annotations

import pytest

from mooring.model.errors import InvalidInput
from mooring.simulation.inputs.traces.swf import read_swf

#        job submit wait run used . . requested limit . . user
LINE = "7 30 -1 {run} {used} -1 -1 {requested} {limit} -1 1 3 -1 -1 -1 -1 -1 -1"


def line(run: object = 50, used: object = 2, requested: object = 4, limit: object = 60) -> str:
    return LINE.format(run=run, used=used, requested=requested, limit=limit)


def test_job_has_the_requested_processors_and_its_limit():
    (job,) = read_swf(["; MaxProcs: 8", "", line()], "log.swf", gangs=False)
    assert (job.name, job.submitted, job.run_seconds, job.limit_seconds) == ("job-7", 30, 50, 60)
    assert (job.request, job.tasks, job.user) == ({"cpu": 4000}, 1, "3")


def test_gang_has_a_task_of_one_core_per_processor():
    (job,) = read_swf([line()], "log.swf", gangs=True)
    assert (job.request, job.tasks) == ({"cpu": 1000}, 4)


def test_used_processors_count_where_none_were_requested():
    (job,) = read_swf([line(requested=-1)], "log.swf", gangs=False)
    assert job.request == {"cpu": 2000}


def test_job_runs_no_longer_than_its_limit():
    (job,) = read_swf([line(run=100)], "log.swf", gangs=False)
    assert job.run_seconds == 60


@pytest.mark.parametrize("unknown", [line(run=-1), line(limit=-1), line(used=-1, requested=-1)])
def test_jobs_without_run_time_limit_or_processors_are_left_out(unknown: str):
    assert read_swf([unknown], "log.swf", gangs=False) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("1 2 3", "log.swf, line 2: 3 columns; SWF has 18"),
        (line(run="soon"), "log.swf, line 2: column 4 is 'soon', not a number"),
        (line(run="nan"), "log.swf, line 2: column 4 is 'nan', not a number"),
        (line(run=1e300), "log.swf, line 2: a time is negative, or a value is too large"),
    ],
)
def test_error_names_file_line_and_column(wrong: str, message: str):
    with pytest.raises(InvalidInput, match=message):
        read_swf([line(), wrong], "log.swf", gangs=False)
