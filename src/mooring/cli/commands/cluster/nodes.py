"""`mooring nodes`, `drain` and `resume`: nodes and their maintenance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import (
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
    YesOption,
)
from mooring.cli.rendering.formatting import (
    age,
    instant,
    pairs,
    plural,
    rounded,
    status_style,
    status_text,
)
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Format,
    Listing,
    Styled,
    show_document,
    show_fields,
    show_line,
    show_table,
)
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.client.views import Node
    from mooring.wire.cluster.nodes import DeviceView, DrainPreview, NodeView, TaintView

app = App()
nodes_app = App(help="List nodes, or add, remove, show or change one.", invoke_without_command=True)
app.add_typer(nodes_app, name="nodes", rich_help_panel=CLUSTER)
app.add_typer(nodes_app, name="node", hidden=True)

_PATH = "/api/nodes"
_COLUMNS = (
    Column("NAME"),
    Column("STATUS", drop=0),
    Column("POOL", drop=2),
    Column("REGION", drop=4),
    Column("CPU FREE", number=True),
    Column("MEMORY FREE", number=True),
    Column("GPU FREE", number=True),
    Column("TASKS", number=True, drop=2),
    Column("SEEN", number=True, drop=3),
    Column("LOAD", wide=True, number=True),
    Column("ARCH", wide=True),
    Column("RUNTIMES", wide=True, cut=True),
    Column("ISOLATION", drop=5),
    Column("LICENCE", wide=True),
    Column("MACHINE IMAGE", wide=True),
    Column("TEMPLATE", wide=True),
    Column("OWNER", wide=True),
    Column("LABELS", wide=True, cut=True),
    Column("REASON", cut=True),
)

_DEVICE_COLUMNS = (Column("MEMORY", number=True), Column("CAPACITY", number=True), Column("FREE", number=True))


@nodes_app.callback()
@with_groups
def nodes(ctx: typer.Context, output: Listing = TABLE, server: ServerOption = None) -> None:
    """List nodes, or add, remove, show or change one."""
    if ctx.invoked_subcommand is not None:
        return
    from mooring.cli.connection import read
    from mooring.client.quick import decoded, document
    from mooring.client.views import Nodes

    content = read(server, _PATH)
    if output.is_document:
        show_document(document(content), output)
    else:
        show_table(_COLUMNS, [_row(node) for node in decoded(Nodes, content, source=_PATH).nodes], output)


@nodes_app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NODE", help="Name.")],
    cpu: Annotated[str, typer.Option(metavar="CORES", help="CPU cores.")],
    memory: Annotated[str, typer.Option(metavar="BYTES", help="Memory, such as 16Gi.")],
    gpu: GpuOption = None,
    storage: StorageOption = None,
    slot: SlotOption = None,
    region: RegionOption = None,
    arch: Annotated[str | None, typer.Option(metavar="ARCH", help="CPU architecture.")] = None,
    label: LabelOption = None,
    taint: TaintOption = None,
    max_tasks: Annotated[int | None, typer.Option(min=1, help="Maximum number of tasks.")] = None,
    licence: NodeLicenceOption = None,
    machine_image: NodeImageOption = None,
    machine_image_version: NodeImageVersionOption = None,
    pool: Annotated[
        str | None, typer.Option(metavar="POOL", help="Pool of simulated nodes (default: simulated).")
    ] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Add a simulated node. Real nodes join with `mooring agent`; see `mooring token create`."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import (
        assignments,
        build,
        checked_name,
        resources,
        taints,
    )
    from mooring.wire.cluster.nodes import NodeRequest

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
        pool=pool,
    )
    with connect(server) as client:
        _show_changed(client.add_node(request), output)


@nodes_app.command()
def label(
    name: NodeArgument,
    labels: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE | KEY-]...", help="Set a label, or remove it with KEY-.")
    ] = None,
    region: Annotated[str | None, typer.Option(metavar="REGION", help='Set the region; "" removes it.')] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Set or remove labels of a node, or set its region. Running tasks stay where they are."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import assignments

    removed = [text[:-1] for text in labels or () if text.endswith("-") and "=" not in text]
    given = assignments([text for text in labels or () if text[:-1] not in removed or "=" in text], option="label")
    changes: dict[str, str | None] = {**given, **dict.fromkeys(removed)}
    if not changes and region is None:
        raise InvalidInput("no change is given; use KEY=VALUE, KEY- or --region REGION")
    with connect(server) as client:
        _show_changed(client.change_node(name, labels=changes, region=region), output)


@nodes_app.command()
def remove(
    name: NodeArgument,
    force: Annotated[bool, typer.Option("--force", help="Remove the node even if tasks are charged to it.")] = False,
    yes: YesOption = False,
    server: ServerOption = None,
) -> None:
    """Remove a node from the cluster. Its agent stops, and joins again only with a new join token."""
    from mooring.cli.connection import connect
    from mooring.cli.input.prompts import confirm

    with connect(server) as client:
        if not yes:
            tasks = client.node(name).tasks
            lost = f", on which {plural(tasks, 'task')} may run" if tasks else ""
            confirm(f"Remove node {name}{lost}?")
        client.remove_node(name, force=force)
    show_line(f"{name}: removed")


@nodes_app.command()
def show(name: NodeArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show a node: its resources, their usage, and the volumes on it that you may see."""
    from mooring.cli.commands.workloads.volumes import mounted_by
    from mooring.cli.connection import connect

    with connect(server) as client:
        node, volumes = client.node(name), client.volumes(node=name)
    if output.is_document:
        show_document(node, output)
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
            ("isolation", _isolation(node)),
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


