"""`mooring book`, `mooring bookings` and `mooring maintenance`: room for a window of time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.booking_words import show_booking, show_bookings, tell_answer, tell_answers
from mooring.cli.exits import ExitCode, say
from mooring.cli.options import (
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
from mooring.cli.output import Format, show_json, show_line
from mooring.cli.words import instant, plural
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from uuid import UUID

    from mooring.cli.progress import Progress
    from mooring.client import Client
    from mooring.wire.timeslots import TimeslotView

app = typer.Typer()
bookings_app = typer.Typer(invoke_without_command=True)
app.add_typer(bookings_app, name="bookings", rich_help_panel=WORK)

_PAGE = 1000
BookingArgument = Annotated[str, typer.Argument(metavar="BOOKING", help="A booking's name or id.")]
CountOption = Annotated[int | None, typer.Option("--count", "-n", metavar="N", min=1, help="So many tasks at once.")]


@app.command(rich_help_panel=WORK)
def book(
    start: StartOption = None,
    end: EndOption = None,
    for_: ForOption = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What to call it; else one is made up.")] = None,
    purpose: Annotated[str | None, typer.Option(metavar="TEXT", help="What it is for.")] = None,
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
        list[str] | None, typer.Option("--user", metavar="USER", help="Who may use it, too; may be repeated.")
    ] = None,
    guest_project: Annotated[
        list[str] | None,
        typer.Option("--for-project", metavar="PROJECT", help="Whose members may use it; may be repeated."),
    ] = None,
    lead: LeadOption = None,
    grace: GraceOption = None,
    release_after: Annotated[
        str | None, typer.Option(metavar="TIME", help="Give it back if nobody has used it for so long: 15m.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Again by a rule of RFC 5545: 'FREQ=WEEKLY;BYDAY=MO;COUNT=10'."),
    ] = None,
    timezone: TimezoneOption = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Print its id and do not wait for the answer.")] = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Book room for a window of time, and wait for the answer: its place, or what would fit instead."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build, checked_name, placement, resources
    from mooring.cli.windows import local_zone, window
    from mooring.wire.timeslots import TimeslotRequest

    wanted = resources(cpu=cpu, memory=memory, gpu=gpu, storage=storage, slots=slot)
    if not wanted:
        raise InvalidInput("say which resources each task has: --cpu, --memory, --gpu, --storage or --slot")
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
        projects=guest_project,
        lead=lead,
        grace=grace,
        release_after=release_after,
        rule=every,
        timezone=timezone or (local_zone() if every else None),
    )
    with connect(server) as client:
        accepted = client.book(request)
        if no_wait:
            for id in accepted.ids:
                show_line(str(id))
            return
        answers = decided(client, accepted.ids)
    if output is Format.JSON:
        show_json(answers)
        code = _code(answers)
    else:
        code = tell_answer(answers[0]) if len(answers) == 1 else tell_answers(answers, output)
    raise typer.Exit(code)


@bookings_app.callback()
def bookings(ctx: typer.Context, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """List, show, change, cancel and export what you have booked."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_, output=output, server=server)


@bookings_app.command("list")
def list_(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also those that were over longer ago.")] = False,
    everyone: Annotated[bool, typer.Option("--everyone", "-A", help="Those of all users; for administrators.")] = False,
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only those with this status.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Only those that end later.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only those that begin earlier.")] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Only those of this pool.")] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """List your bookings, those that you may use, and maintenance, by their start."""
    from mooring.cli.connection import connect
    from mooring.cli.windows import moment_in

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
    """Show one booking: when, where, for whom, and why it was refused."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        show_booking(client.timeslot(booking), output)


@bookings_app.command()
def cancel(
    bookings: Annotated[list[str], typer.Argument(metavar="BOOKING", help="Bookings by name or id.")],
    series: Annotated[bool, typer.Option("--series", help="All of its series that are not over.")] = False,
    server: ServerOption = None,
) -> None:
    """Give bookings back; what runs in them is stopped."""
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
        typer.Option(metavar="TIME", help="14:00, 2026-11-20T14:00, or +2h from now; else as it is, and as long."),
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
    """Change a booking's window or size. The old one holds until the new one is confirmed, and if it is refused.

    An earlier end holds at once; of a booking that has begun nothing else can be changed.
    """
    from mooring.cli.connection import connect
    from mooring.cli.requests import build, resources
    from mooring.cli.windows import window
    from mooring.wire.timeslots import TimeslotChange

    with connect(server) as client:
        change = build(
            TimeslotChange,
            **window(start, end, for_, timezone, before=client.timeslot(booking).start),
            count=count,
            resources=resources(cpu=cpu, memory=memory, gpu=gpu, storage=storage, slots=slot) or None,
        )
        changed = client.change_timeslot(booking, change)
        [answer] = decided(client, [changed.id])
    code = tell_answer(answer)
    if code and answer.replaces is not None:
        say("the booking stays as it was")
    raise typer.Exit(code)


@bookings_app.command()
def export(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="Where to write it; else to the output.")] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Only those of this pool.")] = None,
    server: ServerOption = None,
) -> None:
    """Your bookings as a calendar (.ics)."""
    from pathlib import Path

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
    reason: Annotated[str, typer.Option(metavar="TEXT", help="What is done to them; everybody sees it.")],
    start: StartOption = None,
    end: EndOption = None,
    for_: ForOption = None,
    timezone: TimezoneOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Take nodes for maintenance: nothing starts there that would overlap the window. For administrators.

    `mooring bookings cancel` gives them back.
    """
    from mooring.cli.connection import connect
    from mooring.cli.requests import build, checked_name
    from mooring.cli.windows import window
    from mooring.wire.timeslots import MaintenanceRequest

    names = [checked_name(node, what="node") for node in nodes]
    request = build(MaintenanceRequest, nodes=names, reason=reason, **window(start, end, for_, timezone))
    with connect(server) as client:
        made = client.create_maintenance(request)
    if output is Format.JSON:
        show_json(made)
        return
    for taken in made:
        there = ", ".join(place.node for place in taken.places)
        show_line(f"{taken.name}: {there} from {instant(taken.start)} to {instant(taken.end)}")


def decided(client: Client, ids: Sequence[UUID]) -> list[TimeslotView]:
    """All of them with their answers, for which it waits."""
    from mooring.cli.progress import Progress

    with Progress() as progress:
        return [_answer(client, str(id), progress) for id in ids]


def _answer(client: Client, ref: str, progress: Progress) -> TimeslotView:
    from mooring.cli.waiting import through_outages

    while True:
        found = through_outages(lambda: client.wait_for_timeslot(ref), progress)
        if found.status != "REQUESTED":
            return found
        progress.show(f"{found.name}: waits for the answer of the scheduler")


def _code(answers: Sequence[TimeslotView]) -> ExitCode:
    return ExitCode.FAILURE if any(slot.status == "REFUSED" for slot in answers) else ExitCode.OK
