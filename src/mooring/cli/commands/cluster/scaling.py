"""`mooring scaling` and `mooring pool template`: autoscaling of pools."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.commands.cluster.pools import PoolArgument, pool_app
from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import (
    CLUSTER,
    GpuOption,
    LabelOption,
    OutputOption,
    RegionOption,
    ServerOption,
    SlotOption,
    StorageOption,
    TaintOption,
)
from mooring.cli.rendering.formatting import (
    NOTHING,
    age,
    amounts,
    duration,
    shortened,
    status_style,
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
    show_table,
)
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.cluster.scaling import ScaleRequestView, TemplateDevices, TemplateView

app = App()
template_app = App(help="Manage node templates, from which a pool scales up.", no_args_is_help=True)
pool_app.add_typer(template_app, name="template")

_TEMPLATE_COLUMNS = (
    Column("NAME"),
    Column("RESOURCES", cut=True),
    Column("COST", number=True),
    Column("BOOT", number=True),
    Column("LEAST", number=True),
    Column("MOST", number=True),
    Column("REGION"),
    Column("LICENCE"),
    Column("MACHINE IMAGE"),
    Column("ARCH", wide=True),
    Column("RUNTIMES", wide=True, cut=True),
)
_REQUEST_COLUMNS = (
    Column("REQUEST"),
    Column("POOL"),
    Column("TEMPLATE"),
    Column("STATUS"),
    Column("JOINED", number=True),
    Column("AGE", number=True),
    Column("ATTEMPTS", number=True),
    Column("COST/BOUND", number=True, wide=True),
    Column("ERROR", cut=True),
)
_UNMET_COLUMNS = (Column("NO NODES FOR"), Column("POOL"), Column("REASON", cut=True))
_ADVICE_COLUMNS = (Column("NODE"), Column("POOL"), Column("ADVICE"), Column("SINCE", number=True))
_ERROR_SHOWN = 60


class Runtime(StrEnum):
    PROCESS = "process"
    CONTAINER = "container"


TemplateArgument = Annotated[str, typer.Argument(metavar="TEMPLATE", help="The template's name.")]


@app.command(rich_help_panel=CLUSTER)
@with_groups
def scaling(
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Only this pool.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of requests.")] = 20,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Show requested nodes, work that no template fits, and nodes that may be removed."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.scaling(pool=pool, limit=limit)
    if output.is_document:
        show_document(found, output)
        return
    show_table(_REQUEST_COLUMNS, [_request_row(each) for each in found.requests], output)
    if found.unmet and output.is_table:
        print()
        unmet = [[each.workload or str(each.workload_id), each.pool, each.message] for each in found.unmet]
        show_table(_UNMET_COLUMNS, unmet, output)
    if found.advice and output.is_table:
        print()
        show_table(_ADVICE_COLUMNS, [[a.node, a.pool, a.step, age(a.since)] for a in found.advice], output)


@template_app.command("list")
@with_groups
def list_templates(name: PoolArgument, output: Listing = TABLE, server: ServerOption = None) -> None:
    """List the node templates of a pool."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.node_templates(name)
    if output.is_document:
        show_document(found, output)
    else:
        show_table(_TEMPLATE_COLUMNS, [_template_row(each) for each in found.templates], output)


