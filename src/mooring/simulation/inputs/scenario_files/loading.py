"""Scenario files read and turned into scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml
from pydantic import ValidationError

from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.policy.defragmentation import Gain
from mooring.model.policy.pools import AUTOMATIC, PoolPolicy
from mooring.model.resources.slots import parse_amounts
from mooring.model.tenancy.quotas import Scope
from mooring.simulation.estimates import ActualRunTimes, TimeLimits
from mooring.simulation.inputs.nodes import MOST_NODES, new_node, read_nodes
from mooring.simulation.inputs.scenario_files.schema import (
    BookingPart,
    DefragmentationPart,
    FaultPart,
    NodesPart,
    ScenarioFile,
    TenantPart,
)
from mooring.simulation.inputs.text_files import MOST_JOBS, lines_of, opened
from mooring.simulation.inputs.workloads import jobs_of, seconds
from mooring.simulation.jobs import Job
from mooring.simulation.scenario import Booking, Defragmentation, Fault, Scenario, TenantRules, check
from mooring.wire.cluster.pool_changes import changed

_MOST_CHARACTERS = 1 << 24


def read_scenario(path: Path) -> ScenarioFile:
    """Return the content of a scenario file. Raise InvalidInput with the place of each mistake."""
    with opened(path) as file:
        text = file.read(_MOST_CHARACTERS)
    if len(text) == _MOST_CHARACTERS:
        raise _invalid(f"{path} is larger than 16 MiB")
    try:
        content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as problem:
        raise _invalid(f"{path}: {' '.join(str(problem).split())}") from None
    except (ValueError, RecursionError) as problem:
        raise _invalid(f"{path}: a number is too long or parts are nested too deeply ({problem})") from None
    if not isinstance(content, dict):
        raise _invalid(f"{path} is not a mapping; a scenario has cluster, workloads and pools")
    try:
        return ScenarioFile.model_validate(content)
    except ValidationError as problem:
        raise _invalid("\n".join(f"{path}: {_place(e['loc'])}: {e['msg']}" for e in problem.errors()[:5])) from None


def scenario_of(
    file: ScenarioFile,
    folder: Path,
    *,
    seed: int | None = None,
    cluster: Sequence[Node] | None = None,
    pools: Mapping[str, PoolPolicy] | None = None,
) -> Scenario:
    """Return the scenario of a file in a folder. `seed`, `cluster` and `pools` replace those of the file."""
    nodes = _nodes(file.cluster, folder) if cluster is None else list(cluster)
    if not nodes:
        raise _invalid("the scenario has no nodes; give cluster")
    jobs = _jobs(file, folder, file.seed if seed is None else seed)
    policies = _policies(file) if pools is None else dict(pools)
    for name in {node.pool for node in nodes} | {job.pool for job in jobs}:
        policies.setdefault(name, PoolPolicy(AUTOMATIC))
    scenario = Scenario(
        nodes,
        jobs,
        policies,
        tenants=[_tenant(each) for each in file.tenants],
        faults=[_fault(each, nodes) for each in file.faults],
        bookings=[_booking(each) for each in file.bookings],
        defragmentation=[_defragmentation(each) for each in file.defragmentation],
        until=None if file.until is None else seconds(file.until),
        estimates=ActualRunTimes() if file.estimates == "actual" else TimeLimits(),
    )
    check(scenario)
    return scenario


def _nodes(parts: Sequence[NodesPart], folder: Path) -> list[Node]:
    nodes: list[Node] = []
    for part in parts:
        if part.file is not None:
            path = folder / part.file
            with opened(path) as file:
                nodes += read_nodes(lines_of(file, path.name), path.name, pool=part.pool)
        else:
            amounts = parse_amounts(part.resources or {})
            names = [part.name] if part.count == 1 else [f"{part.name}-{number}" for number in range(part.count)]
            nodes += [
                new_node(name, amounts, pool=part.pool, gpu_model=part.gpu_model, labels=part.labels) for name in names
            ]
        if len(nodes) > MOST_NODES:
            raise _invalid(f"the cluster has more than {MOST_NODES:,} nodes")
    return nodes


def _jobs(file: ScenarioFile, folder: Path, seed: int) -> list[Job]:
    jobs: list[Job] = []
    for index, part in enumerate(file.workloads):
        found = jobs_of(part, folder=folder, seed=seed, index=index)
        offset = len(jobs)
        jobs += [replace(job, number=offset + job.number) for job in found] if offset else found
        if len(jobs) > MOST_JOBS:
            raise _invalid(f"the scenario has more than {MOST_JOBS:,} jobs")
    return jobs


def _policies(file: ScenarioFile) -> dict[str, PoolPolicy]:
    return {name: changed(PoolPolicy(AUTOMATIC), change) for name, change in file.pools.items()}


def _tenant(part: TenantPart) -> TenantRules:
    scope, name = next(
        (scope, name)
        for scope, name in ((Scope.USER, part.user), (Scope.PROJECT, part.project), (Scope.DOMAIN, part.domain))
        if name is not None
    )
    return TenantRules(scope, name, parse_amounts(part.limits), parse_amounts(part.guaranteed), part.weight)


def _fault(part: FaultPart, nodes: Sequence[Node]) -> Fault:
    names = tuple(part.nodes)
    if part.labels:
        names += tuple(node.name for node in nodes if part.labels.items() <= node.labels.items())
    if not names:
        raise _invalid("a fault names no nodes, or labels that no node has")
    at, back = seconds(part.at), None if part.back is None else seconds(part.back)
    if back is not None and back <= at:
        raise _invalid("a fault ends before it begins")
    return Fault(names, at, back)


def _booking(part: BookingPart) -> Booking:
    start, end = seconds(part.start), seconds(part.end)
    if end <= start:
        raise _invalid(f"booking {part.name!r} ends before it begins")
    return Booking(part.name, part.pool, start, end, parse_amounts(part.resources), part.count, seconds(part.lead))


def _defragmentation(part: DefragmentationPart) -> Defragmentation:
    return Defragmentation(part.pool, seconds(part.every), part.moves, Gain(part.gain), seconds(part.max_lost))


def _place(location: Sequence[int | str]) -> str:
    return ".".join(map(str, location)) or "the file"


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(message, code="invalid-scenario")
