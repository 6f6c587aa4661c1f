"""Nodes from CSV files and from the answers of a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import AUTOMATIC, PoolPolicy
from mooring.model.resources.devices import MAX_DEVICES, WHOLE, Device
from mooring.model.resources.slots import Amounts, parse_amounts, slot_type
from mooring.model.workloads.constraints import Effect, Taint
from mooring.simulation.inputs.text_files import csv_rows, invalid, whole
from mooring.simulation.jobs import DEFAULT_POOL
from mooring.wire.cluster.nodes import NodeView
from mooring.wire.cluster.pool_changes import changed
from mooring.wire.cluster.pools import PoolChange, PoolView

MOST_NODES = 100_000
_OPENB = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_OWN_COLUMNS = {"name", "count", "pool", "gpu_model", "labels"}


def new_node(
    name: str,
    resources: Amounts,
    *,
    pool: str = DEFAULT_POOL,
    gpu_model: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Node:
    """Return a node; its GPUs are whole devices of one model."""
    gpus, rest = divmod(resources.get("gpu", 0), WHOLE)
    if rest or gpus > MAX_DEVICES:
        raise InvalidInput(f"node {name}: a node has whole GPUs, at most {MAX_DEVICES}", code="invalid-node")
    devices = {"gpu": tuple(Device(index, model=gpu_model) for index in range(gpus))} if gpus else {}
    allocatable = {slot: amount for slot, amount in resources.items() if amount}
    return Node(name=name, pool=pool, allocatable=allocatable, devices=devices, labels=labels or {})


def read_nodes(lines: Iterator[str], name: str, *, pool: str = DEFAULT_POOL) -> list[Node]:
    """Return the nodes of a CSV file: the node list of the Alibaba trace, or a column per slot.

    Other columns: name, count (of numbered nodes), pool, gpu_model, labels (key=value, separated by blanks).
    """
    nodes: list[Node] = []
    for where, row in csv_rows(lines, name):
        found = [_openb_node(row, where, pool)] if set(_OPENB) <= row.keys() else _nodes_of_row(row, where, pool)
        nodes += found
        if len(nodes) > MOST_NODES:
            raise invalid(f"{where}: more than {MOST_NODES:,} nodes")
    return nodes


def _openb_node(row: Mapping[str, str], where: str, pool: str) -> Node:
    amounts = {
        "cpu": whole(row["cpu_milli"], "cpu_milli", where),
        "memory": whole(row["memory_mib"], "memory_mib", where) << 20,
        "gpu": whole(row["gpu"], "gpu", where) * WHOLE,
    }
    if min(amounts.values()) < 0 or max(amounts.values()) >> 62:
        raise invalid(f"{where}: an amount is negative or too large")
    return _checked(where, row["sn"], amounts, pool=pool, gpu_model=row["model"] or None)


def _nodes_of_row(row: Mapping[str, str], where: str, pool: str) -> list[Node]:
    if "name" not in row:
        raise invalid(f"{where}: no column 'name'; see the reference of node files")
    try:
        written = {slot: text.strip() for slot, text in row.items() if slot not in _OWN_COLUMNS and text.strip()}
        amounts = {slot: slot_type(slot).parse_with_unit(text) for slot, text in written.items()}
    except InvalidInput as problem:
        raise invalid(f"{where}: {problem.message}") from None
    count = whole(row["count"], "count", where) if row.get("count") else 1
    if not 0 < count <= MOST_NODES:
        raise invalid(f"{where}: count is {count}; it is from 1 to {MOST_NODES:,}")
    labels = dict(part.partition("=")[::2] for part in row.get("labels", "").split())
    names = [row["name"]] if count == 1 else [f"{row['name']}-{number}" for number in range(count)]
    own = row.get("pool") or pool
    return [
        _checked(where, each, amounts, pool=own, gpu_model=row.get("gpu_model") or None, labels=labels)
        for each in names
    ]


def _checked(
    where: str,
    name: str,
    amounts: Amounts,
    *,
    pool: str,
    gpu_model: str | None,
    labels: Mapping[str, str] | None = None,
) -> Node:
    try:
        return new_node(name, amounts, pool=pool, gpu_model=gpu_model, labels=labels)
    except InvalidInput as problem:
        raise invalid(f"{where}: {problem.message}") from None


def nodes_of_server(views: Sequence[NodeView]) -> list[Node]:
    """Return the nodes of a server that accept work, empty."""
    return [_node_of_view(view) for view in views if view.status == "READY" and view.schedulable]


def _node_of_view(view: NodeView) -> Node:
    allocatable = parse_amounts({slot: amounts.allocatable for slot, amounts in view.slots.items()})
    devices = {
        slot: tuple(Device(each.index, each.capacity, each.model, each.memory) for each in found)
        for slot, found in view.devices.items()
        if found
    }
    return Node(
        name=view.name,
        pool=view.pool,
        allocatable=allocatable,
        devices=devices,
        labels=view.labels,
        region=view.region,
        taints=tuple(Taint(each.key, each.value, Effect(each.effect)) for each in view.taints),
    )


def pools_of_server(views: Sequence[PoolView]) -> dict[str, PoolPolicy]:
    """Return the policies of the pools of a server."""
    found: dict[str, PoolPolicy] = {}
    for view in views:
        given = {
            name: value
            for name, value in view.model_dump(include=set(PoolChange.model_fields)).items()
            if value is not None and value != []
        }
        policy = changed(PoolPolicy(AUTOMATIC), PoolChange.model_validate(given))
        found[view.name] = replace(policy, paused=view.paused, paused_reason=view.paused_reason)
    return found
