"""`mooring scaling` and `mooring pool template`: pools that grow and shrink."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.commands.pools import PoolArgument, pool_app
from mooring.cli.options import (
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
from mooring.cli.output import Cell, Column, Format, Styled, show_json, show_line, show_table
from mooring.cli.words import NOTHING, age, amounts, duration, shortened, status_style
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.scaling import ScaleRequestView, TemplateDevices, TemplateView

app = typer.Typer()
template_app = typer.Typer(help="The kinds of nodes that a pool can be given more of.", no_args_is_help=True)
pool_app.add_typer(template_app, name="template")

_TEMPLATE_COLUMNS = (
    Column("NAME"),
    Column("RESOURCES"),
    Column("COST", number=True),
    Column("BOOT", number=True),
    Column("LEAST", number=True),
    Column("MOST", number=True),
    Column("REGION"),
    Column("LICENCE"),
    Column("MACHINE IMAGE"),
    Column("ARCH", wide=True),
    Column("RUNTIMES", wide=True),
)
_REQUEST_COLUMNS = (
    Column("REQUEST"),
    Column("POOL"),
    Column("TEMPLATE"),
    Column("STATUS"),
    Column("JOINED", number=True),
    Column("AGE", number=True),
    Column("ATTEMPTS", number=True),
    Column("ERROR"),
)
_UNMET_COLUMNS = (Column("NO NODES FOR"), Column("POOL"), Column("REASON"))
_ADVICE_COLUMNS = (Column("NODE"), Column("POOL"), Column("ADVICE"), Column("SINCE", number=True))
_ERROR_SHOWN = 60


class Runtime(StrEnum):
    PROCESS = "process"
    CONTAINER = "container"


TemplateArgument = Annotated[str, typer.Argument(metavar="TEMPLATE", help="The template's name.")]


@app.command(rich_help_panel=CLUSTER)
def scaling(
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Only of this pool.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Requests at most.")] = 20,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Show which nodes were asked for, for what none are, and which nodes may go."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.scaling(pool=pool, limit=limit)
    if output is Format.JSON:
        show_json(found)
        return
    show_table(_REQUEST_COLUMNS, [_request_row(each) for each in found.requests], output)
    if found.unmet:
        print()
        unmet = [[each.workload or str(each.workload_id), each.pool, each.message] for each in found.unmet]
        show_table(_UNMET_COLUMNS, unmet, output)
    if found.advice:
        print()
        show_table(_ADVICE_COLUMNS, [[a.node, a.pool, a.step, age(a.since)] for a in found.advice], output)


@template_app.command("list")
def list_templates(name: PoolArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """List the node templates of a pool."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.node_templates(name)
    if output is Format.JSON:
        show_json(found)
    else:
        show_table(_TEMPLATE_COLUMNS, [_template_row(each) for each in found.templates], output)


@template_app.command("set")
def set_template(
    name: PoolArgument,
    template: TemplateArgument,
    cpu: Annotated[str, typer.Option(metavar="CORES", help="Processor cores.")],
    memory: Annotated[str, typer.Option(metavar="BYTES", help="Main memory, such as 64Gi.")],
    gpu: GpuOption = None,
    storage: StorageOption = None,
    slot: SlotOption = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device", metavar="SLOT=COUNT[:MODEL[:MEMORY]]", help="What its devices are: gpu=4:A100:80Gi. Again."
        ),
    ] = None,
    cost: Annotated[int | None, typer.Option(min=1, help="Of one node for an hour, in a unit of your own.")] = None,
    boot: Annotated[
        str | None, typer.Option(metavar="TIME", help="From the request until it runs tasks: 20m, unless you say.")
    ] = None,
    least: Annotated[int | None, typer.Option(min=0, help="So many of its nodes stay although they are idle.")] = None,
    most: Annotated[int | None, typer.Option(min=0, help="At most so many of its nodes.")] = None,
    region: RegionOption = None,
    arch: Annotated[str | None, typer.Option(metavar="ARCH", help="Its processor family.")] = None,
    runtime: Annotated[
        list[Runtime] | None, typer.Option("--runtime", help="What its nodes run; else what the pool does. Again.")
    ] = None,
    label: LabelOption = None,
    taint: TaintOption = None,
    licence: Annotated[str | None, typer.Option(metavar="LICENCE", help="The licence of its nodes.")] = None,
    machine_image: Annotated[str | None, typer.Option(metavar="NAME", help="What its nodes are made from.")] = None,
    machine_image_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="The version of that image.")
    ] = None,
    max_tasks: Annotated[int | None, typer.Option(min=1, help="At most so many tasks on a node.")] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Say what nodes a pool can be given, or say it anew. What is not given is the default."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import assignments, build, checked_name, resources, taints
    from mooring.model.durations import parse_duration
    from mooring.wire.scaling import TemplateRequest

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
    if output is Format.JSON:
        show_json(made)
    else:
        show_line(f"{name}/{template}: set")


@template_app.command("remove")
def remove_template(name: PoolArgument, template: TemplateArgument, server: ServerOption = None) -> None:
    """Ask for no more nodes of a template; those that there are stay."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_node_template(name, template)
    show_line(f"{name}/{template}: removed")


def _devices(written: list[str] | None) -> dict[str, list[TemplateDevices]]:
    from mooring.cli.requests import assignments, build
    from mooring.wire.scaling import TemplateDevices

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
        shortened(request.error or "", _ERROR_SHOWN),
    ]
