"""`mooring book`, `mooring bookings` and `mooring maintenance`: capacity reserved for a time window."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from mooring.cli.exits import ExitCode, say
from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import (
    CLUSTER,
    WORK,
    ArchitectureOption,
    CpuOption,
    EndOption,
    ForOption,
    GpuMemoryOption,
    GpuModelOption,
    GpuOption,
    GraceOption,
    LeadOption,
    MemoryOption,
    OutputOption,
    PoolOption,
    PortsOption,
    ProjectOption,
    RegionOption,
    SelectOption,
    ServerOption,
    SlotOption,
    StartOption,
    StorageOption,
    TimezoneOption,
    TolerateOption,
)
from mooring.cli.rendering.bookings import (
    show_booking,
    show_bookings,
    show_decision,
    show_decisions,
)
from mooring.cli.rendering.formatting import instant, plural
from mooring.cli.rendering.output import TABLE, Format, Listing, show_document, show_line
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from uuid import UUID

    from mooring.cli.rendering.progress import Progress
    from mooring.client import Client
    from mooring.wire.workloads.timeslots import TimeslotRequest, TimeslotView

app = App()
bookings_app = App(invoke_without_command=True)
app.add_typer(bookings_app, name="bookings", rich_help_panel=WORK)

_PAGE = 1000
_MAX_TRIES = 20
"""Attempts of `--earliest`, since other bookings may take each free window first."""
_NO_RESOURCES = "no resources are given; use --cpu, --memory, --gpu, --storage or --slot for each task"
BookingArgument = Annotated[str, typer.Argument(metavar="BOOKING", help="The booking's name or id.")]
CountOption = Annotated[int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Number of tasks.")]


@app.command(rich_help_panel=WORK)
@with_groups
def book(
    start: StartOption = None,
    end: EndOption = None,
    for_: ForOption = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name (default: generated).")] = None,
    purpose: Annotated[str | None, typer.Option(metavar="TEXT", help="Description, shown in lists.")] = None,
    count: CountOption = None,
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    gpu: GpuOption = None,
    gpu_model: GpuModelOption = None,
    gpu_memory: GpuMemoryOption = None,
    storage: StorageOption = None,
    slot: SlotOption = None,
    pool: PoolOption = None,
    project: ProjectOption = None,
    region: RegionOption = None,
    arch: ArchitectureOption = None,
    select: SelectOption = None,
    tolerate: TolerateOption = None,
    ports: PortsOption = 0,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="USER", help="User who may use the booking as well; repeatable."),
    ] = None,
    projects_with_access: Annotated[
        list[str] | None,
        typer.Option("--for-project", metavar="PROJECT", help="Project whose members may use the booking; repeatable."),
    ] = None,
    lead: LeadOption = None,
    grace: GraceOption = None,
    release_after: Annotated[
        str | None, typer.Option(metavar="TIME", help="Idle time after which the booking is released: 15m.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Recurrence rule of RFC 5545: 'FREQ=WEEKLY;BYDAY=MO;COUNT=10'."),
    ] = None,
    except_: Annotated[
        list[str] | None,
        typer.Option("--except", metavar="DATE", help="Date that the series skips: 2026-12-25; repeatable."),
    ] = None,
    timezone: TimezoneOption = None,
    earliest: Annotated[
        bool, typer.Option("--earliest", help="Book the earliest free window, up to 30 days after the start.")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Print the id and do not wait for the decision.")] = False,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Reserve capacity for a time window and wait for the decision: nodes, or alternatives that would fit."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import (
        build,
        checked_name,
        placement,
        resources,
    )
    from mooring.cli.input.windows import local_zone, window
    from mooring.wire.workloads.timeslots import TimeslotRequest

    wanted = resources(cpu=cpu, memory=memory, gpu=gpu, storage=storage, slots=slot)
    if not wanted:
        raise InvalidInput(_NO_RESOURCES)
    if earliest and (every or no_wait):
        raise InvalidInput("--earliest cannot be combined with --every or --no-wait")
    request = build(
        TimeslotRequest,
        **window(start, end, for_, timezone),
        name=checked_name(name),
        purpose=purpose,
        pool=checked_name(pool, what="pool"),
        project=checked_name(project, what="project"),
        resources=wanted,
        count=count,
        architecture=arch,
        region=region,
        placement=placement(select=select, tolerate=tolerate, ports=ports, gpu_models=gpu_model, gpu_memory=gpu_memory),
        users=user,
        projects=projects_with_access,
        lead=lead,
        grace=grace,
        release_after=release_after,
        rule=every,
        exceptions=except_,
        timezone=timezone or (local_zone() if every else None),
    )
    with connect(server) as client:
        if earliest:
            answer = _book_earliest(client, request)
            if output.is_document:
                show_document([answer], output)
            raise typer.Exit(_code([answer]) if output.is_document else show_decision(answer))
        accepted = client.book(request)
        if no_wait:
            for id in accepted.ids:
                show_line(str(id))
            return
        answers = decided(client, accepted.ids, accepted.series)
    _show(answers, output)


@bookings_app.command("import")
@with_groups
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="iCalendar file.")],
    count: CountOption = None,
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    gpu: GpuOption = None,
    storage: StorageOption = None,
    slot: SlotOption = None,
    pool: PoolOption = None,
    project: ProjectOption = None,
    timezone: TimezoneOption = None,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Reserve capacity for every event of a calendar (.ics), including series with their exceptions.

    An event that was already imported in the same version is not booked again.
    """
    from mooring.cli.connection import connect
    from mooring.cli.input.ical import events_in
    from mooring.cli.input.requests import build, checked_name, resources
    from mooring.cli.input.windows import local_zone
    from mooring.model.calendar.recurrence import zone
    from mooring.wire.workloads.timeslots import TimeslotRequest

    wanted = resources(cpu=cpu, memory=memory, gpu=gpu, storage=storage, slots=slot)
    if not wanted:
        raise InvalidInput(_NO_RESOURCES)
    common = {
        "resources": wanted,
        "count": count,
        "pool": checked_name(pool, what="pool"),
        "project": checked_name(project, what="project"),
    }
    found = events_in(file, zone(timezone or local_zone()))
    requests = [(build(TimeslotRequest, **common, **event.fields), event.key) for event in found]
    answers: list[TimeslotView] = []
    with connect(server) as client:
        accepted = [client.book(request, key=key) for request, key in requests]
        for each in accepted:
            answers += decided(client, each.ids, each.series)
    _show(answers, output)


