"""Pods of the Alibaba GPU trace of 2023 ("openb"): shares of GPUs, and models that a pod accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mooring.model.resources.devices import DeviceDemand
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import NO_CONSTRAINTS
from mooring.simulation.inputs.text_files import csv_rows, invalid, whole
from mooring.simulation.jobs import Job

_REQUIRED = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_WITH_TIMES = ("creation_time", "deletion_time")


def is_openb(first_line: str) -> bool:
    return {"cpu_milli", "num_gpu"} <= {column.strip() for column in first_line.split(",")}


def read_openb(
    lines: Iterator[str], name: str, *, order: Sequence[int] | None = None, seconds_between: int = 0
) -> list[Job]:
    """Return the pods, from creation to deletion.

    `order`: instead, the pods in these rows arrive one after the other, `seconds_between` apart, and never end.
    """
    jobs: list[Job] = []
    required = _REQUIRED if order is not None else (*_REQUIRED, *_WITH_TIMES)
    for where, row in csv_rows(lines, name, required=required):
        gpus, share = whole(row["num_gpu"], "num_gpu", where), whole(row["gpu_milli"], "gpu_milli", where)
        request = {
            "cpu": whole(row["cpu_milli"], "cpu_milli", where),
            "memory": whole(row["memory_mib"], "memory_mib", where) << 20,
            "gpu": gpus * share,
        }
        if min(request.values()) < 0 or request["memory"] >> 62:
            raise invalid(f"{where}: an amount is negative or too large")
        submitted = 0 if order is not None else whole(row["creation_time"], "creation_time", where)
        ended = row.get("deletion_time", "") if order is None else ""
        run = whole(ended, "deletion_time", where) - submitted if ended else None
        if run is not None and run <= 0:
            continue
        models = frozenset((row.get("gpu_spec") or "").split("|")) - {""}
        jobs.append(
            Job(
                len(jobs),
                row["name"],
                submitted,
                run,
                None,
                {slot: amount for slot, amount in request.items() if amount},
                constraints=Constraints(devices=(DeviceDemand("gpu", models),)) if models and gpus else NO_CONSTRAINTS,
            )
        )
    return jobs if order is None else _in_order(jobs, order, seconds_between, name)


def read_order(lines: Iterator[str], name: str, seed: int) -> list[int]:
    """Return the rows of a seed from a file of arrival orders: seed, a tab, and row numbers from 0."""
    seeds: list[str] = []
    for number, line in enumerate(lines, 1):
        first, _, rest = line.partition("\t")
        seeds.append(first.strip())
        if first.strip() == str(seed):
            return [whole(row, "row", f"{name}, line {number}") for row in rest.split()]
    raise invalid(f"{name} has no order of seed {seed}; it has {', '.join(seeds)[:200]}")


def _in_order(pods: Sequence[Job], order: Sequence[int], seconds_between: int, name: str) -> list[Job]:
    if any(not 0 <= row < len(pods) for row in order):
        raise invalid(f"{name}: the order names a row that does not exist; there are {len(pods)}")
    return [
        Job(
            number,
            f"{pod.name}.{number}",
            number * seconds_between,
            None,
            None,
            pod.request,
            constraints=pod.constraints,
        )
        for number, pod in enumerate(pods[row] for row in order)
    ]
