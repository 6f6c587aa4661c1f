"""Series over time, distributions and bars for the charts, each bounded in size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mooring.model.resources.slots import total
from mooring.simulation.metrics import Figures, figures_of, slowdown_of, tenant_scope
from mooring.simulation.outcomes import JobOutcome, Result
from mooring.simulation.scenario import Scenario

POINTS = 600
"""Points of a series over time."""
_QUANTILES = 101
_MOST_BARS = 4000
_MOST_LANES = 60
_MOST_TENANTS = 12

Series = NDArray[np.float64]


def report_data(result: Result, scenario: Scenario, title: str, figures: Figures | None = None) -> dict[str, Any]:
    """Return the data of the report, ready for JSON."""
    figures = figures or figures_of(result, scenario)
    scope = tenant_scope(result.outcomes)
    tenants = [each.name for each in figures.tenants[:_MOST_TENANTS]]
    edges = np.linspace(result.start, max(result.end, result.start + 1), POINTS + 1)
    capacity = total(node.allocatable for node in scenario.nodes)
    return {
        "title": title,
        "start": result.start,
        "end": result.end,
        "nodes": len(scenario.nodes),
        "figures": figures.as_dict(),
        "pools": {name: _policy_line(scenario, name) for name in sorted(scenario.pools)},
        "times": [int(time) for time in edges[:-1]],
        "utilisation": {
            slot: _rounded(_allocated(result.outcomes, slot, edges) / amount)
            for slot, amount in sorted(capacity.items())
            if amount
        },
        "queue": {
            "waiting jobs": _rounded(_mean_level(_waiting(result), edges)),
            "running jobs": _rounded(_mean_level(_running(result), edges)),
        },
        "gpus": [
            [each.time, round(each.unallocated / each.capacity, 4), round(each.fragmented / each.capacity, 4)]
            for each in result.gpus
            if each.capacity
        ],
        "distributions": {
            "wait": _by_tenant(result.outcomes, scope, tenants, lambda each: each.wait_seconds),
            "slowdown": _by_tenant(result.outcomes, scope, tenants, slowdown_of),
        },
        "tenants": [
            [each.name, each.jobs, each.mean_wait_seconds, each.share, each.share_over_entitlement]
            for each in figures.tenants[:_MOST_TENANTS]
        ],
        "more_tenants": max(0, len(figures.tenants) - _MOST_TENANTS),
        "gantt": gantt(result, scenario, tenants),
        "faults": [[each.at, each.back_at or result.end, len(each.nodes)] for each in scenario.faults],
    }


def _policy_line(scenario: Scenario, name: str) -> str:
    policy = scenario.pools[name]
    preemption = ", preemption" if policy.preemption is not None else ""
    return f"{policy.profile}, {policy.sequencer}, {policy.head_of_line}{preemption}"


def _waiting(result: Result) -> Iterable[tuple[float, float, float]]:
    for each in result.outcomes:
        since = each.job.submitted
        for attempt in each.attempts:
            yield since, attempt.start, 1.0
            since = attempt.end
        if not each.attempts and each.status == "waiting":
            yield since, result.end, 1.0


def _running(result: Result) -> Iterable[tuple[float, float, float]]:
    return ((attempt.start, attempt.end, 1.0) for each in result.outcomes for attempt in each.attempts)


def _allocated(outcomes: Sequence[JobOutcome], slot: str, edges: Series) -> Series:
    spans = (
        (float(attempt.start), float(attempt.end), float(each.job.request[slot] * each.job.tasks))
        for each in outcomes
        if each.job.request.get(slot)
        for attempt in each.attempts
    )
    return _mean_level(spans, edges)


def _mean_level(spans: Iterable[tuple[float, float, float]], edges: Series) -> Series:
    """Return the mean sum of the amounts of all spans in each interval between two edges."""
    given = np.array(list(spans), dtype=np.float64).reshape(-1, 3)
    starts, ends, amounts = given.T
    # The integral up to a time is the sum over spans that began before, less that over spans that ended before.
    integral = _integral(starts, amounts, edges) - _integral(ends, amounts, edges)
    result: Series = np.diff(integral) / np.diff(edges)
    return result


def _integral(times: Series, amounts: Series, edges: Series) -> Series:
    """Return at each edge the integral of the amounts that have begun at their times."""
    order = np.argsort(times, kind="stable")
    sorted_times, sorted_amounts = times[order], amounts[order]
    level = np.concatenate(([0.0], np.cumsum(sorted_amounts)))
    moment = np.concatenate(([0.0], np.cumsum(sorted_amounts * sorted_times)))
    at = np.searchsorted(sorted_times, edges, side="right")
    result: Series = level[at] * edges - moment[at]
    return result


def _by_tenant(
    outcomes: Sequence[JobOutcome], scope: Any, tenants: Sequence[str], value: Any
) -> dict[str, list[float]]:
    """Return percentiles 0 to 100 of a value over all jobs, and over those of each tenant."""
    values: dict[str, list[float]] = {"all": []}
    for each in outcomes:
        found = value(each)
        if found is not None:
            values["all"].append(found)
            values.setdefault(each.job.tenant(scope) or "-", []).append(found)
    named = ["all", *tenants] if len(tenants) > 1 else ["all"]
    levels = np.linspace(0, 1, _QUANTILES)
    return {name: _rounded(np.quantile(values[name], levels)) for name in named if values.get(name)}


def gantt(result: Result, scenario: Scenario, tenants: Sequence[str]) -> dict[str, Any]:
    """Return the attempts on the first nodes in the busiest window, at most a few thousand bars.

    A bar is a lane, a start, an end, a tenant and a job. A node has a lane per attempt that runs there in parallel.
    """
    spans = sorted(
        (attempt.start, attempt.end, number, attempt)
        for number, each in enumerate(result.outcomes)
        for attempt in each.attempts
        if attempt.end > attempt.start
    )
    if not spans:
        return {"lanes": [], "bars": [], "from": result.start, "to": result.end}
    begin, end = _window(result, len(spans))
    scope = tenant_scope(result.outcomes)
    of_tenant = {name: number for number, name in enumerate(tenants)}
    order = {node.name: number for number, node in enumerate(scenario.nodes)}
    by_node: dict[str, list[tuple[int, int, int]]] = {}
    for start, stop, number, attempt in spans:
        if start < end and stop > begin:
            for name in set(attempt.nodes):
                by_node.setdefault(name, []).append((max(start, begin), min(stop, end), number))
    lanes: list[str] = []
    bars: list[tuple[int, int, int, int, str]] = []
    for name in sorted(by_node, key=lambda each: order[each]):
        free: list[int] = []
        first = len(lanes)
        for start, stop, number in by_node[name]:
            lane = next((lane for lane, until in enumerate(free) if until <= start), len(free))
            if lane == len(free):
                if first + lane >= _MOST_LANES:
                    continue
                free.append(stop)
                lanes.append(name)
            free[lane] = stop
            job = result.outcomes[number].job
            tenant = of_tenant.get(job.tenant(scope) or "-", -1)
            bars.append((first + lane, start, stop, tenant, job.name))
        if len(lanes) >= _MOST_LANES or len(bars) >= _MOST_BARS:
            break
    return {"lanes": lanes, "bars": bars[:_MOST_BARS], "from": begin, "to": end}


def _window(result: Result, attempts: int) -> tuple[int, int]:
    """Return the window of the chart: everything if there are few attempts, else around the longest queue."""
    if attempts <= _MOST_BARS // 4:
        return result.start, result.end
    edges = np.linspace(result.start, result.end, POINTS + 1)
    centre = float(edges[int(np.argmax(_mean_level(_waiting(result), edges)))])
    half = (result.end - result.start) * _MOST_BARS / 4 / attempts / 2
    begin = max(result.start, int(centre - half))
    return begin, min(result.end, int(begin + 2 * half) + 1)


def _rounded(values: Series) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]