@template_app.command("set")
def set_template(
    name: PoolArgument,
    template: TemplateArgument,
    cpu: Annotated[str, typer.Option(metavar="CORES", help="CPU cores.")],
    memory: Annotated[str, typer.Option(metavar="BYTES", help="Memory, such as 64Gi.")],
    gpu: GpuOption = None,
    storage: StorageOption = None,
    slot: SlotOption = None,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="SLOT=COUNT[:MODEL[:MEMORY]]", help="Devices: gpu=4:A100:80Gi; repeatable."),
    ] = None,
    cost: Annotated[int | None, typer.Option(min=1, help="Price of a node per hour, in any unit.")] = None,
    boot: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time from the request until the node runs tasks (default 20m).")
    ] = None,
    least: Annotated[
        int | None, typer.Option(min=0, help="Minimum number of nodes of this template, even if idle.")
    ] = None,
    most: Annotated[int | None, typer.Option(min=0, help="Maximum number of nodes of this template.")] = None,
    region: RegionOption = None,
    arch: Annotated[str | None, typer.Option(metavar="ARCH", help="CPU architecture.")] = None,
    runtime: Annotated[
        list[Runtime] | None,
        typer.Option("--runtime", help="Runtime of the nodes (default: the pool's runtimes); repeatable."),
    ] = None,
    label: LabelOption = None,
    taint: TaintOption = None,
    licence: Annotated[str | None, typer.Option(metavar="LICENCE", help="Licence of the nodes.")] = None,
    machine_image: Annotated[
        str | None, typer.Option(metavar="NAME", help="Image that the nodes are created from.")
    ] = None,
    machine_image_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Version of the machine image.")
    ] = None,
    max_tasks: Annotated[int | None, typer.Option(min=1, help="Maximum number of tasks on a node.")] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Create or replace a node template of a pool. Options that are not given have their defaults."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import (
        assignments,
        build,
        checked_name,
        resources,
        taints,
    )
    from mooring.model.calendar.durations import parse_duration
    from mooring.wire.cluster.scaling import TemplateRequest

    checked_name(template, what="template name")
    request = build(
        TemplateRequest,
        resources=resources(cpu=cpu, memory=memory, gpu=gpu, storage=storage, slots=slot),
        devices=_devices(device) or None,
        cost=cost,
        boot_seconds=None if boot is None else parse_duration(boot),
        least=least,
        most=most,
        region=region,
        architecture=arch,
        runtimes=None if runtime is None else [each.value for each in runtime],
        labels=assignments(label, option="--label") or None,
        taints=taints(taint) or None,
        licence=licence,
        machine_image=machine_image,
        machine_image_version=machine_image_version,
        max_tasks=max_tasks,
    )
    with connect(server) as client:
        made = client.put_node_template(name, template, request)
    if output.is_document:
        show_document(made, output)
    else:
        show_line(f"{name}/{template}: set")


@template_app.command("remove")
def remove_template(name: PoolArgument, template: TemplateArgument, server: ServerOption = None) -> None:
    """Remove a node template. Its existing nodes are kept."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_node_template(name, template)
    show_line(f"{name}/{template}: removed")


def _devices(written: list[str] | None) -> dict[str, list[TemplateDevices]]:
    from mooring.cli.input.requests import assignments, build
    from mooring.wire.cluster.scaling import TemplateDevices

    found: dict[str, list[TemplateDevices]] = {}
    for text in written or ():
        [(slot, described)] = assignments([text], option="--device").items()
        count, _, further = described.partition(":")
        model, _, memory = further.partition(":")
        if not count.isdecimal():
            raise InvalidInput(f"--device {text[:60]!r}: write SLOT=COUNT[:MODEL[:MEMORY]]")
        devices = build(TemplateDevices, count=int(count), model=model or None, memory=memory or None)
        found.setdefault(slot, []).append(devices)
    return found


def _template_row(template: TemplateView) -> list[Cell]:
    return [
        template.name,
        amounts(template.resources),
        str(template.cost),
        duration(template.boot_seconds),
        str(template.least),
        NOTHING if template.most is None else str(template.most),
        template.region or "",
        template.licence or "",
        " ".join(filter(None, (template.machine_image, template.machine_image_version))),
        template.architecture,
        ",".join(template.runtimes),
    ]


def _request_row(request: ScaleRequestView) -> list[Cell]:
    return [
        str(request.id),
        request.pool,
        request.template,
        Styled(request.status.lower(), status_style(request.status)),
        f"{request.joined}/{request.nodes}",
        age(request.created_at),
        str(request.attempts),
        "" if request.packing is None else f"{request.packing.cost}/{request.packing.bound}",
        shortened(request.error or "", _ERROR_SHOWN),
    ]
