"""`mooring volume`: folders of a project that outlive its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import WORK, DomainOption, OutputOption, ServerOption
from mooring.cli.output import Cell, Column, Format, show_fields, show_json, show_line, show_table
from mooring.cli.words import NOTHING, instant, rounded

if TYPE_CHECKING:
    from mooring.wire.volumes import VolumeView

app = typer.Typer()
volume_app = typer.Typer(help="Volumes: folders of a project that outlive its tasks.", no_args_is_help=True)
app.add_typer(volume_app, name="volume", rich_help_panel=WORK)

VolumeArgument = Annotated[str, typer.Argument(metavar="VOLUME", help="A volume's name.")]
ProjectOption = Annotated[
    str | None, typer.Option(metavar="PROJECT", help="The project that it belongs to; else your own.")
]


@volume_app.command()
def create(
    name: VolumeArgument,
    size: Annotated[str, typer.Option(metavar="SIZE", help="How much storage it counts with: 10Gi.")],
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Whose nodes have it; else one you may use.")] = None,
    shared: Annotated[bool, typer.Option("--shared", help="All nodes of the pool have it, not just one.")] = False,
    project: ProjectOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Make a volume. One that is not shared is on the node of the first task that mounts it."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build, checked_name
    from mooring.wire.volumes import NewVolumeRequest

    request = build(
        NewVolumeRequest,
        name=checked_name(name, what="volume"),
        size=size,
        pool=checked_name(pool, what="pool"),
        project=checked_name(project, what="project"),
        shared=shared,
    )
    with connect(server) as client:
        made = client.create_volume(request)
    _show(made, output)


@volume_app.command("list")
def list_volumes(
    project: Annotated[str | None, typer.Option(metavar="PROJECT", help="Only those of one project.")] = None,
    domain: DomainOption = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Only those on this node.")] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """List the volumes of the projects that you may see: where each is, and who mounts it."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.volumes(project=project, domain=domain, node=node)
    if output is Format.JSON:
        show_json(found)
        return
    columns = (
        Column("VOLUME"),
        Column("PROJECT"),
        Column("STATUS"),
        Column("SIZE", number=True),
        Column("POOL"),
        Column("NODE"),
        Column("MOUNTED BY"),
        Column("SINCE", wide=True),
    )
    rows: list[list[Cell]] = [
        [
            volume.name,
            volume.project,
            volume.status,
            rounded("storage", volume.size),
            volume.pool,
            _place(volume),
            mounted_by(volume),
            instant(volume.created_at),
        ]
        for volume in found
    ]
    show_table(columns, rows, output)


@volume_app.command()
def show(
    name: VolumeArgument,
    project: ProjectOption = None,
    domain: DomainOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Show one volume."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.volume(name, project=project, domain=domain)
    _show(found, output)


@volume_app.command()
def remove(
    name: VolumeArgument, project: ProjectOption = None, domain: DomainOption = None, server: ServerOption = None
) -> None:
    """Remove a volume that nothing mounts, and what is in it."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_volume(name, project=project, domain=domain)
    show_line(f"{name}: on its way out")


def _show(volume: VolumeView, output: Format) -> None:
    if output is Format.JSON:
        show_json(volume)
        return
    show_fields(
        [
            ("volume", volume.name),
            ("project", f"{volume.project} ({volume.domain})"),
            ("status", volume.status),
            ("size", rounded("storage", volume.size)),
            ("pool", volume.pool),
            ("node", _place(volume)),
            ("mounted by", mounted_by(volume)),
            ("made", f"{instant(volume.created_at)} by {volume.created_by}"),
        ]
    )


def mounted_by(volume: VolumeView) -> str:
    """`web (ann), train (bob) and 2 that are not shown to you`."""
    names = ", ".join(f"{use.workload} ({use.user})" for use in volume.uses)
    hidden = volume.mounted_by - len(volume.uses)
    return " and ".join(filter(None, (names, f"{hidden} that are not shown to you" if hidden > 0 else ""))) or NOTHING


def _place(volume: VolumeView) -> str:
    return "all of its pool" if volume.shared else volume.node or NOTHING
