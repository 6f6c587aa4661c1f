"""`mooring defrag`: plan and apply moves of running tasks that make capacity usable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import CLUSTER, ServerOption
from mooring.cli.rendering.formatting import NOTHING, amounts, instant, plural
from mooring.cli.rendering.output import TABLE, Cell, Column, Listing, show_document, show_line, show_table
from mooring.model.policy.defragmentation import MAX_MOVES, Gain

if TYPE_CHECKING:
    from mooring.client.synchronous import Client
    from mooring.model.errors import Conflict
    from mooring.wire.cluster.defragmentation import DefragmentationPlan, MoveView, StepView
    from mooring.wire.workloads.tasks import TaskView

app = App()
defrag_app = App()
app.add_typer(defrag_app, name="defrag", rich_help_panel=CLUSTER)

_COLUMNS = (
    Column("MOVE", number=True),
    Column("WORKLOAD"),
    Column("FROM"),
    Column("TO"),
    Column("RESOURCES", cut=True),
    Column("LOSES", number=True),
    Column("BUYS", cut=True),
)
_AUTOMATIC_COLUMNS = (
    Column("PLAN"),
    Column("MOVE", number=True),
    Column("WORKLOAD"),
    Column("FROM"),
    Column("TO"),
    Column("STATUS"),
    Column("AT"),
    Column("REASON", cut=True),
)
_POLL_SECONDS = 0.2
_PAGE = 500
_UNITS = {
    Gain.GPU: "GPUs start work",
    Gain.LARGEST_GANG: "more tasks of the largest gang fit",
    Gain.DRAIN_NODES: "nodes become empty",
}


@defrag_app.callback()
def defrag() -> None:
    """Plan and apply moves of running tasks that make capacity usable."""


@defrag_app.command("plan")
@with_groups
def plan(
    pool: Annotated[str, typer.Option(metavar="POOL", help="Pool whose tasks move.")] = "default",
    max_moves: Annotated[int, typer.Option(metavar="N", min=1, max=MAX_MOVES, help="Maximum number of moves.")] = 10,
    gain: Annotated[Gain, typer.Option(help="Purpose of the moves.")] = Gain.GPU,
    max_lost: Annotated[
        str, typer.Option(metavar="TIME", help="Longest run time of a batch task that may restart on another node.")
    ] = "1h",
    interactive: Annotated[bool, typer.Option("--interactive", help="Move interactive sessions too.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Execute the plan move by move.")] = False,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Longest wait for the replacement of a moved task.")
    ] = "10m",
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Plan moves of running tasks, with the gain of each step; with --apply, execute them.

    Batch tasks that are preemptible and have run for less than --max-lost may move, and replicas of deployments within
    their disruption budget. Work in a booked window, gangs and tasks in a rolling update stay.
    """
    from mooring.cli.connection import connect
    from mooring.model.calendar.durations import parse_duration
    from mooring.wire.cluster.defragmentation import DefragmentationRequest

    request = DefragmentationRequest(
        gain=gain.value, max_moves=max_moves, max_lost_seconds=parse_duration(max_lost), interactive=interactive
    )
    seconds = parse_duration(timeout)
    with connect(server) as client:
        found = client.plan_defragmentation(pool, request)
        if output.is_document:
            show_document(found, output)
        else:
            _show(found, output)
        if apply:
            _apply(client, found, seconds, quiet=not output.is_table)


