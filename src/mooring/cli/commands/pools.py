"""`mooring pool`: sets of nodes with one policy, and every option of it."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.options import CLUSTER, OnInsufficientChoice, OutputOption, ServerOption
from mooring.cli.output import Cell, Column, Format, show_fields, show_json, show_line, show_table
from mooring.cli.words import NOTHING
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.pools import PoolView

app = typer.Typer()
pool_app = typer.Typer(help="Make, list, show, change and remove pools.", no_args_is_help=True)
app.add_typer(pool_app, name="pool", rich_help_panel=CLUSTER)

_COLUMNS = (
    Column("NAME"),
    Column("NODES", number=True),
    Column("RUNTIMES"),
    Column("PROFILE"),
    Column("SEQUENCER"),
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
    RECLAIM = "reclaim"


class HeadOfLineChoice(StrEnum):
    STRICT = "strict"
    SKIP = "skip"
    BACKFILL = "backfill"


class BackfillOrderChoice(StrEnum):
    QUEUE = "queue"
    SHORTEST = "shortest"


class ExpectationChoice(StrEnum):
    LIMIT = "limit"
    HISTORY = "history"


class GoalChoice(StrEnum):
    CHEAPEST = "cheapest"
    FEWEST = "fewest"


class ShrinkChoice(StrEnum):
    ADVISE = "advise"
    DRAIN = "drain"


class RuntimeChoice(StrEnum):
    PROCESS = "process"
    CONTAINER = "container"


PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="The pool's name.")]
Profile = Annotated[
    str | None, typer.Option(metavar="PROFILE", help="How to choose nodes: balanced, pack, spread, kubernetes, …")
]
Weight = Annotated[
    list[str] | None,
    typer.Option("--weight", metavar="SCORER=N", help="In place of the profile's own weights; may be repeated."),
]
OwnWeights = Annotated[bool, typer.Option("--own-weights", help="Give the profile its own weights back.")]
BindingOption = Annotated[BindingChoice | None, typer.Option(help="How decisions become durable.")]
HoldSeconds = Annotated[
    int | None, typer.Option(metavar="SECONDS", help="two_phase: how long a place is kept until it is ready.")
]
HoldMaxSeconds = Annotated[
    int | None, typer.Option(metavar="SECONDS", help="two_phase: how long at most, while agents say that they get on.")
]
Fragmentation = Annotated[
    bool | None, typer.Option(help="Whether a share of a device may be split over several devices.")
]
PreemptionOption = Annotated[
    PreemptionChoice | None,
    typer.Option(help="Whether workloads may make others leave for them, and what becomes of those."),
]
ScopeOption = Annotated[ScopeChoice | None, typer.Option(help="Whose tasks preemption may take.")]
MinRuntime = Annotated[int | None, typer.Option(metavar="SECONDS", help="Preemption leaves alone what runs for less.")]
SequencerOption = Annotated[
    str | None,
    typer.Option(metavar="SEQUENCER", help="Who is next of one priority: fifo, lifo, drf, fair_share, multi_factor."),
]
Factor = Annotated[
    list[str] | None,
    typer.Option("--factor", metavar="NAME=N", help="multi_factor: what counts how much; may be repeated."),
]
HalfLife = Annotated[int | None, typer.Option(metavar="DAYS", help="fair_share: after so long, use counts half.")]
Lookback = Annotated[int | None, typer.Option(metavar="DAYS", help="fair_share: how far back use counts.")]
SlotWeight = Annotated[
    list[str] | None,
    typer.Option("--slot-weight", metavar="SLOT=N", help="fair_share: in thousandths; may be repeated."),
]
BookingLead = Annotated[
    int | None, typer.Option(metavar="SECONDS", help="Bookings are made ready so long before their start.")
]
BookingGrace = Annotated[
    int | None, typer.Option(metavar="SECONDS", help="Bookings that could not start so late have missed it.")
]
BookingNotice = Annotated[
    int | None, typer.Option(metavar="SECONDS", help="Users of a booking are told so long before its end.")
]
Ageing = Annotated[
    int | None,
    typer.Option("--ageing", metavar="SECONDS", help="Waiting so long raises the priority by one; 0: never."),
]
HeadOfLineOption = Annotated[
    HeadOfLineChoice | None,
    typer.Option(help="Work that lacks room stops what is behind it, is passed over, or has a planned start."),
]
BackfillDepth = Annotated[
    int | None, typer.Option(metavar="N", help="backfill: how many that lack room have a planned start.")
]
BackfillOrder = Annotated[
    BackfillOrderChoice | None, typer.Option(help="backfill: in which order the others may fill gaps.")
]
MaxBypass = Annotated[
    int | None, typer.Option(metavar="SECONDS", help="backfill: work without a planned start is passed for so long.")
]
ExpectationOption = Annotated[
    ExpectationChoice | None, typer.Option(help="backfill: when running work is expected to end.")
]
OnInsufficientOption = Annotated[
    OnInsufficientChoice | None, typer.Option(help="What becomes of work that finds no room and does not say.")
]
PendingTimeout = Annotated[
    int | None, typer.Option(metavar="SECONDS", help="What still waits so long after its creation expires; 0: never.")
]
Types = Annotated[
    list[str] | None, typer.Option("--type", metavar="TYPE", help="A type of session that it takes; may be repeated.")
]
MaxTasks = Annotated[int | None, typer.Option("--max-tasks-per-node", metavar="N", help="0: as the nodes say.")]
DefaultTime = Annotated[int | None, typer.Option(metavar="SECONDS", help="How long work may run that does not say.")]
MaxTime = Annotated[int | None, typer.Option(metavar="SECONDS", help="How long work may run at most; 0: for ever.")]
IdleTimeout = Annotated[
    int | None, typer.Option(metavar="SECONDS", help="When interactive sessions end that do nothing; 0: never.")
]
Deprioritise = Annotated[
    int | None,
    typer.Option(metavar="N", help="What cannot be started waits again, so much lower in priority; 0: it fails."),
]
ValidatorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--validator",
        metavar="NAME=MOMENTS",
        help="When it is asked: enqueue, scheduling, both with a comma, or nothing; may be repeated.",
    ),
]
Public = Annotated[bool | None, typer.Option(help="Whether every tenant may use it.")]
Privileged = Annotated[bool | None, typer.Option(help="Whether containers may have all powers over their node.")]
HostPath = Annotated[
    list[str] | None,
    typer.Option(
        "--host-path",
        metavar="FOLDER",
        help='A folder of the nodes that containers may mount; may be repeated, and takes the place of all. "": none.',
    ),
]
SharedVolumes = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help='A folder that all nodes mount, for volumes that they share. "": none.'),
]
Health = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help='Run on every node, without a shell; where it fails nothing new comes. "": none.',
    ),
]
GoalOption = Annotated[
    GoalChoice | None, typer.Option("--scale-goal", help="Grow at the least cost, or by the fewest nodes.")
]
LeastNodes = Annotated[int | None, typer.Option("--least-nodes", min=0, help="So many nodes stay although idle.")]
MostNodes = Annotated[int | None, typer.Option("--most-nodes", min=0, help="Ask for no more than so many; 0: any.")]
ScaleCooldown = Annotated[
    int | None, typer.Option("--scale-cooldown", metavar="SECONDS", help="Between two requests for nodes.")
]
IdleTime = Annotated[int | None, typer.Option("--idle-time", metavar="SECONDS", help="Idle so long, a node may go.")]
ShrinkCooldown = Annotated[
    int | None,
    typer.Option("--shrink-cooldown", metavar="SECONDS", help="After it grew or shrank, until a node may go."),
]
ShrinkOption = Annotated[
    ShrinkChoice | None, typer.Option("--shrink", help="Advise about nodes that may go, or drain them as well.")
]
HealthInterval = Annotated[int | None, typer.Option(metavar="SECONDS", help="The pause between two runs; else 60.")]
HealthTimeout = Annotated[int | None, typer.Option(metavar="SECONDS", help="How long it may take; else 10.")]


@app.command("pools", hidden=True)
@pool_app.command("list")
def pools(output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """List the pools."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.pools()
    if output is Format.JSON:
        show_json(found)
    else:
        show_table(_COLUMNS, [_row(pool) for pool in found.pools], output)


