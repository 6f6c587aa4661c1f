"""`mooring lab`: a workload with a timeslot of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.booking_words import tell_answer
from mooring.cli.commands.bookings import decided
from mooring.cli.option_groups import ContainerOptions, PlaceOptions, with_groups
from mooring.cli.options import (
    WORK,
    EndOption,
    ForOption,
    GraceOption,
    LeadOption,
    OutputOption,
    ServerOption,
    StartOption,
    TimezoneOption,
)
from mooring.cli.output import Column, Format, show_fields, show_json, show_line, show_table
from mooring.cli.words import amounts, instant, reason_text, running_text

if TYPE_CHECKING:
    from mooring.wire.timeslots import LabView

app = typer.Typer()
lab_app = typer.Typer(no_args_is_help=True, help="Labs: work in a window of time, with the room for it.")
app.add_typer(lab_app, name="lab", rich_help_panel=WORK)

_COLUMNS = (
    Column("NAME"),
    Column("STATE"),
    Column("START"),
    Column("END"),
    Column("POOL"),
    Column("NODES"),
    Column("PORTS"),
    Column("USER", wide=True),
    Column("RESOURCES", wide=True),
    Column("ID", wide=True),
)
LabArgument = Annotated[str, typer.Argument(metavar="LAB", help="A lab's name, or the id of its timeslot.")]


@lab_app.command(context_settings={"allow_interspersed_args": False})
@with_groups
def create(
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="What to start.")] = None,
    *,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What to call it; else one is made up.")] = None,
    start: StartOption = None,
    end: EndOption = None,
    for_: ForOption = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-r", metavar="N", min=1, help="So many tasks that start together.")
    ] = None,
    container: ContainerOptions,
    place: PlaceOptions,
    lead: LeadOption = None,
    grace: GraceOption = None,
    timezone: TimezoneOption = None,
    server: ServerOption = None,
) -> None:
    """Book a lab, and wait for the answer: its place, or what would fit instead."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build, checked_name
    from mooring.cli.windows import window
    from mooring.wire.api import WorkloadRequest
    from mooring.wire.containers import ContainerRequest
    from mooring.wire.timeslots import LabRequest

    workload = build(
        WorkloadRequest,
        name=checked_name(name),
        type="interactive",
        replicas=replicas,
        gang=True if replicas and replicas > 1 else None,
        containers=[build(ContainerRequest, **container.fields(command))],
        volumes=container.volumes,
        **place.fields(),
    )
    request = build(LabRequest, workload=workload, lead=lead, grace=grace, **window(start, end, for_, timezone))
    with connect(server) as client:
        accepted = client.create_lab(request)
        [answer] = decided(client, [accepted.timeslot])
    raise typer.Exit(tell_answer(answer, count="--replicas {}"))


@lab_app.command("list")
def list_(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also those that were over longer ago.")] = False,
    everyone: Annotated[bool, typer.Option("--everyone", "-A", help="Those of all users; for administrators.")] = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """List your labs by their start."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.labs(all=all_, everyone=everyone, limit=1000)
    if output is Format.JSON:
        show_json(found)
        return
    rows = [
        [
            lab.timeslot.name,
            lab.state,
            instant(lab.timeslot.start),
            instant(lab.timeslot.end),
            lab.timeslot.pool,
            ", ".join(place.node for place in lab.timeslot.places),
            _ports(lab),
            lab.timeslot.user,
            amounts(lab.timeslot.resources),
            str(lab.timeslot.id),
        ]
        for lab in found.labs
    ]
    show_table(_COLUMNS, rows, output)
    if len(found.labs) < found.total:
        show_line(f"{len(found.labs):,} of {found.total:,} labs")


@lab_app.command()
def show(lab: LabArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show one lab: how far it is, where, and the ports that it was given."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.lab(lab)
    if output is Format.JSON:
        show_json(found)
        return
    slot, workload = found.timeslot, found.workload
    show_fields(
        [
            ("name", slot.name),
            ("id", str(slot.id)),
            ("state", found.state),
            ("timeslot", f"{slot.status.lower()}, {instant(slot.start)} to {instant(slot.end)}"),
            ("workload", f"{workload.status.lower()}, {running_text(workload.running, workload.replicas)}"),
            ("pool", slot.pool),
            ("nodes", ", ".join(place.node for place in slot.places)),
            ("ports", _ports(found)),
            ("resources", amounts(slot.resources)),
            ("user", f"{slot.user} (project {slot.project})"),
            ("reason", reason_text(slot.reason) or reason_text(workload.reason)),
        ]
    )


@lab_app.command()
def cancel(lab: LabArgument, server: ServerOption = None) -> None:
    """Give a lab up, with its room."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.cancel_lab(lab)
    show_line(lab)


def _ports(lab: LabView) -> str:
    """`30001, 30002`; with several tasks `0: 30001; 1: 30001`."""
    each = {index: ", ".join(map(str, ports)) for index, ports in sorted(lab.ports.items())}
    if lab.workload.replicas == 1:
        return next(iter(each.values()), "")
    return "; ".join(f"{index}: {ports}" for index, ports in each.items())
