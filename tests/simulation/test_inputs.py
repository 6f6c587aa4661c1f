"""Traces, node files and generators: the jobs they give, and errors that name the file and the line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from mooring.model.errors import InvalidInput
from mooring.simulation.inputs.generators.lublin import lublin
from mooring.simulation.inputs.nodes import read_nodes
from mooring.simulation.inputs.scenario_files.schema import WorkloadPart
from mooring.simulation.inputs.workloads import jobs_of
from mooring.simulation.jobs import Job

OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
KIND = {"resources": {"cpu": 2, "gpu": 1}, "run": "1h", "limit_factor": 2, "users": ["ada", "bob"]}


def jobs(folder: Path, text: str, **options: Any) -> list[Job]:
    (folder / "trace.txt").write_text(text)
    part = WorkloadPart.model_validate({"trace": "trace.txt", **options})
    return jobs_of(part, folder=folder, seed=1, index=0)


def test_pod_of_openb_has_its_shares_models_and_times(tmp_path: Path):
    (pod,) = jobs(tmp_path, OPENB + "a,6000,1024,1,460,T4|P100,100,400\n")
    assert (pod.submitted, pod.run_seconds, pod.limit_seconds) == (100, 300, None)
    assert pod.request == {"cpu": 6000, "memory": 1 << 30, "gpu": 460}
    assert pod.constraints.devices[0].models == {"T4", "P100"}


PAI = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
PAI_ROWS = [
    "later,worker,2.0,Terminated,1739262.0,1739300.0,400.0,0.5,50.0,MISC",
    "first,tensorflow,1.0,Failed,1739162.0,1739200.0,600.0,29.296875,,T4",
    "waits,ps,1.0,Waiting,,,600.0,1,,",
    "asks-nothing,ps,1.0,Terminated,1,2,,,,",
]


@pytest.mark.parametrize("header", [[PAI], []])
def test_tasks_of_pai_are_gangs_of_their_instances(tmp_path: Path, header: list[str]):
    first, later = jobs(tmp_path, "\n".join([*header, *PAI_ROWS]) + "\n")
    assert (first.name, first.submitted, first.run_seconds, first.tasks) == ("first/tensorflow", 0, 38, 1)
    assert first.request == {"cpu": 6000, "memory": int(29.296875 * (1 << 30))}
    assert (later.submitted, later.tasks) == (100, 2)
    assert later.request == {"cpu": 4000, "memory": 1 << 29, "gpu": 500}


def test_row_of_pai_with_impossible_amounts_is_named(tmp_path: Path):
    with pytest.raises(InvalidInput, match=r"trace\.txt, line 1: an amount or the number of instances"):
        jobs(tmp_path, "a,worker,1e9,Terminated,1,2,400,1,,\n")
    with pytest.raises(InvalidInput, match=r"line 1: plan_cpu is 'x', not a number"):
        jobs(tmp_path, "a,worker,1,Terminated,1,2,x,1,,\n")


def test_pods_arrive_in_the_order_of_the_seed_and_never_end(tmp_path: Path):
    (tmp_path / "order.txt").write_text("1\t1 0 1\n2\t0\n")
    rows = OPENB + "a,1000,0,0,0,,100,400\nb,2000,0,0,0,,100,400\n"
    found = jobs(tmp_path, rows, order="order.txt", interval=5)
    assert [(job.request["cpu"], job.submitted, job.run_seconds) for job in found] == [
        (2000, 0, None),
        (1000, 5, None),
        (2000, 10, None),
    ]


def test_job_of_philly_is_one_task_or_a_gang_of_equal_tasks(tmp_path: Path):
    found = jobs(tmp_path, "submit_s,duration_s,num_gpu,vc\n0,50,4,a\n10,50,16,b\n20,50,0,b\n", gpus_per_node=8)
    assert [(job.request["gpu"], job.tasks, job.project) for job in found] == [(4000, 1, "a"), (8000, 2, "b")]


def test_first_deadline_of_philly_counts_from_the_submission(tmp_path: Path):
    (job,) = jobs(tmp_path, "job,vc,num_gpu,submit_min,duration_min,deadlines_min\n7,a,1,10,2,30;60\n")
    assert (job.submitted, job.run_seconds, job.deadline) == (600, 120, 2400)


def test_published_json_of_philly_is_read(tmp_path: Path):
    attempt = {
        "start_time": "2017-10-09 07:00:00",
        "end_time": "2017-10-09 08:00:00",
        "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}],
    }
    record = {"vc": "v", "user": "u", "jobid": "j", "submitted_time": "2017-10-09 06:59:00", "attempts": [attempt]}
    idle = {**record, "attempts": []}
    (job,) = jobs(tmp_path, json.dumps([record, idle]))
    assert (job.name, job.project, job.user, job.run_seconds, job.request) == ("j", "v", "u", 3600, {"gpu": 2000})


def test_records_of_mooring_keep_tenants_pools_and_priorities(tmp_path: Path):
    record = {
        "id": "00000000-0000-0000-0000-000000000001",
        "name": "train",
        "kind": "session",
        "type": "batch",
        "domain": "lab",
        "project": "vision",
        "user": "ada",
        "access_key": "key",
        "pool": "gpu",
        "priority": 20,
        "tasks": 2,
        "attempts": 1,
        "requested": {"cpu": "500m", "memory": "1Gi"},
        "peak": {},
        "nodes": [],
        "status": "SUCCEEDED",
        "reason": None,
        "created_at": "2026-03-01T08:00:00Z",
        "started_at": "2026-03-01T08:00:10Z",
        "ended_at": "2026-03-01T08:01:10Z",
        "wait_seconds": 10,
        "run_seconds": 60,
    }
    (job,) = jobs(tmp_path, json.dumps({"workloads": [record, {**record, "started_at": None}]}))
    assert (job.project, job.user, job.pool, job.priority, job.tasks) == ("lab/vision", "ada", "gpu", 20, 2)
    assert (job.run_seconds, job.request) == (60, {"cpu": 500, "memory": 1 << 30})


COLUMNS = {
    "submitted": {"column": "t", "factor": 0.000001},
    "ended": "end",
    "request": {"cpu": {"column": "c", "factor": 64}, "memory": {"value": 1048576}},
    "user": "who",
}


def test_columns_of_a_csv_file_are_mapped(tmp_path: Path):
    text = "t,end,c,who\n2000000,62,0.01,ada\n3000000,,0.5,bob\n"
    first, second = jobs(tmp_path, text, format="csv", columns=COLUMNS)
    assert (first.submitted, first.run_seconds, first.user) == (2, 60, "ada")
    assert first.request == {"cpu": 640, "memory": 1 << 20}
    assert second.run_seconds is None


def test_file_without_a_header_is_mapped_by_given_names(tmp_path: Path):
    columns = {**COLUMNS, "header": ["t", "end", "c", "who"]}
    assert len(jobs(tmp_path, "2000000,62,0.01,ada\n", format="csv", columns=columns)) == 1


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (OPENB + "a,x,1,0,0,,0,9\n", {}, r"trace\.txt, line 2: cpu_milli is 'x', not a whole number"),
        (OPENB + "a,1,1\n", {}, r"trace\.txt, line 2: 3 columns; expected 8"),
        (OPENB + f"a,{'9' * 30},1,0,0,,0,9\n", {}, "line 2: cpu_milli is"),
        (OPENB + 'a,"1\n', {}, r"trace\.txt, line 2: unexpected end of data"),
        ("submit_s,duration_s,num_gpu,vc\n-1,5,1,a\n", {}, "line 2: a time is negative"),
        ("a,b,c\n1,2,3\n", {}, "map its columns in a scenario file"),
        ("[{}]", {}, "job 1: not a job of the trace"),
        ("[", {}, r"trace\.txt, line 1"),
        ("[" * 100_000, {}, "nested too deeply"),
        (f"[{'9' * 5000}]", {}, "a number is too long"),
        ('[{"submitted_time": 1, "attempts": []}]', {}, "job 1: '1' is not a time"),
        ("{}", {}, r"trace\.txt: workloads"),
        ("t,end,c\n", {"format": "csv", "columns": COLUMNS}, "no column 'who'"),
        ("t,end,c,who\n1e999999999,2,1,a\n", {"format": "csv", "columns": COLUMNS}, "not a number"),
        ("t,end,c,who\n1,2,1e30,a\n", {"format": "csv", "columns": COLUMNS}, "too large"),
        ("x" * (1 << 21), {}, "columns; SWF has 18|longer than"),
        ("", {}, "has no job"),
    ],
)
def test_error_names_the_file_and_the_line(tmp_path: Path, text: str, options: dict[str, Any], message: str):
    with pytest.raises(InvalidInput, match=message):
        jobs(tmp_path, text, **options)


def test_damaged_compressed_file_is_refused_by_name(tmp_path: Path):
    whole = gzip.compress((OPENB + "a,1000,0,0,0,,100,400\n" * 50).encode(), mtime=0)
    for place in range(12, len(whole) - 8):
        (tmp_path / "trace.gz").write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        part = WorkloadPart.model_validate({"trace": "trace.gz"})
        with pytest.raises(InvalidInput, match="trace"):
            jobs_of(part, folder=tmp_path, seed=1, index=0)


def test_missing_seed_of_an_order_is_named(tmp_path: Path):
    (tmp_path / "order.txt").write_text("7\t0\n")
    with pytest.raises(InvalidInput, match="no order of seed 1; it has 7"):
        jobs(tmp_path, OPENB + "a,1000,0,0,0,,100,400\n", order="order.txt")


def test_part_of_a_trace_is_moved_and_compressed_in_time(tmp_path: Path):
    text = "submit_s,duration_s,num_gpu,vc\n0,50,1,a\n100,50,1,a\n200,50,1,a\n"
    found = jobs(tmp_path, text, first=2, start="1h", load=2, pool="gpu", priority=3, preemptible=False)
    assert [job.submitted for job in found] == [3600, 3650]
    assert {(job.pool, job.priority, job.preemptible) for job in found} == {("gpu", 3, False)}


def test_poisson_jobs_have_the_rate_and_the_run_time_asked_for_and_depend_on_the_seed():
    part = WorkloadPart.model_validate({"poisson": {"jobs_per_hour": 100, "duration": "50h", "kinds": [KIND]}})
    first, again, other = (jobs_of(part, folder=Path(), seed=seed, index=0) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == pytest.approx(5000, rel=0.05)
    assert mean(job.run_seconds or 0 for job in first) == pytest.approx(3600, rel=0.1)
    assert {job.user for job in first} == {"ada", "bob"}
    assert all((job.run_seconds or 0) <= (job.limit_seconds or 0) <= 2 * (job.run_seconds or 0) + 1 for job in first)


def test_lublin_jobs_have_the_statistics_of_the_model():
    # The trace lublin_256 that studies use: 771 s between jobs, 4862 s run time, 22 processors on average.
    found = lublin(jobs=5000, processors=256, cores_as_tasks=False, seed="1")
    assert found[-1].submitted / len(found) == pytest.approx(771, rel=0.25)
    assert mean(job.run_seconds or 0 for job in found) == pytest.approx(4862, rel=0.15)
    assert mean(job.request["cpu"] / 1000 for job in found) == pytest.approx(22, rel=0.15)


def test_nodes_are_read_from_a_csv_file():
    lines = ["name,count,pool,gpu_model,labels,cpu,memory,gpu\n", "a,2,,T4,rack=r1,64,256Gi,2\n", "b,,big,,,8,1Gi,\n"]
    nodes = read_nodes(iter(lines), "nodes.csv")
    assert [(node.name, node.pool) for node in nodes] == [("a-0", "default"), ("a-1", "default"), ("b", "big")]
    assert [device.model for device in nodes[0].devices["gpu"]] == ["T4", "T4"]
    assert (nodes[0].labels, nodes[2].allocatable) == ({"rack": "r1"}, {"cpu": 8000, "memory": 1 << 30})


def test_node_list_of_openb_is_read():
    lines = ["sn,cpu_milli,memory_mib,gpu,model\n", "n0,64000,1024,2,P100\n", "n1,1000,1024,0,\n"]
    first, second = read_nodes(iter(lines), "nodes.csv")
    assert first.allocatable == {"cpu": 64_000, "memory": 1 << 30, "gpu": 2000}
    assert second.devices == {}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,0,8,1Gi\n", "line 2: count is 0"),
        ("a,1,8,1024\n", "line 2: memory: 1024 has no unit"),
        ("a,1,many,1Gi\n", "line 2"),
        (",1,8,1Gi\n", "line 2: a node needs a name"),
    ],
)
def test_wrong_node_is_named_by_its_line(row: str, message: str):
    with pytest.raises(InvalidInput, match=message):
        read_nodes(iter(["name,count,cpu,memory\n", row]), "nodes.csv")
