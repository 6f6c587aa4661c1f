"""The answer to a what-if question as tables."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from mooring.cli.rendering.formatting import NOTHING, duration, plural
from mooring.cli.rendering.output import Cell, Column, Listing, show_line, show_table

if TYPE_CHECKING:
    from mooring.wire.cluster.what_if import SizeFound, WaitsView, WhatIfAnswer, WorkloadEffect

_WORKLOADS = (
    Column("WORKLOAD"),
    Column("POOL"),
    Column("NOW"),
    Column("STARTS IN", number=True),
    Column("CHANGED", number=True),
    Column("EFFECT"),
)
_WAITS = (
    Column("CLUSTER"),
    Column("PENDING", number=True),
    Column("STARTED", number=True),
    Column("MEAN WAIT", number=True),
    Column("MEDIAN WAIT", number=True),
    Column("P95 WAIT", number=True),
)
_TRIES = (Column("ADDED NODES", number=True), Column("P95 WAIT", number=True))
_SAME_SECONDS = 30


def show_what_if(answer: WhatIfAnswer, output: Listing) -> None:
    """Print the workloads; on a terminal, also the waits, the search and the assumptions."""
    show_table(_WORKLOADS, [_row(each, answer) for each in answer.workloads], output)
    if not output.is_table:
        return
    if answer.workloads_left_out:
        show_line(f"… and {plural(answer.workloads_left_out, 'workload')} more; see --limit")
    show_line("")
    show_table(_WAITS, [_waits("as it is", answer.without), _waits("changed", answer.changed)], output)
    moved = f"{answer.earlier} start earlier, {answer.later} later, {answer.unchanged} unchanged"
    stopped = f"; {answer.stopped} running stopped" if answer.stopped else ""
    show_line(f"{moved}{stopped}")
    if answer.search is not None:
        show_line("")
        _show_search(answer.search, output)
    show_line("")
    show_line(f"Simulated from {answer.nodes} ready nodes until {answer.until:%Y-%m-%d %H:%M} UTC. Assumptions:")
    for each in answer.assumptions:
        show_line(f"- {each}")


def _row(effect: WorkloadEffect, answer: WhatIfAnswer) -> list[Cell]:
    return [
        effect.name,
        effect.pool,
        "running" if effect.running else "pending",
        _after(effect.start, answer.at),
        _after(effect.changed_start, answer.at),
        _effect(effect),
    ]


def _effect(effect: WorkloadEffect) -> str:
    if effect.cancelled:
        return "cancelled"
    if effect.stopped:
        return "stopped" if effect.changed_start is None else "stopped, starts again"
    before, after = effect.start, effect.changed_start
    if before is None or after is None:
        return "unchanged" if before is after else "starts" if before is None else "does not start"
    seconds = round((after - before).total_seconds())
    if abs(seconds) < _SAME_SECONDS:
        return "unchanged"
    return f"{duration(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"


def _after(time: datetime | None, at: datetime) -> str:
    return NOTHING if time is None else duration(max(round((time - at).total_seconds()), 0))


def _waits(name: str, waits: WaitsView) -> list[Cell]:
    times = (waits.mean_seconds, waits.median_seconds, waits.p95_seconds)
    return [name, str(waits.workloads), str(waits.started), *map(_seconds, times)]


def _seconds(seconds: float | None) -> str:
    return NOTHING if seconds is None else duration(round(seconds))


def _show_search(search: SizeFound, output: Listing) -> None:
    show_table(_TRIES, [[str(each.nodes), _seconds(each.p95_seconds)] for each in search.tries], output)
    if search.nodes is None:
        show_line("No tried number of nodes suffices; see --most")
    else:
        show_line(f"{plural(search.nodes, 'added node')} {'suffices' if search.nodes == 1 else 'suffice'}")
