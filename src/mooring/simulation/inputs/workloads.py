"""The jobs of a scenario: traces and generators, with the options of their part of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TextIO

from mooring.model.calendar.durations import parse_duration
from mooring.model.resources.slots import parse_amounts
from mooring.simulation.inputs.generators.lublin import lublin
from mooring.simulation.inputs.generators.poisson import Distribution, JobKind, poisson
from mooring.simulation.inputs.scenario_files.schema import (
    ColumnsPart,
    KindPart,
    NumberColumn,
    NumberPart,
    WorkloadPart,
)
from mooring.simulation.inputs.text_files import MOST_JOBS, document_of, invalid, joined, lines_of, opened
from mooring.simulation.inputs.traces.accounting import read_accounting
from mooring.simulation.inputs.traces.columns import ColumnMapping, Number, read_columns
from mooring.simulation.inputs.traces.openb import is_openb, read_openb, read_order
from mooring.simulation.inputs.traces.pai import is_pai, read_pai
from mooring.simulation.inputs.traces.philly import is_philly_csv, read_philly_csv, read_philly_json
from mooring.simulation.inputs.traces.sacct import is_sacct, read_sacct
from mooring.simulation.inputs.traces.swf import read_swf
from mooring.simulation.jobs import Job

_LINE = 1 << 20


def jobs_of(part: WorkloadPart, *, folder: Path, seed: int, index: int) -> list[Job]:
    """Return the jobs of a part of a scenario, with numbers from 0. `folder`: of the scenario file."""
    return _with_options(_raw_jobs(part, folder, seed, index), part)


def seconds(written: str | int) -> int:
    """Return a time since the start of the simulation, which may be 0."""
    if isinstance(written, int):
        return written
    return 0 if written.strip("0") == "" else parse_duration(written)


def _raw_jobs(part: WorkloadPart, folder: Path, seed: int, index: int) -> list[Job]:
    seed_of_part = f"{seed}:{index}"
    if part.poisson is not None:
        return poisson(
            [_kind(each) for each in part.poisson.kinds],
            jobs_per_hour=part.poisson.jobs_per_hour,
            seconds=seconds(part.poisson.duration),
            seed=seed_of_part,
        )
    if part.lublin is not None:
        return lublin(
            jobs=part.lublin.jobs,
            processors=part.lublin.processors,
            cores_as_tasks=part.gangs,
            seed=seed_of_part,
        )
    assert part.trace is not None
    return _trace(part, folder, seed)


def _trace(part: WorkloadPart, folder: Path, seed: int) -> list[Job]:
    path = folder / (part.trace or "")
    order: list[int] | None = None
    if part.order is not None:
        with opened(folder / part.order) as file:
            order = read_order(lines_of_any_length(file), Path(part.order).name, seed)
    with opened(path) as file:
        first = file.readline(_LINE)
        name, found = path.name, part.format or _recognised(first, path)
        source = joined(first, file)
        readers: dict[str, Callable[[], list[Job]]] = {
            "swf": lambda: read_swf(lines_of(source, name), name, gangs=part.gangs),
            "sacct": lambda: read_sacct(lines_of(source, name), name, gangs=part.gangs),
            "openb": lambda: read_openb(lines_of(source, name), name, order=order, seconds_between=part.interval),
            "pai": lambda: read_pai(lines_of(source, name), name),
            "philly": lambda: _philly(source, first, name, part.gpus_per_node),
            "accounting": lambda: read_accounting(document_of(source, name), name),
            "csv": lambda: read_columns(lines_of(source, name), name, _mapping(part.columns)),
        }
        jobs = readers[found]()
    if not jobs:
        raise invalid(f"{path} has no job with a run time and a request")
    if len(jobs) > MOST_JOBS:
        raise invalid(f"{path} has more than {MOST_JOBS:,} jobs")
    return jobs


def lines_of_any_length(file: TextIO) -> Iterator[str]:
    """Yield the lines of a file of arrival orders, which are long; the whole file is bounded."""
    yield from document_of(file, "the order").splitlines()


def _recognised(first: str, path: Path) -> str:
    if is_sacct(first):
        return "sacct"
    if is_openb(first):
        return "openb"
    if is_pai(first):
        return "pai"
    if is_philly_csv(first):
        return "philly"
    if first.lstrip().startswith("["):
        return "philly"
    if first.lstrip().startswith("{"):
        return "accounting"
    if first.count(",") > 1 and not first.startswith(";"):
        raise invalid(f"{path} is a CSV file of an unknown kind; map its columns in a scenario file")
    return "swf"


def _philly(source: TextIO, first: str, name: str, gpus_per_node: int) -> list[Job]:
    if first.lstrip().startswith("["):
        return read_philly_json(document_of(source, name), name, gpus_per_node=gpus_per_node)
    return read_philly_csv(lines_of(source, name), name, gpus_per_node=gpus_per_node)


def _with_options(jobs: Sequence[Job], part: WorkloadPart) -> list[Job]:
    jobs = jobs[: part.first]
    given = {
        name: value
        for name in ("pool", "user", "project", "domain", "priority", "preemptible", "booking")
        if (value := getattr(part, name)) is not None
    }
    start, load = seconds(part.start), part.load
    if not given and not start and load == 1:
        return list(jobs)
    return [
        replace(
            job,
            submitted=start + int(job.submitted / load),
            deadline=None if job.deadline is None else start + job.deadline - job.submitted + int(job.submitted / load),
            **given,
        )
        for job in jobs
    ]


def _kind(part: KindPart) -> JobKind:
    return JobKind(
        request=parse_amounts(part.resources),
        mean_run_seconds=seconds(part.run),
        name=part.name,
        weight=part.weight,
        tasks=part.tasks,
        distribution=Distribution(part.distribution),
        spread=part.spread,
        limit_factor=part.limit_factor,
        deadline_factor=part.deadline_factor,
        users=part.users or ("",),
        project=part.project,
        priority=part.priority,
        preemptible=part.preemptible,
        gpu_models=frozenset(part.gpu_models),
    )


def _mapping(part: ColumnsPart | None) -> ColumnMapping:
    assert part is not None
    return ColumnMapping(
        submitted=_number(part.submitted),
        ended=None if part.ended is None else _number(part.ended),
        run=None if part.run is None else _number(part.run),
        limit=None if part.limit is None else _number(part.limit),
        request={slot: _number(each) for slot, each in part.request.items()},
        tasks=None if part.tasks is None else _number(part.tasks),
        priority=None if part.priority is None else _number(part.priority),
        deadline=None if part.deadline is None else _number(part.deadline),
        name=part.name,
        user=part.user,
        project=part.project,
        header=part.header,
    )


def _number(part: NumberColumn) -> Number:
    if isinstance(part, NumberPart):
        value = None if part.value is None else Fraction(str(part.value))
        return Number(part.column, Fraction(str(part.factor)), value)
    return Number(part)