@defrag_app.command("list")
@with_groups
def automatic(
    pool: Annotated[str, typer.Option(metavar="POOL", help="Pool whose tasks moved.")] = "default",
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """List the moves of the newest plans of automatic defragmentation."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.automatic_plans(pool)
    if output.is_document:
        show_document(found, output)
        return
    rows: list[list[Cell]] = [
        [
            plan.id.hex[-8:],
            str(move.number),
            move.workload,
            move.source,
            move.target,
            move.status.lower().replace("_", " "),
            instant(move.evicted_at),
            move.reason or (plan.reason if move.status == "LEFT_OUT" else None) or NOTHING,
        ]
        for plan in found.plans
        for move in plan.moves
    ]
    show_table(_AUTOMATIC_COLUMNS, rows, output)


def _show(found: DefragmentationPlan, output: Listing) -> None:
    rows: list[list[Cell]] = []
    for step in found.steps:
        for at, move in enumerate(step.moves):
            buys = _bought(step) if at == len(step.moves) - 1 else ""
            resources = amounts(move.resources)
            lost = f"{move.lost_seconds}s"
            rows.append([str(len(rows) + 1), move.workload, move.source, move.target, resources, lost, buys])
    show_table(_COLUMNS, rows, output)
    if not output.is_table:
        return
    show_line("")
    show_line(f"{plural(found.moves, 'move')}: {found.gained:g} {_UNITS[Gain(found.gain)]}")
    if found.gang:
        show_line(f"Tasks of {amounts(found.gang)} that fit without moves: {found.gang_before}")
    show_line(f"{found.movable} of {plural(found.placed, 'task')} may move")
    if found.bound is None:
        show_line(f"Bound: {found.bound_reason}")
    else:
        loose = f"; {found.bound_reason}" if found.bound_reason else ""
        gap = max(found.bound - found.gained, 0)
        show_line(f"Bound: any number of moves gains at most {found.bound:g} ({gap:g} more){loose}")


def _bought(step: StepView) -> str:
    starts = [f"{start.workload} starts on {start.node}" for start in step.starts]
    return ", ".join([*starts, *(f"{node} is empty" for node in step.emptied)])


def _apply(client: Client, found: DefragmentationPlan, timeout_seconds: float, *, quiet: bool) -> None:
    from mooring.wire.cluster.defragmentation import MoveRequest

    number = 0
    for step in found.steps:
        for move in step.moves:
            number += 1
            index = _task_index(client, move)
            request = MoveRequest(plan=found.id, task_id=move.task_id, source=move.source, target=move.target)
            client.move_task(found.pool, request)
            _wait_for_replacement(client, move, index, timeout_seconds)
            if not quiet:
                show_line(f"Move {number} of {found.moves}: {move.workload} runs on {move.target}")


def _task_index(client: Client, move: MoveView) -> int:
    for task in _tasks(client, move):
        if task.id == move.task_id:
            return task.index
    raise _departed(f"task {move.task_id} of {move.workload} has ended")


def _wait_for_replacement(client: Client, move: MoveView, index: int, timeout_seconds: float) -> None:
    """Wait until the replacement runs on the target. Raise Conflict if it does anything else."""
    from time import monotonic, sleep

    until = monotonic() + timeout_seconds
    while True:
        new = next((each for each in _tasks(client, move) if each.index == index and each.id != move.task_id), None)
        if new is not None and new.node is not None and new.node != move.target:
            raise _departed(f"the replacement of {move.workload} is on {new.node} instead of {move.target}")
        if new is not None and new.status == "RUNNING":
            return
        if new is not None and new.status in ("SUCCEEDED", "FAILED", "CANCELLED", "LOST"):
            raise _departed(f"the replacement of {move.workload} is {new.status.lower()}")
        if monotonic() > until:
            state = "has not been created" if new is None else f"is {new.status.lower()}: {new.reason or 'no reason'}"
            raise _departed(f"the replacement of {move.workload} {state} after {timeout_seconds:g} seconds")
        sleep(_POLL_SECONDS)


def _tasks(client: Client, move: MoveView) -> list[TaskView]:
    """Return the current tasks of a workload."""
    found: list[TaskView] = []
    while True:
        page = client.tasks(str(move.workload_id), limit=_PAGE, offset=len(found))
        found += page.tasks
        if len(found) >= page.total or not page.tasks:
            return found


def _departed(message: str) -> Conflict:
    from mooring.model.errors import Conflict

    text = f"the cluster departed from the plan: {message}; the remaining moves are left out"
    return Conflict(text, code="plan-departed")
