"""`mooring lab`: workloads with their own booking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.commands.cluster.bookings import decided
from mooring.cli.help import App
from mooring.cli.input.option_groups import ContainerOptions, PlacementOptions, with_groups
from mooring.cli.input.options import (
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
from mooring.cli.rendering.bookings import show_decision
from mooring.cli.rendering.formatting import (
    amounts,
    instant,
    reason_text,
    running_text,
)
from mooring.cli.rendering.output import (
    TABLE,
    Column,
    Format,
    Listing,
    show_document,
    show_fields,
    show_line,
    show_table,
)

if TYPE_CHECKING:
    from mooring.wire.workloads.timeslots import LabView

app = App()
lab_app = App(no_args_is_help=True, help="Manage labs: workloads with reserved capacity in a time window.")
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
    Column("RESOURCES", wide=True, cut=True),
    Column("ID", wide=True),
)
LabArgument = Annotated[str, typer.Argument(metavar="LAB", help="The lab's name, or the id of its booking.")]


@lab_app.command(context_settings={"allow_interspersed_args": False})
@with_groups
def create(
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="Command to start.")] = None,
    *,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name (default: generated).")] = None,
    start: StartOption = None,
    end: EndOption = None,
    for_: ForOption = None,
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", "-r", metavar="N", min=1, help="Number of tasks that start together (default 1)."),
    ] = None,
    container: ContainerOptions,
    placement: PlacementOptions,
    lead: LeadOption = None,
    grace: GraceOption = None,
    timezone: TimezoneOption = None,
    server: ServerOption = None,
) -> None:
    """Book a lab and wait for the decision: its nodes, or alternatives that would fit."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, checked_name
    from mooring.cli.input.windows import window
    from mooring.wire.workloads.containers import ContainerRequest
    from mooring.wire.workloads.timeslots import LabRequest
    from mooring.wire.workloads.workloads import WorkloadRequest

    workload = build(
        WorkloadRequest,
        name=checked_name(name),
        type="interactive",
        replicas=replicas,
        gang=True if replicas and replicas > 1 else None,
        containers=[build(ContainerRequest, **container.fields(command))],
        volumes=container.volumes,
        **placement.fields(),
    )
    request = build(LabRequest, workload=workload, lead=lead, grace=grace, **window(start, end, for_, timezone))
    with connect(server) as client:
        accepted = client.create_lab(request)
        [answer] = decided(client, [accepted.timeslot])
    raise typer.Exit(show_decision(answer, count="--replicas {}"))


@lab_app.command("list")
@with_groups
def list_(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Include those that ended more than an hour ago.")] = False,
    everyone: Annotated[
        bool, typer.Option("--everyone", "-A", help="Include those of all users; for administrators.")
    ] = False,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """List your labs, ordered by start."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.labs(all=all_, everyone=everyone, limit=1000)
    if output.is_document:
        show_document(found, output)
        return
    rows = [
        [
            lab.timeslot.name,
            lab.state,
            instant(lab.timeslot.start),
            instant(lab.timeslot.end),
            lab.timeslot.pool,
            ", ".join(placement.node for placement in lab.timeslot.places),
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
    """Show a lab: its status, nodes and assigned ports."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.lab(lab)
    if output.is_document:
        show_document(found, output)
        return
    slot, workload = found.timeslot, found.workload
    show_fields(
        [
            ("name", slot.name),
            ("id", str(slot.id)),
            ("state", found.state),
            ("booking", f"{slot.status.lower()}, {instant(slot.start)} to {instant(slot.end)}"),
            ("workload", f"{workload.status.lower()}, {running_text(workload.running, workload.replicas)}"),
            ("pool", slot.pool),
            ("nodes", ", ".join(placement.node for placement in slot.places)),
            ("ports", _ports(found)),
            ("resources", amounts(slot.resources)),
            ("user", f"{slot.user} (project {slot.project})"),
            ("reason", reason_text(slot.reason) or reason_text(workload.reason)),
        ]
    )


@lab_app.command()
def cancel(lab: LabArgument, server: ServerOption = None) -> None:
    """Cancel a lab and release its capacity."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.cancel_lab(lab)
    show_line(lab)


def _ports(lab: LabView) -> str:
    """Return `30001, 30002`, or with several tasks `0: 30001; 1: 30001`."""
    each = {index: ", ".join(map(str, ports)) for index, ports in sorted(lab.ports.items())}
    if lab.workload.replicas == 1:
        return next(iter(each.values()), "")
    return "; ".join(f"{index}: {ports}" for index, ports in each.items())
