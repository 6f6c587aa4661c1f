"""`mooring nodes`, `drain` and `resume`: the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import (
    CLUSTER,
    GpuOption,
    LabelOption,
    NodeArgument,
    NodeImageOption,
    NodeImageVersionOption,
    NodeLicenceOption,
    OutputOption,
    RegionOption,
    ServerOption,
    SlotOption,
    StorageOption,
    TaintOption,
)
from mooring.cli.output import Cell, Column, Format, Styled, show_fields, show_json, show_line, show_table
from mooring.cli.words import age, instant, pairs, plural, rounded, status_style, status_text

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.wire.api import DeviceView, NodeView, TaintView

app = typer.Typer()
nodes_app = typer.Typer(help="List the nodes; add, remove or show one.", invoke_without_command=True)
app.add_typer(nodes_app, name="nodes", rich_help_panel=CLUSTER)
app.add_typer(nodes_app, name="node", hidden=True)

_COLUMNS = (
    Column("NAME"),
    Column("STATUS"),
    Column("POOL"),
    Column("REGION"),
    Column("CPU FREE", number=True),
    Column("MEMORY FREE", number=True),
    Column("GPU FREE", number=True),
    Column("TASKS", number=True),
    Column("SEEN", number=True),
    Column("LOAD", wide=True, number=True),
    Column("ARCH", wide=True),
    Column("RUNTIMES", wide=True),
    Column("LICENCE", wide=True),
    Column("MACHINE IMAGE", wide=True),
    Column("TEMPLATE", wide=True),
    Column("OWNER", wide=True),
    Column("LABELS", wide=True),
    Column("REASON"),
)

_DEVICE_COLUMNS = (Column("MEMORY", number=True), Column("CAPACITY", number=True), Column("FREE", number=True))


@nodes_app.callback()
def nodes(ctx: typer.Context, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """List the nodes; or add, remove or show one."""
    if ctx.invoked_subcommand is not None:
        return
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.nodes()
    if output is Format.JSON:
        show_json(found)
    else:
        show_table(_COLUMNS, [_row(node) for node in found.nodes], output)


@nodes_app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NODE", help="What to call it.")],
    cpu: Annotated[str, typer.Option(metavar="CORES", help="Processor cores.")],
    memory: Annotated[str, typer.Option(metavar="BYTES", help="Main memory, such as 16Gi.")],
    gpu: GpuOption = None,
    storage: StorageOption = None,
    slot: SlotOption = None,
    region: RegionOption = None,
    arch: Annotated[str | None, typer.Option(metavar="ARCH", help="Its processor family.")] = None,
    label: LabelOption = None,
    taint: TaintOption = None,
    max_tasks: Annotated[int | None, typer.Option(min=1, help="At most so many tasks.")] = None,
    licence: NodeLicenceOption = None,
    machine_image: NodeImageOption = None,
    machine_image_version: NodeImageVersionOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Add a simulated node. A real one joins by `mooring agent`; see `mooring token create`."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import assignments, build, checked_name, resources, taints
    from mooring.wire.api import NodeRequest

    request = build(
        NodeRequest,
        name=checked_name(name),
        simulated=True,
        resources=resources(cpu=cpu, memory=memory, gpu=gpu, storage=storage, slots=slot),
        region=region,
        architecture=arch,
        labels=assignments(label, option="--label") or None,
        taints=taints(taint) or None,
        max_tasks=max_tasks,
        licence=licence,
        machine_image=machine_image,
        machine_image_version=machine_image_version,
    )
    with connect(server) as client:
        _show_changed(client.add_node(request), output)


@nodes_app.command()
def remove(
    name: NodeArgument,
    force: Annotated[bool, typer.Option("--force", help="Even while tasks are charged to it.")] = False,
    server: ServerOption = None,
) -> None:
    """Take a node out of the cluster."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_node(name, force=force)
    show_line(f"{name}: removed")


