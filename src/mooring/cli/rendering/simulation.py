"""Figures of `mooring simulate` as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooring.cli.rendering.formatting import duration, plural
from mooring.cli.rendering.output import Column, Listing, show_table

if TYPE_CHECKING:
    from mooring.simulation.metrics import Figures
    from mooring.simulation.outputs.comparison import Comparison, Interval

_WAITS = (
    Column("JOBS", number=True),
    Column("NEVER STARTED", number=True),
    Column("MEAN WAIT", number=True),
    Column("MEDIAN WAIT", number=True),
    Column("P95 WAIT", number=True),
    Column("BOUNDED SLOWDOWN", number=True),
)
_TENANTS = (
    Column("TENANT"),
    Column("JOBS", number=True),
    Column("MEAN WAIT", number=True),
    Column("SHARE", number=True),
    Column("SHARE/ENTITLEMENT", number=True),
)
_MOST_TENANTS = 10


def show_figures(figures: Figures, output: Listing) -> None:
    """Print the waits and utilisation; on a terminal, also the other figures."""
    slots = sorted(figures.utilisation)
    columns = (*_WAITS, *(Column(f"{slot.upper()} UTILISATION", number=True) for slot in slots))
    row = [
        f"{figures.jobs}",
        f"{figures.never_started}",
        f"{figures.mean_wait_seconds:.0f}s",
        f"{figures.median_wait_seconds:.0f}s",
        f"{figures.p95_wait_seconds:.0f}s",
        f"{figures.mean_bounded_slowdown:.2f}",
        *(f"{figures.utilisation[slot]:.1%}" for slot in slots),
    ]
    show_table(columns, [row], output)
    if output.is_table:
        for line in details(figures):
            print(line)
        if len(figures.tenants) > 1:
            print()
            _show_tenants(figures, output)


def details(figures: Figures) -> list[str]:
    """Return a line for each kind of figure that the simulation has."""
    lines: list[str] = []
    if figures.preemptions or figures.node_losses:
        lines.append(f"Preempted: {figures.preemptions}; lost with a node: {figures.node_losses}")
    if figures.moves:
        lines.append(f"Moved by defragmentation: {figures.moves}")
    if figures.deadlines:
        hits = figures.deadline_hits
        lines.append(f"Deadlines met: {hits} of {figures.deadlines} ({hits / figures.deadlines:.1%})")
    if figures.gpu is not None:
        gpu = figures.gpu
        line = f"GPU: {gpu.unallocated_percent:.2f} % unallocated, {gpu.fragmented_percent:.2f} % fragmented"
        if gpu.unallocated_at_full_demand_percent is not None:
            line += f"; {gpu.unallocated_at_full_demand_percent:.2f} % unallocated at 100 % demand"
        lines.append(line)
    if figures.starts is not None:
        starts = figures.starts
        lines.append(
            f"Planned starts: {starts.planned}, error {duration(round(starts.mean_error_seconds))} on average, "
            f"{duration(round(starts.median_error_seconds))} in the median, {starts.late} late"
        )
    ended = figures.statuses.get("ended", 0)
    if ended < figures.jobs:
        others = ", ".join(f"{number} {status}" for status, number in figures.statuses.items())
        lines.append(f"Jobs: {others}")
    return lines


def _show_tenants(figures: Figures, output: Listing) -> None:
    rows = [
        [
            each.name,
            f"{each.jobs}",
            f"{each.mean_wait_seconds:.0f}s",
            f"{each.share:.1%}",
            f"{each.share_over_entitlement:.2f}",
        ]
        for each in figures.tenants[:_MOST_TENANTS]
    ]
    show_table(_TENANTS, rows, output)
    left = len(figures.tenants) - _MOST_TENANTS
    more = f"{left} more {figures.tenants_by}s; " if left > 0 else ""
    print(f"{more}fairness (Jain's index): {figures.fairness:.3f}")


def show_comparison(comparison: Comparison, output: Listing) -> None:
    """Print a line per figure: the mean of each scenario, and its difference from the first with its interval."""
    first, *others = comparison.scenarios
    columns = [Column("FIGURE"), Column(first.name.upper(), number=True)]
    for each in others:
        columns += [Column(each.name.upper(), number=True), Column(f"{each.name.upper()} - {first.name.upper()}")]
    rows: list[list[str]] = []
    for figure in first.figures:
        row = [figure.replace("_", " "), _with_width(first.figures[figure])]
        for each in others:
            known = each.figures.get(figure)
            difference = each.differences.get(figure)
            row.append("-" if known is None else _with_width(known))
            row.append("-" if difference is None else _difference(difference))
        rows.append(row)
    show_table(columns, rows, output)
    if output.is_table:
        seeds = plural(len(comparison.seeds), "seed")
        print(f"Means over {seeds} ± 95 % confidence; * marks differences whose interval excludes 0")


def _with_width(interval: Interval) -> str:
    return _number(interval.mean) + ("" if interval.half_width is None else f" ± {_number(interval.half_width)}")


def _difference(interval: Interval) -> str:
    sign = "+" if interval.mean > 0 else ""
    return f"{sign}{_with_width(interval)}{' *' * interval.is_significant}"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"
