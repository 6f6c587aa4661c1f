"""Slurm: batch jobs until they are allocated, on nodes that never boot, and until they end, on nodes that do.

The times are those of slurmctld's log. `sbatch` submits one job per process, as people and tools do.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from benchmarks.peers import figures, work
from benchmarks.peers.figures import Span
from tests.peers.slurm import SlurmCluster, program, running_slurm

STARTED_NODES = 16
SETTINGS = (
    # By default a pass considers the first 100 jobs, ends after two seconds, and the next comes after a minute or the
    # end of a job.
    "SchedulerParameters=default_queue_depth=100000,max_sched_time=30,sched_interval=1,batch_sched_delay=0,bf_interval=1",
)
_BATCH = ("--mem=128", "--cpus-per-task=1", "--output=/dev/null", "--error=/dev/null", "--wrap=exit 0", "--parsable")
_STARTED = re.compile(r"^\[(\S+)\] (?:sched: Allocate|sched/backfill: _start_job: Started) JobId=(\w+)", re.MULTILINE)
_ENDED = re.compile(r"^\[(\S+)\] _job_complete: JobId=(\w+)(?:\(\d+\))? done$", re.MULTILINE)


def measure() -> dict[str, float]:
    with running_slurm(work.NODES, work.CORES, work.MEMORY_GIB * 1024, SETTINGS, hollow=True) as cluster:
        bound = asyncio.run(_bound(cluster))
    with running_slurm(STARTED_NODES, work.CORES, work.MEMORY_GIB * 1024, SETTINGS) as cluster:
        return bound | {"slurm_processes_per_second": figures.per_second(asyncio.run(_array(cluster, ended)))}


def started(log: str) -> dict[str, float]:
    """Return the time at which each job was allocated, by its id (`7`, or `8_15` in an array)."""
    return _times(_STARTED, log)


def ended(log: str) -> dict[str, float]:
    """Return the time at which each job ended, by its id."""
    return _times(_ENDED, log)


def _times(event: re.Pattern[str], log: str) -> dict[str, float]:
    return {job: datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp() for at, job in event.findall(log)}


async def _bound(cluster: SlurmCluster) -> dict[str, float]:
    ids: dict[str, str] = {}

    async def submit(name: str) -> None:
        ids[name] = await _sbatch(cluster)

    sent = await work.submit_singly(submit, work.single_names())
    at = await _all(cluster, ids.values(), started)
    singles = [Span(sent[name], at[job]) for name, job in ids.items()]
    array = await _array(cluster, started)
    return figures.singly("slurm", singles) | {"slurm_array_per_second": figures.per_second(array)}


async def _array(cluster: SlurmCluster, times: Callable[[str], Mapping[str, float]]) -> list[Span]:
    sent = time.time()
    job = await _sbatch(cluster, f"--array=0-{work.TASKS - 1}")
    at = await _all(cluster, [f"{job}_{index}" for index in range(work.TASKS)], times)
    return [Span(sent, each) for each in at.values()]


async def _sbatch(cluster: SlurmCluster, *options: str) -> str:
    command = [program("sbatch") or "sbatch", *_BATCH, *options]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=cluster.environment,
        cwd=cluster.jobs,
        **cluster.identity,
    )
    out, err = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"sbatch exited with {process.returncode}: {err.decode().strip()}")
    return out.decode().strip().partition(";")[0]


async def _all(
    cluster: SlurmCluster, jobs: Collection[str], times: Callable[[str], Mapping[str, float]]
) -> dict[str, float]:
    wanted, found = set(jobs), dict[str, float]()

    async def complete() -> bool:
        found.update(times(cluster.log))
        return wanted <= found.keys()

    await work.until(complete, f"{times.__name__} {len(wanted)} jobs of Slurm")
    return {job: found[job] for job in wanted}
