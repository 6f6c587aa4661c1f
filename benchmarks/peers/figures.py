"""Waits, rates and the table of ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """One task: when its client sent the request, and when the task was bound or ended, in seconds."""

    sent: float
    done: float


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table; `figure` names it in the results, after the scheduler."""

    work: str
    figure: str
    more_is_better: bool = True


ROWS = (
    Row("one by one to bound, per second", "single_per_second"),
    Row("one by one, sent to bound, median, ms", "single_p50_ms", more_is_better=False),
    Row("one by one, sent to bound, p99, ms", "single_p99_ms", more_is_better=False),
    Row("array to bound, per second", "array_per_second"),
    Row("array of processes to their end, per second", "processes_per_second"),
)
PEERS = {"kubernetes": "kube-scheduler", "slurm": "Slurm"}
OURS = {"sqlite": "Mooring, SQLite", "postgresql": "Mooring, PostgreSQL"}


def singly(scheduler: str, spans: Sequence[Span]) -> dict[str, float]:
    waits = [1000 * (span.done - span.sent) for span in spans]
    return {
        f"{scheduler}_single_per_second": per_second(spans),
        f"{scheduler}_single_p50_ms": percentile(waits, 0.50),
        f"{scheduler}_single_p99_ms": percentile(waits, 0.99),
    }


def per_second(spans: Sequence[Span]) -> float:
    """Return the rate from the first request to the last task."""
    return len(spans) / (max(span.done for span in spans) - min(span.sent for span in spans))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    below = -(-len(ordered) * round(share * 1000) // 1000)
    return ordered[max(below, 1) - 1]


def ratio(ours: float, theirs: float, *, more_is_better: bool) -> float:
    """Return how many times better ours is; less than 1 if it is worse."""
    return ours / theirs if more_is_better else theirs / ours


def table(figures: Mapping[str, float]) -> list[str]:
    """Return a Markdown table: the figures of each scheduler, and the ratios of Mooring's to each peer's."""
    names = {**PEERS, **OURS}
    pairs = [(ours, peer) for ours in OURS for peer in PEERS]
    titles = [*names.values(), *(f"{OURS[ours]} : {PEERS[peer]}" for ours, peer in pairs)]
    lines = [f"| work | {' | '.join(titles)} |", "|---|" + "---|" * len(titles)]
    for row in ROWS:
        measured = {name: figures.get(f"{name}_{row.figure}") for name in names}
        cells = ["" if value is None else _shown(value) for value in measured.values()]
        for ours, peer in pairs:
            our, their = measured[ours], measured[peer]
            if our is None or their is None:
                cells.append("")
            else:
                cells.append(f"{_shown(ratio(our, their, more_is_better=row.more_is_better))} ×")
        lines.append(f"| {row.work} | {' | '.join(cells)} |")
    return lines


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.3g}"
