"""`mooring ps` and `mooring status`: the list of workloads, and the details of one."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import (
    WORK,
    OutputOption,
    ServerOption,
    TasksOption,
    WorkloadArgument,
)
from mooring.cli.rendering.formatting import (
    age,
    amounts,
    command_text,
    health_text,
    pairs,
    plural,
    progress_text,
    reason_text,
    start_text,
    workload_status,
    workload_style,
)
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Format,
    Listing,
    Styled,
    show_document,
    show_line,
    show_live,
    show_table,
)
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.client.views import Workload, WorkloadDocuments, Workloads

    Pages = TypeVar("Pages", Workloads, WorkloadDocuments)

app = App()

_PAGE = 200
_WATCH_SECONDS = 2.0

_COLUMNS = (
    Column("NAME"),
    Column("KIND", drop=4),
    Column("STATUS", drop=0),
    Column("RUNNING", number=True, drop=2),
    Column("POOL", drop=5),
    Column("AGE", number=True, drop=3),
    Column("STARTS", drop=3),
    Column("USER", wide=True),
    Column("PROJECT", wide=True),
    Column("PRIORITY", wide=True, number=True),
    Column("RESOURCES", wide=True, cut=True),
    Column("IMAGE", wide=True),
    Column("COMMAND", wide=True, cut=True),
    Column("LABELS", wide=True, cut=True),
    Column("ID", wide=True),
    Column("REASON", cut=True, limit=60),
)


class Sort(StrEnum):
    AGE = "age"
    NAME = "name"
    STATUS = "status"
    PRIORITY = "priority"
    AGE_REVERSED = "-age"
    NAME_REVERSED = "-name"
    STATUS_REVERSED = "-status"
    PRIORITY_REVERSED = "-priority"


_SORT_FIELDS = {"age": "-created_at", "name": "name", "status": "status", "priority": "-priority"}


@app.command(rich_help_panel=WORK)
@with_groups
def ps(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Include those that ended.")] = False,
    everyone: Annotated[
        bool, typer.Option("--everyone", "-A", help="Include those of all users; for administrators.")
    ] = False,
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only those with this status.")] = None,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="Only workloads of this kind.")] = None,
    selector: Annotated[
        str | None,
        typer.Option("--selector", "-l", metavar="LABELS", help="Only those with these labels: app=web,tier!=db,gpu."),
    ] = None,
    sort: Annotated[
        Sort, typer.Option(help="Sort by age (newest first), name, status or priority (highest first); - reverses.")
    ] = Sort.AGE,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of rows.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every 2 seconds, until Ctrl-C.")] = False,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """List your workloads that have not ended."""
    from mooring.client.operations.operation import given

    # A status is asked for among those that ended recently, too.
    active = not (all_ or status)
    query = given(
        all=all_ or None,
        active=active or None,
        everyone=everyone or None,
        status=status.upper() if status else None,
        kind=kind,
        sort=_sort_field(sort),
    )
    source = Source(server, "/api/workloads", query, limit, selector)
    if watch:
        _watch(source, output, everyone=everyone)
        return
    found = show_workloads(source, output, everyone=everyone)
    if active and found is not None and output.is_table and sys.stdout.isatty():
        _show_hidden(source, found)


@dataclass(frozen=True, slots=True)
class Source:
    """A list of workloads on the server."""

    server: str | None
    path: str
    query: Mapping[str, str]
    limit: int | None = None
    selector: str | None = None

    def fetch(self, kind: type[Pages]) -> Pages:
        """Return up to `limit` workloads that match the selector."""
        from mooring.cli.connection import read
        from mooring.client.quick import decoded

        size = min(self.limit or _PAGE, _PAGE) if self.selector is None else _PAGE
        found: Pages | None = None
        while True:
            got = 0 if found is None else len(found.workloads)
            content = read(self.server, self.path, {**self.query, "limit": str(size), "offset": str(got)})
            page = decoded(kind, content, source=self.path)
            if found is None:
                found = page
            else:
                found.workloads += page.workloads
            enough = self.selector is None and self.limit is not None and len(found.workloads) >= self.limit
            if enough or not page.workloads or len(found.workloads) >= found.total:
                break
        return self._selected(found)

    def _selected(self, found: Pages) -> Pages:
        if self.selector is not None:
            from mooring.model.labels import parse_selector

            selector = parse_selector(self.selector)
            found.workloads[:] = [each for each in found.workloads if selector.matches(_labels(each))]
            found.total = len(found.workloads)
        del found.workloads[self.limit or len(found.workloads) :]
        return found


def show_workloads(source: Source, output: Listing, *, everyone: bool) -> Workloads | None:
    """Print the workloads. Return them unless they were printed as a document."""
    from mooring.client.views import WorkloadDocuments, Workloads

    if source.selector is not None:
        from mooring.model.labels import parse_selector

        parse_selector(source.selector)
    if output.is_document:
        whole = source.fetch(WorkloadDocuments)
        whole.limit = len(whole.workloads)
        show_document(whole, output)
        return None
    found = source.fetch(Workloads)
    show_table(*_table(found.workloads, everyone=everyone), output)
    return found


def _watch(source: Source, output: Listing, *, everyone: bool) -> None:
    from mooring.client.views import Workloads

    if not output.layout.is_table or not sys.stdout.isatty():
        raise InvalidInput("--watch redraws a table, which needs a terminal; `mooring events --follow` is for programs")

    def frames() -> Iterator[tuple[list[Column], list[list[Cell]]]]:
        while True:
            yield _table(source.fetch(Workloads).workloads, everyone=everyone)
            time.sleep(_WATCH_SECONDS)

    with suppress(KeyboardInterrupt):
        show_live(frames(), output)


def _show_hidden(source: Source, found: Workloads) -> None:
    """Print the number of ended workloads, which are not listed."""
    from mooring.client.views import Workloads

    query = {**{name: value for name, value in source.query.items() if name != "active"}, "all": "true"}
    limit = None if source.selector else 1
    every = replace(source, query=query, limit=limit).fetch(Workloads).total
    if (hidden := every - found.total) > 0:
        show_line(Styled(f"{plural(hidden, 'workload')} ended; --all includes them", "dim"))


def _sort_field(sort: Sort) -> str:
    name, reverse = sort.removeprefix("-"), sort.startswith("-")
    field = _SORT_FIELDS[name]
    return field if not reverse else field.removeprefix("-") if field.startswith("-") else f"-{field}"


def _labels(workload: Workload | Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] = workload["labels"] if isinstance(workload, Mapping) else workload.labels
    return labels


def _table(workloads: Sequence[Workload], *, everyone: bool) -> tuple[list[Column], list[list[Cell]]]:
    # Names are unique per user; workloads of others are addressed by id.
    columns = [
        replace(c, wide=False, key=c.title == "ID") if everyone and c.title in ("USER", "ID") else c for c in _COLUMNS
    ]
    if all(workload.start is None for workload in workloads):
        columns = [replace(c, wide=True) if c.title == "STARTS" else c for c in columns]
    return columns, [_row(workload) for workload in workloads]


@app.command(rich_help_panel=WORK)
def status(
    name: WorkloadArgument, tasks: TasksOption = False, output: OutputOption = Format.TABLE, server: ServerOption = None
) -> None:
    """Show a workload: the nodes of its tasks, and why it is pending or failed."""
    from mooring.cli.connection import connect
    from mooring.cli.rendering.workload_details import show_workload

    with connect(server) as client:
        show_workload(client, client.workload(name), output, all_tasks=tasks)


def _row(workload: Workload) -> list[Cell]:
    return [
        workload.name,
        workload.kind,
        Styled(workload_status(workload), workload_style(workload)),
        progress_text(
            workload.counts,
            workload.running,
            workload.replicas,
            workload.ready if workload.kind == "deployment" else None,
        ),
        workload.pool,
        age(workload.created_at),
        start_text(workload.start),
        workload.user,
        workload.project,
        str(workload.priority),
        amounts(workload.resources),
        workload.image or "",
        command_text(workload.command),
        pairs(workload.labels),
        workload.id,
        health_text(workload) or reason_text(workload.reason),
    ]