@pool_app.command("show")
def show_pool(name: PoolArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show every option of a pool."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.pool(name)
    if output is Format.JSON:
        show_json(found)
    else:
        show_fields([(option.replace("_", " "), _words(value)) for option, value in found.model_dump().items()])


@pool_app.command("create")
def create_pool(
    name: PoolArgument,
    runtime: Annotated[
        list[RuntimeChoice] | None, typer.Option("--runtime", help="What its nodes run; may be repeated.")
    ] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Its nodes are pretended.")] = False,
    profile: Profile = None,
    sequencer: SequencerOption = None,
    head_of_line: HeadOfLineOption = None,
    public: Public = None,
    server: ServerOption = None,
) -> None:
    """Make a pool; what is not given is the default. `mooring pool change` takes every option."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build
    from mooring.wire.pools import PoolRequest

    request = build(
        PoolRequest,
        name=name,
        runtimes=None if runtime is None else [each.value for each in runtime],
        simulated=simulated or None,
        profile=profile,
        sequencer=sequencer,
        head_of_line=head_of_line,
        public=public,
    )
    with connect(server) as client:
        client.create_pool(request)
    show_line(f"{name}: created")


@pool_app.command("change")
def change_pool(
    name: PoolArgument,
    profile: Profile = None,
    weight: Weight = None,
    own_weights: OwnWeights = False,
    binding: BindingOption = None,
    hold_seconds: HoldSeconds = None,
    hold_max_seconds: HoldMaxSeconds = None,
    fragmentation: Fragmentation = None,
    preemption: PreemptionOption = None,
    scope: ScopeOption = None,
    min_runtime: MinRuntime = None,
    booking_lead: BookingLead = None,
    booking_grace: BookingGrace = None,
    booking_notice: BookingNotice = None,
    sequencer: SequencerOption = None,
    factor: Factor = None,
    half_life: HalfLife = None,
    lookback: Lookback = None,
    slot_weight: SlotWeight = None,
    ageing: Ageing = None,
    head_of_line: HeadOfLineOption = None,
    backfill_depth: BackfillDepth = None,
    backfill_order: BackfillOrder = None,
    max_bypass: MaxBypass = None,
    expectation: ExpectationOption = None,
    on_insufficient: OnInsufficientOption = None,
    pending_timeout: PendingTimeout = None,
    types: Types = None,
    max_tasks: MaxTasks = None,
    default_time: DefaultTime = None,
    max_time: MaxTime = None,
    idle_timeout: IdleTimeout = None,
    deprioritise: Deprioritise = None,
    validator: ValidatorOption = None,
    public: Public = None,
    privileged: Privileged = None,
    host_path: HostPath = None,
    shared_volumes: SharedVolumes = None,
    health: Health = None,
    health_interval: HealthInterval = None,
    health_timeout: HealthTimeout = None,
    scale_goal: GoalOption = None,
    least_nodes: LeastNodes = None,
    most_nodes: MostNodes = None,
    scale_cooldown: ScaleCooldown = None,
    idle_time: IdleTime = None,
    shrink_cooldown: ShrinkCooldown = None,
    shrink: ShrinkOption = None,
    server: ServerOption = None,
) -> None:
    """Change options of a pool; they hold from the next pass on. Only what is given changes."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build
    from mooring.wire.pools import PoolChange

    if preemption is None and (scope is not None or min_runtime is not None):
        raise InvalidInput("--scope and --min-runtime go with --preemption terminate or requeue")
    change = build(
        PoolChange,
        profile=profile,
        weights=_numbers(weight, "--weight", emptied=own_weights),
        binding=binding,
        hold_seconds=hold_seconds,
        hold_max_seconds=hold_max_seconds,
        fragmentation=fragmentation,
        preemption=None if preemption is None else _preemption(preemption, scope, min_runtime),
        bookings=_given(lead_seconds=booking_lead, grace_seconds=booking_grace, notice_seconds=booking_notice),
        sequencer=sequencer,
        factors=_numbers(factor, "--factor"),
        fair_share=_fair_share(half_life, lookback, slot_weight),
        ageing_seconds=ageing,
        head_of_line=head_of_line,
        backfill=_given(
            depth=backfill_depth, order=backfill_order, max_bypass_seconds=max_bypass, expectation=expectation
        ),
        on_insufficient=on_insufficient,
        pending_timeout_seconds=pending_timeout,
        allowed_types=types,
        max_tasks_per_node=max_tasks,
        default_time_seconds=default_time,
        max_time_seconds=max_time,
        idle_timeout_seconds=idle_timeout,
        deprioritise=deprioritise,
        validators=_validators(validator),
        public=public,
        privileged=privileged,
        shared_volumes=shared_volumes,
        host_paths=None if host_path is None else [path for path in host_path if path],
        health=_health(health, health_interval, health_timeout),
        scaling=_given(
            goal=scale_goal,
            least=least_nodes,
            most=most_nodes,
            cooldown_seconds=scale_cooldown,
            idle_seconds=idle_time,
            shrink_cooldown_seconds=shrink_cooldown,
            shrink=shrink,
        ),
    )
    if not change.model_fields_set:
        raise InvalidInput("there is nothing to change: `mooring pool change --help` lists the options")
    with connect(server) as client:
        client.change_pool(name, change)
    show_line(f"{name}: changed")


@pool_app.command("pause")
def pause_pool(
    name: PoolArgument,
    reason: Annotated[str | None, typer.Option(metavar="WORDS", help="What those who wait are told.")] = None,
    server: ServerOption = None,
) -> None:
    """Start nothing more in a pool; what runs there goes on."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.pause_pool(name, reason=reason)
    show_line(f"{name}: paused")


@pool_app.command("resume")
def resume_pool(name: PoolArgument, server: ServerOption = None) -> None:
    """Start the work of a paused pool again."""
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


def _numbers(written: list[str] | None, option: str, *, emptied: bool = False) -> dict[str, int] | None:
    from mooring.cli.requests import assignments

    given: dict[str, int] | None = {} if emptied else None
    for name, amount in assignments(written, option=option).items():
        if not amount.isdecimal():
            raise InvalidInput(f"{option} {name}={amount[:20]}: write a whole number")
        given = (given or {}) | {name: int(amount)}
    return given


def _fair_share(half_life: int | None, lookback: int | None, slot_weight: list[str] | None) -> dict[str, Any] | None:
    weights = _numbers(slot_weight, "--slot-weight")
    return _given(half_life_days=half_life, lookback_days=lookback, slot_weights=weights)


def _given(**options: Any) -> dict[str, Any] | None:
    """Those of the options that were given; None if none was."""
    return {name: value for name, value in options.items() if value is not None} or None


def _validators(written: list[str] | None) -> dict[str, list[str]] | None:
    from mooring.cli.requests import assignments

    if written is None:
        return None
    given = assignments(written, option="--validator")
    return {name: [moment for moment in moments.split(",") if moment] for name, moments in given.items()}


def _preemption(mode: PreemptionChoice, scope: ScopeChoice | None, min_runtime: int | None) -> dict[str, Any]:
    if mode is PreemptionChoice.OFF:
        return {"enabled": False}
    given: dict[str, Any] = {"mode": mode.value}
    if scope is not None:
        given["scope"] = scope.value
    if min_runtime is not None:
        given["min_runtime_seconds"] = min_runtime
    return given


def _health(command: str | None, interval: int | None, timeout: int | None) -> dict[str, Any] | None:
    if command is None:
        if interval is not None or timeout is not None:
            raise InvalidInput("--health-interval and --health-timeout go with --health")
        return None
    try:
        given: dict[str, Any] = {"command": shlex.split(command)}
    except ValueError as error:
        raise InvalidInput(f"--health: {error}") from None
    if interval is not None:
        given["interval_seconds"] = interval
    if timeout is not None:
        given["timeout_seconds"] = timeout
    return given


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
    return f"{pool.profile} ({weights})" if weights else pool.profile


def _words(value: Any) -> str:
    """An option's value as people read it."""
    if value is None or value in ({}, []):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_words(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