@nodes_app.command()
def show(name: NodeArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show one node with what it offers, what is taken of it, and the volumes there that you may see."""
    from mooring.cli.commands.volumes import mounted_by
    from mooring.cli.connection import connect

    with connect(server) as client:
        node, volumes = client.node(name), client.volumes(node=name)
    if output is Format.JSON:
        show_json(node)
        return
    show_fields(
        [
            ("name", node.name),
            ("id", str(node.id)),
            ("status", _status(node)),
            ("reason", _reason(node)),
            ("pool", node.pool),
            ("region", node.region or ""),
            ("architecture", node.architecture),
            ("runtimes", ", ".join(node.runtimes)),
            ("licence", node.licence or ""),
            ("machine image", _machine_image(node)),
            ("template", node.template or ""),
            ("asked for by", str(node.scale_request_id or "")),
            ("owner", node.owner or ""),
            ("labels", pairs(node.labels)),
            ("taints", ", ".join(_taint(each) for each in node.taints)),
            ("enforced", _limits(node, advice=False)),
            ("advice only", _limits(node, advice=True)),
            ("tasks", str(node.tasks)),
            ("load", _load(node)),
            ("seen", f"{age(node.last_seen_at)} ago" if node.last_seen_at else ""),
        ]
    )
    print()
    titles = ("SLOT", "CAPACITY", "ALLOCATABLE", "HELD", "RESERVED", "USED", "FREE")
    columns = [Column(title, number=title != "SLOT") for title in titles]
    rows = [
        [
            slot,
            *(
                rounded(slot, amount)
                for amount in (view.capacity, view.allocatable, view.held, view.reserved, view.used, view.free)
            ),
        ]
        for slot, view in node.slots.items()
    ]
    show_table(columns, rows)
    devices = [
        [slot, str(d.index), d.model or "", *_of_device(slot, d)] for slot, own in node.devices.items() for d in own
    ]
    if devices:
        print()
        show_table([Column("DEVICE"), Column("INDEX", number=True), Column("MODEL"), *_DEVICE_COLUMNS], devices)
    if volumes:
        print()
        columns = [Column("VOLUME"), Column("PROJECT"), Column("SIZE", number=True), Column("MOUNTED BY")]
        show_table(columns, [[v.name, v.project, rounded("storage", v.size), mounted_by(v)] for v in volumes])


_ADVICE = {"environment": "named in the environment of the task", "none": "counted in placement"}


def _limits(node: NodeView, *, advice: bool) -> str:
    """What keeps tasks to what they asked for, by resource; or which of it they are only told."""
    words = [f"{slot} ({_ADVICE.get(how, how)})" for slot, how in node.enforces.items() if (how in _ADVICE) is advice]
    return ", ".join(words)


def _of_device(slot: str, device: DeviceView) -> list[Cell]:
    from mooring.model.quantity import format_binary
    from mooring.model.slots import slot_type

    kind = slot_type(slot)
    memory = "" if device.memory is None else format_binary(device.memory)
    return [memory, kind.format(device.capacity), kind.format(device.capacity - device.taken)]


@nodes_app.command()
def taint(
    name: NodeArgument,
    taints: Annotated[
        list[str], typer.Argument(metavar="KEY[=VALUE][:EFFECT]...", help="NoSchedule where no effect is named.")
    ],
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Keep away work that does not tolerate it; with NoExecute, what runs there leaves as well."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build
    from mooring.cli.requests import taints as parsed
    from mooring.wire.api import TaintsChange

    with connect(server) as client:
        _show_changed(client.change_taints(name, build(TaintsChange, add=parsed(taints))), output)


@nodes_app.command()
def untaint(
    name: NodeArgument,
    taints: Annotated[
        list[str], typer.Argument(metavar="KEY[:EFFECT]...", help="Of every effect where none is named.")
    ],
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Take taints away from a node."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build
    from mooring.wire.api import TaintRemoval, TaintsChange

    removed = []
    for text in taints:
        key, _, effect = text.partition(":")
        removed.append(build(TaintRemoval, key=key, effect=effect or None))
    with connect(server) as client:
        _show_changed(client.change_taints(name, build(TaintsChange, remove=removed)), output)


@app.command(rich_help_panel=CLUSTER)
def drain(
    name: NodeArgument,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="End what has not left by then: 30m, 2h. Else sessions run on.")
    ] = None,
    reason: Annotated[str | None, typer.Option(metavar="WORDS", help="What people are told.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until nothing is left on it.")] = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Place nothing new on a node and let its tasks leave."""
    from mooring.cli.connection import connect
    from mooring.model.durations import parse_duration

    seconds = None if timeout is None else parse_duration(timeout)
    with connect(server) as client:
        node = client.drain_node(name, timeout_seconds=seconds, reason=reason)
        _show_changed(_until_drained(client, node) if wait else node, output)


def _until_drained(client: Client, node: NodeView) -> NodeView:
    import time

    from mooring.cli.progress import Progress
    from mooring.cli.waiting import PAUSE_SECONDS, through_outages
    from mooring.model.errors import Conflict

    name = node.name
    with Progress() as progress:
        while node.drained_at is None:
            if not node.draining:
                raise Conflict(f"node {name!r} was resumed before it was drained", code="node-resumed")
            progress.show(f"{name}: {plural(node.tasks, 'task')} left")
            time.sleep(PAUSE_SECONDS)
            node = through_outages(lambda: client.node(name), progress)
    return node


@app.command(rich_help_panel=CLUSTER)
def resume(name: NodeArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Open a drained node again, and trust one that Mooring avoids."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        _show_changed(client.resume_node(name), output)


def _show_changed(node: NodeView, output: Format) -> None:
    if output is Format.JSON:
        show_json(node)
    else:
        show_line(f"{node.name}: ", _status(node))


def _row(node: NodeView) -> list[Cell]:
    return [
        node.name,
        _status(node),
        node.pool,
        node.region or "",
        _free(node, "cpu"),
        _free(node, "memory"),
        _free(node, "gpu"),
        str(node.tasks),
        age(node.last_seen_at),
        _load(node),
        node.architecture,
        ",".join(node.runtimes),
        node.licence or "",
        _machine_image(node),
        node.template or "",
        node.owner or "",
        pairs(node.labels),
        _reason(node),
    ]


def _status(node: NodeView) -> Styled:
    text = status_text(node.status, simulated=node.simulated)
    if node.status == "DRAINING":
        until = "" if node.drain_until is None else f" until {instant(node.drain_until)}"
        text = text.replace("draining", "drained" if node.drained_at else f"draining{until}")
    if node.status == "READY" and not node.schedulable:
        return Styled(f"{text}, closed", "yellow")
    if node.status == "READY" and _avoided(node):
        return Styled(f"{text}, avoided", "yellow")
    return Styled(text, status_style(node.status))


def _machine_image(node: NodeView) -> str:
    return " ".join(filter(None, (node.machine_image, node.machine_image_version)))


def _avoided(node: NodeView) -> str:
    """Why Mooring would rather place nothing there."""
    return "; ".join(taint.reason for taint in node.taints if taint.reason)


def _reason(node: NodeView) -> str:
    return node.reason or (node.drain_reason if node.draining else None) or _avoided(node)


def _taint(taint: TaintView) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect} ({age(taint.since)})"


def _free(node: NodeView, slot: str) -> str:
    view = node.slots.get(slot)
    if view is None or view.allocatable == "0":
        return ""
    return f"{rounded(slot, view.free)}/{rounded(slot, view.allocatable)}"


def _load(node: NodeView) -> str:
    return f"cpu {node.cpu_percent:.0f}%, memory {node.memory_percent:.0f}%"