@bookings_app.callback()
@with_groups
def bookings(ctx: typer.Context, output: Listing = TABLE, server: ServerOption = None) -> None:
    """List, show, change, cancel and export bookings."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_, output=output.output, columns=output.columns, server=server)


@bookings_app.command("list")
@with_groups
def list_(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Include those that ended more than an hour ago.")] = False,
    everyone: Annotated[
        bool, typer.Option("--everyone", "-A", help="Include those of all users; for administrators.")
    ] = False,
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only those with this status.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only those that end after this time.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only those that begin before this time.")] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Only those of this pool.")] = None,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """List your bookings, those that you may use, and maintenance windows, ordered by start."""
    from mooring.cli.connection import connect
    from mooring.cli.input.windows import moment_in

    found: list[TimeslotView] = []
    with connect(server) as client:
        while True:
            page = client.timeslots(
                since=None if from_ is None else moment_in(from_, None),
                until=None if until is None else moment_in(until, None),
                status=status.upper().replace(" ", "_") if status else None,
                pool=pool,
                all=all_,
                everyone=everyone,
                limit=_PAGE,
                offset=len(found),
            )
            found += page.timeslots
            if not page.timeslots or len(found) >= page.total:
                break
    show_bookings(found, output)


@bookings_app.command()
def show(booking: BookingArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show a booking: its window, nodes, users, and why it was rejected."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        show_booking(client.timeslot(booking), output)


@bookings_app.command()
def cancel(
    bookings: Annotated[list[str], typer.Argument(metavar="BOOKING", help="Names or ids of bookings.")],
    series: Annotated[
        bool, typer.Option("--series", help="Cancel all bookings of the series that have not ended.")
    ] = False,
    server: ServerOption = None,
) -> None:
    """Cancel bookings. Work that runs in them is stopped."""
    from mooring.cli.connection import connect
    from mooring.cli.exits import report
    from mooring.model.errors import MooringError

    worst = ExitCode.OK
    with connect(server) as client:
        for booking in bookings:
            try:
                gone = client.cancel_timeslot(booking, series=series).cancelled
            except MooringError as error:
                worst = max(worst, report(error))
            else:
                show_line(booking if not series else f"{booking}: {plural(len(gone), 'booking')} cancelled")
    raise typer.Exit(worst)


@bookings_app.command()
def change(
    booking: BookingArgument,
    start: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="New start: 14:00, 2026-11-20T14:00, or +2h from now (default: unchanged)."),
    ] = None,
    end: EndOption = None,
    for_: ForOption = None,
    count: CountOption = None,
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    gpu: GpuOption = None,
    storage: StorageOption = None,
    slot: SlotOption = None,
    timezone: TimezoneOption = None,
    server: ServerOption = None,
) -> None:
    """Change a booking's window or size. The booking is unchanged until the change is confirmed.

    An earlier end takes effect at once. After its start, only a booking's end can be changed; a later end needs free
    capacity.
    """
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, resources
    from mooring.cli.input.windows import window
    from mooring.wire.workloads.timeslots import TimeslotChange

    with connect(server) as client:
        change = build(
            TimeslotChange,
            **window(start, end, for_, timezone, before=client.timeslot(booking).start),
            count=count,
            resources=resources(cpu=cpu, memory=memory, gpu=gpu, storage=storage, slots=slot) or None,
        )
        changed = client.change_timeslot(booking, change)
        [answer] = decided(client, [changed.id])
    code = show_decision(answer)
    if code and answer.replaces is not None:
        say("the booking is unchanged")
    raise typer.Exit(code)


@bookings_app.command()
def export(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="File to write (default: standard output).")
    ] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Only those of this pool.")] = None,
    server: ServerOption = None,
) -> None:
    """Export your bookings as a calendar (.ics)."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        calendar = client.calendar(pool=pool)
    if file is None:
        sys.stdout.write(calendar)
    else:
        Path(file).write_text(calendar, newline="")