def _isolation(node: NodeView) -> str:
    """Return the isolation level and its reason, for nodes that run processes."""
    return f"{node.isolation} ({node.isolation_reason})" if node.isolation_reason else node.isolation


_ADVICE = {"environment": "listed in the task's environment", "none": "counted in placement"}


def _limits(node: NodeView, *, advice: bool) -> str:
    """Return how each resource request is enforced, or which requests are advice only."""
    parts = [f"{slot} ({_ADVICE.get(how, how)})" for slot, how in node.enforces.items() if (how in _ADVICE) is advice]
    return ", ".join(parts)


def _of_device(slot: str, device: DeviceView) -> list[Cell]:
    from mooring.model.resources.quantity import format_binary
    from mooring.model.resources.slots import slot_type

    kind = slot_type(slot)
    memory = "" if device.memory is None else format_binary(device.memory)
    return [memory, kind.format(device.capacity), kind.format(device.capacity - device.taken)]


@nodes_app.command()
def taint(
    name: NodeArgument,
    taints: Annotated[
        list[str],
        typer.Argument(metavar="KEY[=VALUE][:EFFECT]...", help="Taint to add; the default effect is NoSchedule."),
    ],
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Add taints to a node. NoExecute also evicts running tasks that do not tolerate it."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build
    from mooring.cli.input.requests import taints as parsed
    from mooring.wire.cluster.nodes import TaintsChange

    with connect(server) as client:
        _show_changed(client.change_taints(name, build(TaintsChange, add=parsed(taints))), output)


@nodes_app.command()
def untaint(
    name: NodeArgument,
    taints: Annotated[
        list[str],
        typer.Argument(metavar="KEY[:EFFECT]...", help="Taint to remove; without an effect, all effects of the key."),
    ],
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Remove taints from a node."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build
    from mooring.wire.cluster.nodes import TaintRemoval, TaintsChange

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
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time after which remaining tasks are stopped: 30m, 2h (default: sessions run to their end).",
        ),
    ] = None,
    reason: Annotated[str | None, typer.Option(metavar="WORDS", help="Reason, shown to users.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until no task is left on the node.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which tasks would move, and to which nodes.")
    ] = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Drain a node: place no new tasks on it, and move or finish its tasks."""
    from mooring.cli.connection import connect
    from mooring.model.calendar.durations import parse_duration

    seconds = None if timeout is None else parse_duration(timeout)
    with connect(server) as client:
        if dry_run:
            _show_preview(client.preview_drain(name, timeout=seconds is not None), output)
            return
        node = client.drain_node(name, timeout_seconds=seconds, reason=reason)
        _show_changed(_until_drained(client, node) if wait else node, output)


def _show_preview(preview: DrainPreview, output: Format) -> None:
    if output.is_document:
        show_document(preview, output)
        return
    if not preview.tasks:
        show_line(f"No task runs on {preview.node}: it would be drained at once")
        return
    rows: list[list[Cell]] = [
        [task.workload, str(task.index), task.user, task.effect, task.target or "-"] for task in preview.tasks
    ]
    columns = [Column("WORKLOAD"), Column("TASK", number=True), Column("USER"), Column("EFFECT"), Column("TO NODE")]
    show_table(columns, rows)
    if preview.waiting:
        show_line(f"No other node has capacity for {plural(preview.waiting, 'task')} at the moment")


def _until_drained(client: Client, node: NodeView) -> NodeView:
    import time

    from mooring.cli.interaction.waiting import PAUSE_SECONDS, through_outages
    from mooring.cli.rendering.progress import Progress
    from mooring.model.errors import Conflict

    name = node.name
    with Progress() as progress:
        while node.drained_at is None:
            if not node.draining:
                raise Conflict(f"node {name!r} was resumed before it was drained", code="node-resumed")
            progress.show(f"{name}: {plural(node.tasks, 'task')} remaining")
            time.sleep(PAUSE_SECONDS)
            node = through_outages(lambda: client.node(name), progress)
    return node


@app.command(rich_help_panel=CLUSTER)
def resume(name: NodeArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Resume a drained node, or one that Mooring avoids after failures."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        _show_changed(client.resume_node(name), output)


def _show_changed(node: NodeView, output: Format) -> None:
    if output.is_document:
        show_document(node, output)
    else:
        show_line(f"{node.name}: ", _status(node))


def _row(node: Node) -> list[Cell]:
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
        node.isolation,
        node.licence or "",
        _machine_image(node),
        node.template or "",
        node.owner or "",
        pairs(node.labels),
        _reason(node),
    ]


def _status(node: Node | NodeView) -> Styled:
    text = status_text(node.status, simulated=node.simulated)
    if node.status == "DRAINING":
        until = "" if node.drain_until is None else f" until {instant(node.drain_until)}"
        text = status_text("drained" if node.drained_at else f"draining{until}", simulated=node.simulated)
    elif node.drained_at is not None and node.status != "READY":
        # Its machine may be switched off: nothing is left on it, so its silence is no loss.
        return Styled(status_text(f"drained, {node.status}", simulated=node.simulated), status_style("DRAINING"))
    if node.status == "READY" and not node.schedulable:
        return Styled(f"{text}, closed", "yellow")
    if node.status == "READY" and _avoided(node):
        return Styled(f"{text}, avoided", "yellow")
    return Styled(text, status_style(node.status))


def _machine_image(node: Node | NodeView) -> str:
    return " ".join(filter(None, (node.machine_image, node.machine_image_version)))


def _avoided(node: Node | NodeView) -> str:
    """Return why Mooring avoids the node."""
    return "; ".join(taint.reason for taint in node.taints if taint.reason)


def _reason(node: Node | NodeView) -> str:
    return node.reason or (node.drain_reason if node.draining else None) or _avoided(node)


def _taint(taint: TaintView) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect} ({age(taint.since)})"


def _free(node: Node | NodeView, slot: str) -> str:
    view = node.slots.get(slot)
    if view is None or view.allocatable == "0":
        return ""
    return f"{rounded(slot, view.free)}/{rounded(slot, view.allocatable)}"


def _load(node: Node | NodeView) -> str:
    return f"cpu {node.cpu_percent:.0f}%, memory {node.memory_percent:.0f}%"
