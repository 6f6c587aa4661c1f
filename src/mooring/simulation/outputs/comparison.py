"""Scenarios compared over seeds, in parallel processes, with paired confidence intervals.

Each seed gives all scenarios the same jobs if their workloads are the same, so that the differences between scenarios
vary much less than the figures themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from math import sqrt
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev

from mooring.simulation.engine import replay
from mooring.simulation.inputs.scenario_files.loading import read_scenario, scenario_of
from mooring.simulation.metrics import Figures, figures_of

_STUDENT_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The 97.5th percentile of Student's t distribution for 1 to 30 degrees of freedom."""
_BELOW_DEGREES = ((40, 2.042), (60, 2.021), (120, 2.000))
_MANY_DEGREES = 1.980
"""Beyond 30 degrees the value for fewer degrees is used, which errs on the wide side."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the half width of its 95 % confidence interval; None for a single seed."""

    mean: float
    half_width: float | None

    @property
    def is_significant(self) -> bool:
        """Return whether the interval excludes 0."""
        return self.half_width is not None and abs(self.mean) > self.half_width


@dataclass(frozen=True, slots=True)
class Compared:
    """A scenario: its figures over all seeds, and their differences from the first scenario, seed by seed."""

    name: str
    figures: Mapping[str, Interval]
    differences: Mapping[str, Interval]
    """Empty for the first scenario."""


@dataclass(frozen=True, slots=True)
class Comparison:
    seeds: tuple[int, ...]
    scenarios: tuple[Compared, ...]

    def as_dict(self) -> dict[str, object]:
        def shown(intervals: Mapping[str, Interval]) -> dict[str, object]:
            return {name: {"mean": each.mean, "half_width": each.half_width} for name, each in intervals.items()}

        return {
            "seeds": list(self.seeds),
            "confidence": 0.95,
            "scenarios": [
                {"name": each.name, "figures": shown(each.figures), "differences": shown(each.differences)}
                for each in self.scenarios
            ],
        }


def compare(
    paths: Sequence[Path], seeds: Sequence[int], *, processes: int, progress: Callable[[int, int], None] | None = None
) -> Comparison:
    """Replay every scenario with every seed. `progress` gets the number of finished runs, and of all."""
    tasks = [(number, seed) for seed in seeds for number in range(len(paths))]
    found: dict[tuple[int, int], dict[str, float]] = {}
    # Forking would copy the threads that compile kernels.
    with ProcessPoolExecutor(min(processes, len(tasks)), mp_context=get_context("spawn")) as pool:
        running = {pool.submit(_run, paths[number], seed): (number, seed) for number, seed in tasks}
        try:
            for future in as_completed(running):
                found[running[future]] = future.result()
                if progress is not None:
                    progress(len(found), len(tasks))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    by_scenario = [[found[number, seed] for seed in seeds] for number in range(len(paths))]
    return Comparison(tuple(seeds), tuple(_compared(_names(paths), by_scenario)))


def compared_figures(figures: Figures) -> dict[str, float]:
    """Return the figures that are compared, by name."""
    found = {
        "mean_wait_seconds": figures.mean_wait_seconds,
        "median_wait_seconds": figures.median_wait_seconds,
        "p95_wait_seconds": figures.p95_wait_seconds,
        "mean_bounded_slowdown": figures.mean_bounded_slowdown,
        "never_started": float(figures.never_started),
        "fairness": figures.fairness,
        "preemptions": float(figures.preemptions),
        "moves": float(figures.moves),
    }
    found |= {f"{slot}_utilisation": value for slot, value in sorted(figures.utilisation.items())}
    if figures.deadlines:
        found["deadlines_met"] = figures.deadline_hits / figures.deadlines
    if figures.starts is not None:
        found["planned_start_error_seconds"] = figures.starts.mean_error_seconds
    if figures.gpu is not None:
        found["gpu_unallocated_percent"] = figures.gpu.unallocated_percent
        found["gpu_fragmented_percent"] = figures.gpu.fragmented_percent
    return found


def interval(values: Sequence[float]) -> Interval:
    """Return the mean with its 95 % confidence interval by Student's t distribution."""
    if len(values) < 2:
        return Interval(mean(values), None)
    return Interval(mean(values), _quantile(len(values) - 1) * stdev(values) / sqrt(len(values)))


def _quantile(degrees: int) -> float:
    if degrees <= len(_STUDENT_T):
        return _STUDENT_T[degrees - 1]
    return next((value for most, value in _BELOW_DEGREES if degrees < most), _MANY_DEGREES)


def _run(path: Path, seed: int) -> dict[str, float]:
    scenario = scenario_of(read_scenario(path), path.parent, seed=seed)
    return compared_figures(figures_of(replay(scenario), scenario))


def _compared(names: Sequence[str], by_scenario: Sequence[Sequence[Mapping[str, float]]]) -> Iterable[Compared]:
    first = by_scenario[0]
    for number, (name, runs) in enumerate(zip(names, by_scenario, strict=True)):
        shared = [figure for figure in runs[0] if all(figure in run for run in runs)]
        figures = {figure: interval([run[figure] for run in runs]) for figure in shared}
        differences = {
            figure: interval([run[figure] - base[figure] for run, base in zip(runs, first, strict=True)])
            for figure in shared
            if number and all(figure in base for base in first)
        }
        yield Compared(name, figures, differences)


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the file names, or the paths if two of these are equal."""
    names = [path.stem for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