@app.command(rich_help_panel=CLUSTER)
def maintenance(
    nodes: Annotated[list[str], typer.Argument(metavar="NODES", help="Names of nodes.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Reason, shown to all users.")],
    start: StartOption = None,
    end: EndOption = None,
    for_: ForOption = None,
    timezone: TimezoneOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Reserve nodes for maintenance: no work starts there that would overlap the window. For administrators.

    `mooring bookings cancel` releases them.
    """
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, checked_name
    from mooring.cli.input.windows import window
    from mooring.wire.workloads.timeslots import MaintenanceRequest

    names = [checked_name(node, what="node") for node in nodes]
    request = build(MaintenanceRequest, nodes=names, reason=reason, **window(start, end, for_, timezone))
    with connect(server) as client:
        made = client.create_maintenance(request)
    if output.is_document:
        show_document(made, output)
        return
    for taken in made:
        there = ", ".join(placement.node for placement in taken.places)
        show_line(f"{taken.name}: {there} from {instant(taken.start)} to {instant(taken.end)}")


def decided(client: Client, ids: Sequence[UUID], series: UUID | None = None) -> list[TimeslotView]:
    """Wait until all bookings are decided. A series is decided in order, so its last booking is waited for."""
    from mooring.cli.rendering.progress import Progress

    with Progress() as progress:
        if series is None:
            return [_answer(client, str(id), progress) for id in ids]
        _answer(client, str(max(ids)), progress)
        found = {slot.id: slot for slot in client.timeslots(series=series, all=True, limit=_PAGE).timeslots}
        return [
            slot if (slot := found.get(id)) and slot.status != "REQUESTED" else _answer(client, str(id), progress)
            for id in ids
        ]


def _book_earliest(client: Client, request: TimeslotRequest) -> TimeslotView:
    """Book the requested window or, while it is rejected, the next start that the server offers."""
    for _ in range(_MAX_TRIES):
        [answer] = decided(client, client.book(request).ids)
        alternatives = ((answer.reason or {}).get("details") or {}).get("alternatives") or {}
        if answer.status != "REFUSED" or not alternatives.get("start"):
            return answer
        start = datetime.fromisoformat(alternatives["start"])
        request = request.model_copy(update={"start": start, "end": start + (answer.end - answer.start)})
        request = request.model_copy(update={"duration": None})
        say(f"no capacity at that time; trying {instant(start)}")
    return answer


def _show(answers: Sequence[TimeslotView], output: Listing) -> NoReturn:
    if output.is_document:
        show_document(answers, output)
        code = _code(answers)
    else:
        code = show_decision(answers[0]) if len(answers) == 1 and output.is_table else show_decisions(answers, output)
    raise typer.Exit(code)


def _answer(client: Client, ref: str, progress: Progress) -> TimeslotView:
    from mooring.cli.interaction.waiting import through_outages

    while True:
        found = through_outages(lambda: client.wait_for_timeslot(ref), progress)
        if found.status != "REQUESTED":
            return found
        progress.show(f"{found.name}: waiting for the scheduler's decision")


def _code(answers: Sequence[TimeslotView]) -> ExitCode:
    return ExitCode.FAILURE if any(slot.status == "REFUSED" for slot in answers) else ExitCode.OK
