"""`mooring simulate`: a workload trace replayed through the scheduler, without a server."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import SERVER
from mooring.cli.rendering.output import TABLE, Column, Listing, show_document, show_table
from mooring.model.errors import InvalidInput
from mooring.model.policy.pools import Backfill, BackfillOrder, HeadOfLine, PoolPolicy

if TYPE_CHECKING:
    from mooring.simulation.engine import JobOutcome
    from mooring.simulation.jobs import Job

app = App()

_MOST_LINE_CHARACTERS = 1 << 20

_COLUMNS = (
    Column("JOBS", number=True),
    Column("NEVER STARTED", number=True),
    Column("MEAN WAIT", number=True),
    Column("MEDIAN WAIT", number=True),
    Column("P95 WAIT", number=True),
    Column("BOUNDED SLOWDOWN", number=True),
    Column("CPU UTILISATION", number=True),
)


@app.command(rich_help_panel=SERVER)
@with_groups
def simulate(
    trace: Annotated[
        Path, typer.Option(metavar="FILE", help="Job log: Standard Workload Format, or `sacct --parsable2`; also .gz.")
    ],
    cpu: Annotated[int, typer.Option(metavar="N", min=1, max=1_000_000, help="Cores of each node.")],
    nodes: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="Number of nodes (default 1).")] = 1,
    sequencer: Annotated[
        str, typer.Option(metavar="NAME", help="Order within a priority, as of a pool (default fifo).")
    ] = "fifo",
    head_of_line: Annotated[
        HeadOfLine, typer.Option(help="Effect of unschedulable work on the work behind it (default backfill).")
    ] = HeadOfLine.BACKFILL,
    backfill_order: Annotated[
        BackfillOrder, typer.Option(help="Order in which work is backfilled (default queue).")
    ] = BackfillOrder.QUEUE,
    backfill_depth: Annotated[
        int, typer.Option(metavar="N", min=1, max=1 << 30, help="Workloads with a planned start (default 1).")
    ] = 1,
    jobs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CSV file to write with the wait of each job.")
    ] = None,
    output: Listing = TABLE,
) -> None:
    """Replay a job log through the scheduler with a virtual clock, and show waits, slowdown and utilisation."""
    from mooring.model.nodes.node import Node
    from mooring.simulation.engine import simulate as run
    from mooring.simulation.metrics import figures_of

    machines = [Node(name=f"node-{number}", allocatable={"cpu": cpu * 1000}) for number in range(nodes)]
    policy = PoolPolicy(
        "balanced",
        sequencer=sequencer,
        head_of_line=head_of_line,
        backfill=Backfill(depth=backfill_depth, order=backfill_order),
    )
    outcomes = run(machines, _read(trace, gangs=nodes > 1), policy)
    if jobs is not None:
        _write_jobs(jobs, outcomes)
    figures = figures_of(outcomes, machines)
    if output.is_document:
        show_document(figures.as_dict(), output)
        return
    row = [
        f"{figures.jobs}",
        f"{figures.never_started}",
        f"{figures.mean_wait_seconds:.0f}s",
        f"{figures.median_wait_seconds:.0f}s",
        f"{figures.p95_wait_seconds:.0f}s",
        f"{figures.mean_bounded_slowdown:.2f}",
        f"{figures.utilisation['cpu']:.1%}",
    ]
    show_table(_COLUMNS, [row], output)


def _read(path: Path, *, gangs: bool) -> list[Job]:
    from mooring.simulation.traces.sacct import is_sacct, read_sacct
    from mooring.simulation.traces.swf import read_swf

    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            first = lines.readline(_MOST_LINE_CHARACTERS)
            read = read_sacct if is_sacct(first) else read_swf
            found = read(chain([first], lines), path.name, gangs=gangs)
    except (OSError, EOFError) as problem:
        raise InvalidInput(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from problem
    except UnicodeDecodeError as problem:
        raise InvalidInput(f"{path} is not a text file", code="invalid-trace") from problem
    if not found:
        raise InvalidInput(f"{path} has no job with a run time and processors", code="invalid-trace")
    return found


def _write_jobs(path: Path, outcomes: Sequence[JobOutcome]) -> None:
    try:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["job", "user", "submitted", "start", "end", "wait_seconds", "tasks"])
            for each in outcomes:
                job, start = each.job, each.start
                wait = None if start is None else start - job.submitted
                writer.writerow([job.name, job.user, job.submitted, start, each.end, wait, job.tasks])
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}") from problem
