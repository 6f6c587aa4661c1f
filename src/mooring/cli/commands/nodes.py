"""`mooring nodes`, `drain` and `resume`: the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import (
    CLUSTER,
    GpuOption,
    LabelOption,
    NodeArgument,
    OutputOption,
    RegionOption,
    ServerOption,
    SlotOption,
    StorageOption,
    TaintOption,
)
from mooring.cli.output import Cell, Column, Format, Styled, show_fields, show_json, show_line, show_table
from mooring.cli.words import age, pairs, rounded, status_style, status_text

if TYPE_CHECKING:
    from mooring.wire.api import DeviceView, NodeView

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
    """Show one node with what it offers and what is taken of it."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        node = client.node(name)
    if output is Format.JSON:
        show_json(node)
        return
    show_fields(
        [
            ("name", node.name),
            ("id", str(node.id)),
            ("status", _status(node)),
            ("reason", node.reason or ""),
            ("pool", node.pool),
            ("region", node.region or ""),
            ("architecture", node.architecture),
            ("runtimes", ", ".join(node.runtimes)),
            ("owner", node.owner or ""),
            ("labels", pairs(node.labels)),
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


@app.command(rich_help_panel=CLUSTER)
def drain(name: NodeArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Place nothing new on a node and let its tasks leave."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        _show_changed(client.drain_node(name), output)


@app.command(rich_help_panel=CLUSTER)
def resume(name: NodeArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Open a drained node again."""
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
        node.owner or "",
        pairs(node.labels),
        node.reason or "",
    ]


def _status(node: NodeView) -> Styled:
    text = status_text(node.status, simulated=node.simulated)
    closed = node.status == "READY" and not node.schedulable
    return Styled(f"{text}, closed" if closed else text, "yellow" if closed else status_style(node.status))


def _free(node: NodeView, slot: str) -> str:
    view = node.slots.get(slot)
    if view is None or view.allocatable == "0":
        return ""
    return f"{rounded(slot, view.free)}/{rounded(slot, view.allocatable)}"


def _load(node: NodeView) -> str:
    return f"cpu {node.cpu_percent:.0f}%, memory {node.memory_percent:.0f}%"
