"""GPU packing on the published openb workloads, against the published figures of FGD and best fit.

Pods arrive one after the other on 1,213 empty nodes, up to 130 % of the GPU capacity; one that does not fit is dropped
and none ends. The figure is the GPU capacity left unallocated, in percent, when 100 % of it has been requested: the
mean over the seeds and the standard deviation between them. Profiles learn the demand from the pods that have arrived.
Below them stand the proven floors: what any policy leaves, even one that knows all arrivals in advance.

The traces are not part of the project: MOORING_TRACES names the folder that holds them. MOORING_PACKING_SEEDS (default
10) is the number of seeds, MOORING_PACKING_VARIANTS (default: all) the variants, separated by commas,
MOORING_PACKING_PROFILES (default: locality,gpu) the profiles, and MOORING_PACKING_COPIES (default 1) how many times the
nodes and the arrivals are taken, for figures of larger clusters.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean, pstdev
from time import process_time
from typing import TypeAlias

from benchmarks.backfill import FOLDER
from mooring import Node, Scheduler, Workload
from mooring.model.resources.devices import WHOLE, Device, DeviceDemand
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import NO_CONSTRAINTS
from mooring.scheduling.compiled import compilation
from mooring.scheduling.plugins.profiles import Registry

PROFILES = "locality,gpu"
BATCH = 500
"""Arrivals that are placed by one call."""
FLOORS = {
    "default": 3.06,
    "cpu050": 3.06,
    "cpu200": 3.06,
    "cpu250": 3.06,
    "gpushare40": 4.32,
    "gpushare80": 8.59,
    "gpushare100": 10.83,
    "gpuspec10": 3.11,
    "gpuspec33": 3.43,
    "multigpu20": 2.62,
    "multigpu40": 1.95,
}
"""By variant, in percent: the configuration linear program, solved by column generation with exact pricing."""

Row: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Result:
    unallocated_percent: float
    """Of the GPU capacity, when 100 % of it has been requested."""
    rejected: int
    decisions_per_second: float


def run() -> dict[str, float]:
    seeds = int(os.environ.get("MOORING_PACKING_SEEDS") or 10)
    copies = int(os.environ.get("MOORING_PACKING_COPIES") or 1)
    chosen = os.environ.get("MOORING_PACKING_VARIANTS")
    compilation.wait()
    figures: dict[str, float] = {}
    for variant in chosen.split(",") if chosen else variants():
        for policy in ("BestFit", "FGD"):
            figures[f"{variant}_{policy.lower()}_published"] = published(variant, policy)
        if variant in FLOORS:
            figures[f"{variant}_floor"] = FLOORS[variant]
        for profile in (os.environ.get("MOORING_PACKING_PROFILES") or PROFILES).split(","):
            results = [replayed(variant, seed, profile, copies) for seed in sorted(arrivals(variant))[:seeds]]
            unallocated = [result.unallocated_percent for result in results]
            figures[f"{variant}_{profile}"] = mean(unallocated)
            figures[f"{variant}_{profile}_deviation"] = pstdev(unallocated)
            figures[f"{variant}_{profile}_rejected"] = mean(result.rejected for result in results)
            figures[f"{variant}_{profile}_per_second"] = mean(result.decisions_per_second for result in results)
    return figures


def replayed(variant: str, seed: int, profile: str, copies: int = 1) -> Result:
    """Place the arrivals of one seed, each `copies` times."""
    ranks = by_seed(f"tiebreak_{variant}.txt.gz")[seed]
    pods = [[workload(pod) for pod in rows(f"pods_{variant}.csv.gz")] for _ in range(copies)]
    order = [copy[row] for row in arrivals(variant)[seed] for copy in pods]
    machines = [node for copy in range(copies) for node in nodes(ranks, prefix=f"{copy}-" if copies > 1 else "")]
    scheduler = Scheduler(machines, profile=Registry().profile(profile))
    capacity = sum(node.allocatable.get("gpu", 0) for node in scheduler.cluster.nodes if node is not None)
    arrived = allocated = rejected = 0
    seconds = 0.0
    at_capacity: list[float] = []
    for first in range(0, len(order), BATCH):
        arriving = order[first : first + BATCH]
        began = process_time()
        decisions = scheduler.place(arriving).decisions
        seconds += process_time() - began
        for decision in decisions:
            requested = decision.workload.request.get("gpu", 0)
            arrived += requested
            allocated += requested * bool(decision.placements)
            rejected += not decision.placements
            if round(100 * arrived / capacity) == 100:
                at_capacity.append(round(100 * allocated / capacity, 2))
    return Result(100 - mean(at_capacity), rejected, len(order) / seconds)


def nodes(ranks: Sequence[int], *, prefix: str = "") -> list[Node]:
    """Return the nodes, named so that the smallest rank wins among equal scores."""
    found: list[Node] = []
    for rank, row in zip(ranks, rows("nodes_gpu.csv.gz"), strict=True):
        gpus = int(row["gpu"])
        found.append(
            Node(
                name=f"{prefix}{rank:05}",
                allocatable={
                    "cpu": int(row["cpu_milli"]),
                    "memory": int(row["memory_mib"]) << 20,
                    "gpu": gpus * WHOLE,
                },
                devices={"gpu": tuple(Device(index, model=row["model"]) for index in range(gpus))},
            )
        )
    return found


def workload(pod: Row) -> Workload:
    request = {"cpu": int(pod["cpu_milli"]), "memory": int(pod["memory_mib"]) << 20}
    if gpus := int(pod["num_gpu"]) * int(pod["gpu_milli"]):
        request["gpu"] = gpus
    models = frozenset((pod.get("gpu_spec") or "").split("|")) - {""}
    return Workload(name=pod["name"], request=request, constraints=constraints(models if gpus else frozenset()))


@cache
def constraints(models: frozenset[str]) -> Constraints:
    """Return one object for equal constraints, which the engine recognises at once."""
    return Constraints(devices=(DeviceDemand("gpu", models),)) if models else NO_CONSTRAINTS


def variants() -> list[str]:
    names = (path.name for path in (FOLDER / "openb").glob("arrivals_*.txt.gz"))
    return sorted(name.removeprefix("arrivals_").removesuffix(".txt.gz") for name in names)


def arrivals(variant: str) -> dict[int, list[int]]:
    return by_seed(f"arrivals_{variant}.txt.gz")


def by_seed(name: str) -> dict[int, list[int]]:
    """Return the numbers in each line of a file by the seed at its beginning."""
    found: dict[int, list[int]] = {}
    for line in read(name):
        seed, _, numbers = line.partition("\t")
        found[int(seed)] = [int(number) for number in numbers.split()]
    return found


def published(variant: str, policy: str) -> float:
    """Return the published unallocated GPU capacity at 100 %, in percent, as the mean over ten seeds."""
    for row in csv.DictReader((FOLDER / "openb" / "published_summary.csv").read_text().splitlines()):
        if (row["variant"], row["policy"]) == (variant, policy):
            return float(row["unalloc_pct_100_mean"])
    raise LookupError(f"no published figure of {policy} on {variant}")


def rows(name: str) -> list[Row]:
    return list(csv.DictReader(read(name)))


def read(name: str) -> list[str]:
    with gzip.open(Path(FOLDER) / "openb" / name, "rt") as file:
        return file.read().splitlines()
