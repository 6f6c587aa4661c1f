"""GPU jobs of Microsoft Philly: the published JSON, the compact CSV, and variants of it with deadlines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from mooring.model.resources.devices import WHOLE
from mooring.simulation.inputs.text_files import csv_rows, invalid, whole
from mooring.simulation.jobs import Job

_SECONDS = ("submit_s", "duration_s", "num_gpu")
_MINUTES = ("submit_min", "duration_min", "num_gpu")
_MOST_GPUS = 1 << 20


def is_philly_csv(first_line: str) -> bool:
    columns = {column.strip() for column in first_line.split(",")}
    return columns.issuperset(_SECONDS) or columns.issuperset(_MINUTES)


def read_philly_csv(lines: Iterator[str], name: str, *, gpus_per_node: int) -> list[Job]:
    """Return the jobs with GPUs.

    `deadline_s` is a time, `deadlines_min` the minutes after the submission, of which the first counts.
    """
    jobs: list[Job] = []
    for where, row in csv_rows(lines, name, required=("num_gpu",)):
        minutes = "submit_min" in row
        factor, unit = (60, "min") if minutes else (1, "s")
        submitted = factor * whole(row[f"submit_{unit}"], f"submit_{unit}", where)
        run = factor * whole(row[f"duration_{unit}"], f"duration_{unit}", where)
        gpus = whole(row["num_gpu"], "num_gpu", where)
        _check(submitted, gpus, where)
        if gpus <= 0 or run <= 0:
            continue
        deadline: int | None = None
        if row.get("deadline_s"):
            deadline = whole(row["deadline_s"], "deadline_s", where)
        elif row.get("deadlines_min"):
            first = row["deadlines_min"].replace(";", "|").replace(" ", "|").split("|")[0]
            deadline = submitted + 60 * whole(first, "deadlines_min", where)
        jobs.append(
            gpu_job(
                len(jobs),
                f"job-{row.get('job') or len(jobs)}",
                submitted,
                run,
                gpus,
                gpus_per_node=gpus_per_node,
                project=row.get("vc", ""),
                deadline=deadline,
            )
        )
    return jobs


def read_philly_json(text: str, name: str, *, gpus_per_node: int) -> list[Job]:
    """Return the jobs that ran, as one attempt from the first start to the last end; time 0 is the first submission."""
    try:
        records = json.loads(text)
    except json.JSONDecodeError as problem:
        raise invalid(f"{name}, line {problem.lineno}: {problem.msg}") from None
    except (ValueError, RecursionError) as problem:
        raise invalid(f"{name}: a number is too long or lists are nested too deeply ({problem})") from None
    if not isinstance(records, list):
        raise invalid(f"{name}: not a list of jobs")
    rows: list[tuple[int, int, int, dict[str, Any]]] = []
    for number, record in enumerate(records, 1):
        where = f"{name}, job {number}"
        try:
            attempts = [each for each in record["attempts"] if each["start_time"] and each["end_time"]]
            gpus = max((sum(len(node["gpus"]) for node in each["detail"]) for each in attempts), default=0)
            run = sum(_time(each["end_time"], where) - _time(each["start_time"], where) for each in attempts)
            submitted = _time(record["submitted_time"], where)
        except (TypeError, KeyError) as problem:
            raise invalid(f"{where}: not a job of the trace ({type(problem).__name__}: {problem})") from None
        if run > 0 and gpus > 0:
            rows.append((submitted, run, gpus, record))
    first = min((submitted for submitted, *_ in rows), default=0)
    return [
        gpu_job(
            number,
            str(record.get("jobid", number))[:100],
            submitted - first,
            run,
            gpus,
            gpus_per_node=gpus_per_node,
            project=str(record.get("vc", "")),
            user=str(record.get("user", "")),
        )
        for number, (submitted, run, gpus, record) in enumerate(rows)
    ]


def gpu_job(
    number: int,
    name: str,
    submitted: int,
    run_seconds: int,
    gpus: int,
    *,
    gpus_per_node: int,
    project: str = "",
    user: str = "",
    deadline: int | None = None,
) -> Job:
    """Return a job of whole GPUs: one task if a node has enough, otherwise a gang of tasks of equal size."""
    tasks = -(-gpus // gpus_per_node)
    while gpus % tasks:
        tasks += 1
    return Job(
        number,
        name,
        submitted,
        run_seconds,
        None,
        {"gpu": gpus // tasks * WHOLE},
        tasks,
        user=user,
        project=project,
        deadline=deadline,
    )


def _check(submitted: int, gpus: int, where: str) -> None:
    if submitted < 0 or gpus > _MOST_GPUS:
        raise invalid(f"{where}: a time is negative, or a value is too large")


def _time(text: object, where: str) -> int:
    try:
        if not isinstance(text, str):
            raise ValueError
        # Only differences count, so any zone will do.
        return int(
            datetime.fromisoformat(text.removesuffix(" PST").removesuffix(" PDT")).replace(tzinfo=UTC).timestamp()
        )
    except ValueError:
        raise invalid(f"{where}: {str(text)[:30]!r} is not a time such as 2017-10-09 07:02:39") from None
