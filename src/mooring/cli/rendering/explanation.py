"""Rendering of `mooring explain`: reasons that exclude nodes, scores of the best nodes, placement of the tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from mooring.cli.exits import ExitCode
from mooring.cli.rendering.formatting import (
    devices,
    instant,
    no_plan,
    plural,
    reason_text,
    slip_text,
    status_style,
    status_text,
)
from mooring.cli.rendering.output import (
    Cell,
    Column,
    Format,
    Styled,
    show_document,
    show_fields,
    show_line,
    show_table,
)

if TYPE_CHECKING:
    from mooring.wire.workloads.explanation import Explanation, ScoredNode, TaskPlacement

_OUTCOME_STYLES = {"placed": "green", "waiting": "yellow", "impossible": "red", "error": "red"}
_TASKS_SHOWN = 20


def show_dry_run(explanation: Explanation, output: Format) -> ExitCode:
    """Print the result of a dry run, and return the exit code: that of a request which would not start at once."""
    show_explanation(explanation, output)
    return ExitCode.OK if explanation.outcome == "placed" else ExitCode.WOULD_WAIT


def show_explanation(explanation: Explanation, output: Format) -> None:
    """Print an explanation. A dry run has no id."""
    if output.is_document:
        show_document(explanation, output)
        return
    show_fields(
        [
            ("name", explanation.name),
            ("status", _status(explanation)),
            ("pool", explanation.pool),
            ("candidates", _candidates(explanation)),
            ("queue", "" if explanation.ahead is None else f"{explanation.ahead:,} ahead of it"),
            ("start", _start(explanation)),
            ("reason", reason_text(explanation.reason)),
            ("scheduling", Styled(explanation.scheduling, "red") if explanation.scheduling else ""),
        ]
    )
    if explanation.removed:
        _under("Excluded nodes")
        show_table(_REMOVED, [[f"{r.nodes:,}", r.by, r.words, _RESOLUTIONS[r.cure]] for r in explanation.removed])
    if explanation.nearest_misses and (not explanation.candidates or output.layout is Format.WIDE):
        _under("Nearest misses")
        # Each row is one node, so a count is not shown.
        rows = [
            [miss.node, "; ".join(r.words.removeprefix("1 ") for r in miss.rejections)]
            for miss in explanation.nearest_misses
        ]
        show_table((Column("NODE"), Column("WHY NOT", cut=True)), rows)
    scored = _compared(explanation, output)
    if scored:
        _under("Scores, 0 to 100")
        names = list(explanation.weights)
        columns = (
            Column("NODE"),
            Column(""),
            Column("TOTAL", number=True),
            *(Column(f"{name.upper()} x{explanation.weights[name]}", number=True) for name in names),
        )
        show_table(columns, [_scores(node, role, names) for role, node in scored])
    if explanation.tasks:
        _under("Tasks would go to" if explanation.id is None and explanation.outcome == "placed" else "Tasks")
        shown = explanation.tasks if output.layout is Format.WIDE else explanation.tasks[:_TASKS_SHOWN]
        # Empty columns are left out.
        given = {"PORTS": any(task.ports for task in shown), "DEVICES": any(task.devices for task in shown)}
        filled = [replace(column, wide=not given.get(column.title, True)) for column in _TASKS]
        show_table(filled, [_task(task, explanation) for task in shown])
        if len(shown) < len(explanation.tasks):
            show_line(f"and {plural(len(explanation.tasks) - len(shown), 'more task')} (-o wide shows all)")


_REMOVED = (Column("NODES", number=True), Column("FILTER"), Column("WHY", cut=True), Column("RESOLVED BY"))
_TASKS = (
    Column("TASK", number=True),
    Column("STATUS"),
    Column("NODE"),
    Column("SCORE", number=True),
    Column("PORTS"),
    Column("DEVICES"),
)
_RESOLUTIONS = {"release": "freed capacity", "change": "a change", "never": "nothing"}


def _status(explanation: Explanation) -> Cell:
    style = _OUTCOME_STYLES.get(explanation.outcome, "")
    if explanation.id is None:
        outcomes = {"placed": "would be placed", "waiting": "would be pending", "impossible": "would fail"}
        what = outcomes.get(explanation.outcome, explanation.outcome)
        return Styled(f"{what} (dry run, simulated nodes)" if explanation.simulated else f"{what} (dry run)", style)
    return Styled(status_text(explanation.status or explanation.outcome, simulated=explanation.simulated), style)


def _start(explanation: Explanation) -> str:
    if explanation.unless is not None:
        return f"cannot start unless {explanation.unless}"
    parts = [
        f"not before {instant(explanation.not_before)}" if explanation.not_before else "",
        f"planned for {instant(explanation.planned_start)} at the latest" if explanation.planned_start else "",
    ]
    if explanation.estimated_start is not None and explanation.planned_start is None:
        if explanation.estimate_is_stored:
            why = "an earlier estimate: too many workloads are ahead to update it"
        else:
            why = "if all work runs to its time limit"
        parts.append(f"about {instant(explanation.estimated_start)}, {why}")
    expected = explanation.planned_start or explanation.estimated_start
    parts.append(slip_text(explanation.first_start, explanation.start_moves, expected))
    if explanation.planned_start is None:
        parts.append(no_plan(explanation.reason))
    return "; ".join(filter(None, parts))


def _candidates(explanation: Explanation) -> str:
    if explanation.outcome == "ended":
        return ""
    nodes = "1 node" if explanation.nodes == 1 else f"{explanation.nodes:,} nodes"
    fits_now = explanation.status == "PENDING" and explanation.outcome == "placed"
    more = "; there is capacity, so it is placed in the next pass" if fits_now else ""
    return f"{explanation.candidates:,} of {nodes} could run one of its tasks{more}"


def _compared(explanation: Explanation, output: Format) -> list[tuple[str, ScoredNode]]:
    """Return the nodes whose scores are shown, each with its outcome."""
    found: list[tuple[str, ScoredNode]] = []
    if explanation.winner is not None:
        found.append(("its own" if explanation.placed_on else "best", explanation.winner))
    own = explanation.placed_on[1:] if output.layout is Format.WIDE else ()
    found.extend(("its own", node) for node in own)
    if explanation.runner_up is not None:
        found.append(("runner-up", explanation.runner_up))
    return found


def _task(task: TaskPlacement, explanation: Explanation) -> list[Cell]:
    return [
        str(task.index),
        Styled(status_text(task.status, simulated=explanation.simulated), status_style(task.status)),
        task.node or "",
        "" if task.score is None else _points(task.score),
        ", ".join(map(str, task.ports)),
        devices(task.devices),
    ]


def _scores(node: ScoredNode, role: str, names: Iterable[str]) -> list[Cell]:
    return [node.node, role, _points(node.score), *(_points(node.scores.get(name, 0.0)) for name in names)]


def _points(score: float) -> str:
    return f"{score * 100:.1f}"


def _under(title: str) -> None:
    print()
    show_line(Styled(title, "bold"))
