"""A week of a cluster of 5,000 nodes in the simulation: one million tasks, from a cluster that is in use at its start.

A run simulates the first hours, whose processor time per task holds for the week, since the cluster is in a steady
state from the beginning. MOORING_WEEK_TASKS=1000000 simulates the whole week.
"""

from __future__ import annotations

import os
from math import log
from random import Random
from time import process_time

from mooring.model.nodes.node import Node
from mooring.model.policy.pools import Backfill, HeadOfLine, PoolPolicy
from mooring.simulation.engine import replay
from mooring.simulation.jobs import Job
from mooring.simulation.metrics import figures_of
from mooring.simulation.scenario import Scenario

NODES = 5_000
TASKS = 1_000_000
WEEK_SECONDS = 7 * 86_400
SIMULATED = int(os.environ.get("MOORING_WEEK_TASKS") or 20_000)
GIBIBYTE = 2**30
NODE = {"cpu": 32_000, "memory": 128 * GIBIBYTE}
REQUESTS = ((1, 2), (1, 4), (2, 8), (4, 16), (8, 16), (16, 64))
"""Cores and gibibytes."""
WEIGHTS = (30, 20, 20, 15, 10, 5)
MEAN_CORES = sum(weight * cores for weight, (cores, _) in zip(WEIGHTS, REQUESTS, strict=True)) / sum(WEIGHTS)
UTILISATION = 0.9
MEAN_SECONDS = UTILISATION * NODES * NODE["cpu"] / 1000 / MEAN_CORES * WEEK_SECONDS / TASKS
SPREAD = 1.5
"""The standard deviation of the logarithm of run times."""
USERS = 200


def run() -> dict[str, float]:
    seed = Random(1)
    jobs = _running(seed)
    first = len(jobs)
    jobs += _arriving(seed, first, SIMULATED)
    nodes = [Node(name=f"n{number:04}", allocatable=NODE) for number in range(NODES)]
    policy = PoolPolicy("balanced", head_of_line=HeadOfLine.BACKFILL, backfill=Backfill())
    until = jobs[-1].submitted + 1
    filled = process_time()
    replay(Scenario(nodes, jobs[:first], {"default": policy}, until=0))
    used = process_time()
    scenario = Scenario(nodes, jobs, {"default": policy}, until=until)
    result = replay(scenario)
    used, filled = process_time() - used, used - filled
    per_task = max(used - filled, 0.0) / SIMULATED
    figures = figures_of(result, scenario)
    return {
        "nodes": NODES,
        "tasks": SIMULATED,
        "running_tasks_at_start": first,
        "simulated_hours": until / 3600,
        "utilisation": figures.utilisation["cpu"],
        "mean_wait_seconds": figures.mean_wait_seconds,
        "processor_seconds": used,
        "processor_us_per_task": per_task * 1e6,
        "week_processor_minutes": (filled + per_task * TASKS) / 60,
    }


def _running(seed: Random) -> list[Job]:
    """Return the tasks of a steady state, submitted at the start with what is left of their run time."""
    number = round(TASKS / WEEK_SECONDS * MEAN_SECONDS)
    # Long runs are met more often: weighting a log-normal by its value shifts its logarithm by the variance.
    return [_job(seed, each, 0, shift=SPREAD**2, left=seed.random()) for each in range(number)]


def _arriving(seed: Random, first: int, number: int) -> list[Job]:
    time, jobs = 0.0, list[Job]()
    for each in range(number):
        time += seed.expovariate(TASKS / WEEK_SECONDS)
        jobs.append(_job(seed, first + each, 1 + int(time)))
    return jobs


def _job(seed: Random, number: int, submitted: int, *, shift: float = 0.0, left: float = 1.0) -> Job:
    [(cores, memory)] = seed.choices(REQUESTS, WEIGHTS)
    middle = log(MEAN_SECONDS) - SPREAD**2 / 2 + shift
    run_seconds = max(int(seed.lognormvariate(middle, SPREAD) * left), 1)
    return Job(
        number,
        f"task-{number}",
        submitted,
        run_seconds,
        2 * run_seconds + 600,
        {"cpu": cores * 1000, "memory": memory * GIBIBYTE},
        user=f"user-{seed.randrange(USERS)}",
    )
