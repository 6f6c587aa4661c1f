"""`mooring pool`: sets of nodes with one scheduling policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.commands.cluster.pool_options import CHANGE_OPTIONS, CREATE_OPTIONS, request_fields
from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.model_options import command_with_options, given_fields
from mooring.cli.input.options import CLUSTER, OutputOption, ServerOption
from mooring.cli.rendering.formatting import NOTHING, instant, plural
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
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.cluster.pools import AutomaticMovesView, DemandView, PoolChange, PoolRequest, PoolView

app = App()
pool_app = App(help="Create, list, show, change and remove pools.", no_args_is_help=True)
app.add_typer(pool_app, name="pool", rich_help_panel=CLUSTER)

_COLUMNS = (
    Column("NAME"),
    Column("NODES", number=True),
    Column("RUNTIMES", cut=True),
    Column("PROFILE"),
    Column("SEQUENCER"),
    Column("BINDING"),
    Column("PREEMPTION"),
    Column("FRAGMENTATION", wide=True),
)


PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="The pool's name.")]
OwnWeights = Annotated[bool, typer.Option("--own-weights", help="Reset to the profile's weights.")]


def _load_pool_request() -> type[PoolRequest]:
    from mooring.wire.cluster.pools import PoolRequest

    return PoolRequest


def _load_pool_change() -> type[PoolChange]:
    from mooring.wire.cluster.pools import PoolChange

    return PoolChange


@app.command("pools", hidden=True)
@pool_app.command("list")
@with_groups
def pools(output: Listing = TABLE, server: ServerOption = None) -> None:
    """List the pools."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.pools()
    if output.is_document:
        show_document(found, output)
    else:
        show_table(_COLUMNS, [_row(pool) for pool in found.pools], output)


@pool_app.command("show")
def show_pool(name: PoolArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show every option of a pool."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.pool(name)
    if output.is_document:
        show_document(found, output)
    else:
        options = found.model_dump(exclude={"learned_demand", "automatic_moves"})
        fields = [(option.replace("_", " "), _value_text(value)) for option, value in options.items()]
        demand = [("expects", _expected_text(each)) for each in found.learned_demand]
        moves = [] if found.automatic_moves is None else _moves_fields(found.automatic_moves)
        show_fields([*fields, *moves, *demand])


@pool_app.command("create", cls=command_with_options(_load_pool_request, CREATE_OPTIONS))
def create_pool(context: typer.Context, name: PoolArgument, server: ServerOption = None) -> None:
    """Create a pool. Options that are not given have their defaults."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build

    request = build(_load_pool_request(), name=name, **request_fields(given_fields(context)))
    with connect(server) as client:
        client.create_pool(request)
    show_line(f"{name}: created")


@pool_app.command("change", cls=command_with_options(_load_pool_change, CHANGE_OPTIONS))
def change_pool(
    context: typer.Context, name: PoolArgument, own_weights: OwnWeights = False, server: ServerOption = None
) -> None:
    """Change options of a pool, from the next scheduling pass on. Only the given options change."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build

    change = build(_load_pool_change(), **request_fields(given_fields(context), own_weights=own_weights))
    if not change.model_fields_set:
        raise InvalidInput("no option is given, so there is nothing to change; see `mooring pool change --help`")
    with connect(server) as client:
        client.change_pool(name, change)
    show_line(f"{name}: changed")


@pool_app.command("pause")
def pause_pool(
    name: PoolArgument,
    reason: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Reason, shown to owners of pending work.")
    ] = None,
    server: ServerOption = None,
) -> None:
    """Pause a pool: start no more work in it. Running work continues."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.pause_pool(name, reason=reason)
    show_line(f"{name}: paused")


@pool_app.command("resume")
def resume_pool(name: PoolArgument, server: ServerOption = None) -> None:
    """Resume a paused pool."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.resume_pool(name)
    show_line(f"{name}: resumed")


@pool_app.command("remove")
def remove_pool(name: PoolArgument, server: ServerOption = None) -> None:
    """Remove a pool that has neither nodes nor workloads."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_pool(name)
    show_line(f"{name}: removed")


def _row(pool: PoolView) -> list[Cell]:
    marks = [mark for mark, holds in (("simulated", pool.simulated), ("paused", pool.paused)) if holds]
    return [
        f"{pool.name} ({', '.join(marks)})" if marks else pool.name,
        str(pool.nodes),
        ", ".join(pool.runtimes) or NOTHING,
        _profile(pool),
        pool.sequencer,
        pool.binding,
        "off" if pool.preemption is None else f"{pool.preemption.mode}, {pool.preemption.scope}",
        "allowed" if pool.fragmentation else "no",
    ]


def _profile(pool: PoolView) -> str:
    weights = ", ".join(f"{scorer} {weight}" for scorer, weight in sorted((pool.weights or {}).items()))
    applies = pool.effective_profile or pool.profile
    profile = pool.profile if applies == pool.profile else f"{pool.profile}: {applies}"
    return f"{profile} ({weights})" if weights else profile


def _moves_fields(moves: AutomaticMovesView) -> list[tuple[str, Cell]]:
    """Return the budget of automatic moves and the newest plan."""
    budget = f"{moves.moves_last_hour} in the last hour, {moves.moves_left} left"
    if moves.at is None or moves.status is None:
        return [("automatic moves", budget)]
    bound = "no bound" if moves.bound is None else f"at most {moves.bound:g} possible"
    plan = (
        f"{moves.status.lower()}, {moves.arrived} of {plural(moves.planned, 'move')}, "
        f"gains {moves.gained:g} ({bound}), planned at {instant(moves.at)}"
    )
    return [("automatic moves", budget), ("newest plan", plan)]


def _expected_text(each: DemandView) -> str:
    """Return a request of the demand to come with its share of the tasks."""
    amounts = ", ".join(f"{slot} {amount}" for slot, amount in each.request.items())
    models = f" on {' or '.join(each.models)}" if each.models else ""
    return f"{each.percent:g} %: {amounts}{models}"


def _value_text(value: Any) -> str:
    """Return an option's value as text."""
    if value is None or value in ({}, []):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_value_text(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
