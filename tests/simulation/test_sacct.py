"""Jobs of Slurm's accounting, and errors that name the file and the line."""

from __future__ import annotations

import pytest

from mooring.model.errors import InvalidInput
from mooring.simulation.inputs.traces.sacct import is_sacct, read_sacct
from mooring.simulation.jobs import Job

HEADER = "JobID|User|Submit|Elapsed|Timelimit|ReqCPUS|State\n"


def read(*lines: str, gangs: bool = False) -> list[Job]:
    return read_sacct([HEADER, *lines], "jobs.txt", gangs=gangs)


def test_jobs_are_read_with_times_from_the_first_submission():
    jobs = read(
        "42|ada|2026-03-01T08:00:10|00:01:30|01:00:00|4|COMPLETED\n",
        "41|bob|2026-03-01T08:00:00|1-02:03:04|2-00:00:00|8|TIMEOUT\n",
    )
    assert [(job.name, job.user, job.submitted) for job in jobs] == [("job-42", "ada", 10), ("job-41", "bob", 0)]
    assert [(job.run_seconds, job.limit_seconds) for job in jobs] == [(90, 3600), (93784, 172_800)]
    assert [job.request for job in jobs] == [{"cpu": 4000}, {"cpu": 8000}]


def test_gang_has_a_task_of_one_core_per_processor():
    (job,) = read("42|ada|2026-03-01T08:00:10|00:01:30|01:00:00|4|COMPLETED\n", gangs=True)
    assert (job.request, job.tasks) == ({"cpu": 1000}, 4)


@pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", ""])
def test_job_without_a_time_limit_has_none(limit: str):
    (job,) = read(f"42|ada|2026-03-01T08:00:10|00:01:30|{limit}|4|COMPLETED\n")
    assert job.limit_seconds is None


def test_steps_and_jobs_that_never_ran_are_left_out():
    assert not read(
        "42.batch||2026-03-01T08:00:10|00:01:30||4|COMPLETED\n",
        "43|ada|2026-03-01T08:00:10|00:00:00|01:00:00|4|CANCELLED by 7\n",
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("42|ada\n", "jobs.txt, line 2: 2 columns; the header has 7"),
        ("42|ada|Unknown|00:01:30|01:00:00|4|X\n", "line 2: 'Unknown' is not a time"),
        ("42|ada|2026-03-01T08:00:10|soon|01:00:00|4|X\n", "line 2: 'soon' is not a duration"),
        ("42|ada|2026-03-01T08:00:10|00:01:30|01:00:00|4K|X\n", "line 2: ReqCPUS is '4K', not a number"),
        ("42|ada|2026-03-01T08:00:10|999999999-00:00:00|01:00:00|4|X\n", "line 2: a time is negative, or a value"),
    ],
)
def test_error_names_file_and_line(wrong: str, message: str):
    with pytest.raises(InvalidInput, match=message):
        read(wrong)


def test_missing_column_is_named():
    with pytest.raises(InvalidInput, match=r"jobs\.txt: no column Timelimit"):
        read_sacct(["JobID|Submit|Elapsed\n"], "jobs.txt", gangs=False)


def test_format_is_recognised_by_its_header():
    assert is_sacct(HEADER)
    assert not is_sacct("; MaxProcs: 8")
