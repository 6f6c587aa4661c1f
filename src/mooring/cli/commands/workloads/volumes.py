"""`mooring volume` and `mooring upload`: folders of a project that outlive its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import (
    WORK,
    DomainOption,
    OutputOption,
    ServerOption,
)
from mooring.cli.rendering.formatting import NOTHING, instant, rounded
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Format,
    Listing,
    show_document,
    show_fields,
    show_line,
    show_table,
)

if TYPE_CHECKING:
    from mooring.wire.workloads.volumes import VolumeView

app = App()
volume_app = App(help="Manage volumes: folders of a project that outlive its tasks.", no_args_is_help=True)
app.add_typer(volume_app, name="volume", rich_help_panel=WORK)
upload_app = App(help="Manage uploaded folders (`mooring run --upload`).", no_args_is_help=True)
app.add_typer(upload_app, name="upload", rich_help_panel=WORK)

VolumeArgument = Annotated[str, typer.Argument(metavar="VOLUME", help="The volume's name.")]
ProjectOption = Annotated[
    str | None, typer.Option(metavar="PROJECT", help="Project that owns the volume (default: your default project).")
]


@volume_app.command()
def create(
    name: VolumeArgument,
    size: Annotated[str, typer.Option(metavar="SIZE", help="Storage to charge for the volume, such as 10Gi.")],
    pool: Annotated[
        str | None,
        typer.Option(metavar="POOL", help="Pool whose nodes hold the volume (default: a pool that you may use)."),
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Make the volume available on all nodes of the pool.")
    ] = False,
    project: ProjectOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Create a volume. Unless it is shared, it is on the node of the first task that mounts it."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, checked_name
    from mooring.wire.workloads.volumes import NewVolumeRequest

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
@with_groups
def list_volumes(
    project: Annotated[str | None, typer.Option(metavar="PROJECT", help="Only volumes of this project.")] = None,
    domain: DomainOption = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Only volumes on this node.")] = None,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """List the volumes of the projects that you may see, with their nodes and the workloads that mount them."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.volumes(project=project, domain=domain, node=node)
    if output.is_document:
        show_document(found, output)
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
            _nodes(volume),
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
    """Show a volume."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.volume(name, project=project, domain=domain)
    _show(found, output)


@volume_app.command()
def remove(
    name: VolumeArgument, project: ProjectOption = None, domain: DomainOption = None, server: ServerOption = None
) -> None:
    """Remove a volume that no task mounts, and its contents."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_volume(name, project=project, domain=domain)
    show_line(f"{name}: being removed")


@upload_app.command("list")
@with_groups
def list_uploads(
    project: Annotated[
        str | None, typer.Option(metavar="PROJECT", help="Project that owns them (default: your default project).")
    ] = None,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """List the uploaded folders of a project, the last used first."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.uploads(project=project)
    if output.is_document:
        show_document(found, output)
        return
    columns = (
        Column("UPLOAD"),
        Column("FILES", number=True),
        Column("MB", number=True),
        Column("STATUS"),
        Column("USED"),
    )
    rows: list[list[Cell]] = [
        [
            str(each.id),
            str(each.files),
            f"{each.size / 1e6:.1f}",
            "complete" if each.complete else "incomplete",
            instant(each.used_at),
        ]
        for each in found
    ]
    show_table(columns, rows, output)


@upload_app.command("remove")
def remove_upload(
    uploads: Annotated[list[str], typer.Argument(metavar="UPLOAD", help="Ids of uploads.")], server: ServerOption = None
) -> None:
    """Remove uploaded folders that no workload uses."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        for upload in uploads:
            client.remove_upload(upload)
            show_line(f"{upload}: removed")


def _show(volume: VolumeView, output: Format) -> None:
    if output.is_document:
        show_document(volume, output)
        return
    show_fields(
        [
            ("volume", volume.name),
            ("project", f"{volume.project} ({volume.domain})"),
            ("status", volume.status),
            ("size", rounded("storage", volume.size)),
            ("pool", volume.pool),
            ("node", _nodes(volume)),
            ("mounted by", mounted_by(volume)),
            ("made", f"{instant(volume.created_at)} by {volume.created_by}"),
        ]
    )


def mounted_by(volume: VolumeView) -> str:
    """Return `web (ann), train (bob) and 2 that you may not see`."""
    names = ", ".join(f"{use.workload} ({use.user})" for use in volume.uses)
    hidden = volume.mounted_by - len(volume.uses)
    return " and ".join(filter(None, (names, f"{hidden} that you may not see" if hidden > 0 else ""))) or NOTHING


def _nodes(volume: VolumeView) -> str:
    return "all nodes of its pool" if volume.shared else volume.node or NOTHING
