"""`mooring pools`: sets of nodes with one policy."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.options import CLUSTER, OutputOption, ServerOption
from mooring.cli.output import Cell, Column, Format, show_json, show_line, show_table
from mooring.cli.words import NOTHING
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.api import PoolView

app = typer.Typer()
pools_app = typer.Typer(help="List the pools; set how one places its work.", invoke_without_command=True)
app.add_typer(pools_app, name="pools", rich_help_panel=CLUSTER)

_COLUMNS = (
    Column("NAME"),
    Column("NODES", number=True),
    Column("RUNTIMES"),
    Column("PROFILE"),
    Column("BINDING"),
    Column("PREEMPTION"),
    Column("FRAGMENTATION", wide=True),
)


class BindingChoice(StrEnum):
    OPTIMISTIC = "optimistic"
    PESSIMISTIC = "pessimistic"
    TWO_PHASE = "two_phase"


class PreemptionChoice(StrEnum):
    OFF = "off"
    TERMINATE = "terminate"
    REQUEUE = "requeue"


class ScopeChoice(StrEnum):
    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"
    POOL = "pool"


@pools_app.callback()
def pools(ctx: typer.Context, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """List the pools; or set how one places its work."""
    if ctx.invoked_subcommand is not None:
        return
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.pools()
    if output is Format.JSON:
        show_json(found)
    else:
        show_table(_COLUMNS, [_row(pool) for pool in found.pools], output)


@pools_app.command("set")
def set_pool(
    name: Annotated[str, typer.Argument(metavar="POOL", help="The pool's name.")],
    profile: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="How to choose nodes: balanced, pack, spread, kubernetes, …")
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option("--weight", metavar="SCORER=N", help="In place of the profile's own weights; may be repeated."),
    ] = None,
    own_weights: Annotated[bool, typer.Option("--own-weights", help="Give the profile its own weights back.")] = False,
    binding: Annotated[BindingChoice | None, typer.Option(help="How decisions become durable.")] = None,
    hold_seconds: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="two_phase: how long a place is kept until it is ready.")
    ] = None,
    fragmentation: Annotated[
        bool | None, typer.Option(help="Whether a share of a device may be split over several devices.")
    ] = None,
    preemption: Annotated[
        PreemptionChoice | None,
        typer.Option(help="Whether higher priorities may take the place of lower ones, and what becomes of those."),
    ] = None,
    scope: Annotated[ScopeChoice | None, typer.Option(help="Whose tasks preemption may take.")] = None,
    min_runtime: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="Preemption leaves alone what runs for less.")
    ] = None,
    server: ServerOption = None,
) -> None:
    """Change the policy of a pool; it holds from the next pass on. Only what is given changes."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build
    from mooring.wire.api import PoolChange

    if preemption is None and (scope is not None or min_runtime is not None):
        raise InvalidInput("--scope and --min-runtime go with --preemption terminate or requeue")
    change = build(
        PoolChange,
        profile=profile,
        weights=_weights(weight, own_weights),
        binding=binding,
        hold_seconds=hold_seconds,
        fragmentation=fragmentation,
        preemption=None if preemption is None else _preemption(preemption, scope, min_runtime),
    )
    if not change.model_fields_set:
        raise InvalidInput("there is nothing to change: `mooring pools set --help` lists the options")
    with connect(server) as client:
        client.change_pool(name, change)
    show_line(f"{name}: changed")


def _weights(written: list[str] | None, own: bool) -> dict[str, int] | None:
    from mooring.cli.requests import assignments

    given: dict[str, int] | None = {} if own else None
    for scorer, amount in assignments(written, option="--weight").items():
        if not amount.isdecimal():
            raise InvalidInput(f"--weight {scorer}={amount[:20]}: write a whole number")
        given = (given or {}) | {scorer: int(amount)}
    return given


def _preemption(mode: PreemptionChoice, scope: ScopeChoice | None, min_runtime: int | None) -> dict[str, Any]:
    if mode is PreemptionChoice.OFF:
        return {"enabled": False}
    given: dict[str, Any] = {"mode": mode.value}
    if scope is not None:
        given["scope"] = scope.value
    if min_runtime is not None:
        given["min_runtime_seconds"] = min_runtime
    return given


def _row(pool: PoolView) -> list[Cell]:
    name = f"{pool.name} (simulated)" if pool.simulated else pool.name
    return [
        name,
        str(pool.nodes),
        ", ".join(pool.runtimes) or NOTHING,
        _profile(pool),
        pool.binding,
        "off" if pool.preemption is None else f"{pool.preemption.mode}, {pool.preemption.scope}",
        "allowed" if pool.fragmentation else "no",
    ]


def _profile(pool: PoolView) -> str:
    weights = ", ".join(f"{scorer} {weight}" for scorer, weight in sorted((pool.weights or {}).items()))
    return f"{pool.profile} ({weights})" if weights else pool.profile
