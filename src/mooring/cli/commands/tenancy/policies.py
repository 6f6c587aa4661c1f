"""`mooring policy`: named sets of limits and rights for tenants."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.model_options import ModelOption, command_with_options, given_fields, read_texts
from mooring.cli.input.options import TENANTS, OutputOption, ServerOption
from mooring.cli.rendering.formatting import NOTHING, instant
from mooring.cli.rendering.output import (
    TABLE,
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
    from mooring.wire.tenancy.tenants import PolicyRules, PolicyView

app = App()
policy_app = App(help="Manage policies: limits and rights of tenants.", no_args_is_help=True)
app.add_typer(policy_app, name="policy", rich_help_panel=TENANTS)

PolicyArgument = Annotated[str, typer.Argument(metavar="POLICY", help="The policy's name.")]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="NAME=VALUE",
        help="Rule by name: max_sessions=5, max_sessions=null for no limit, max_sessions=inherit to unset it; "
        "repeatable.",
    ),
]
_OPTIONS = (
    ModelOption("limits", "--limit", "SLOT=AMOUNT", read=read_texts),
    ModelOption("rights", "--right"),
    ModelOption("unspecified"),
    ModelOption("max_sessions"),
    ModelOption("max_private_sessions"),
    ModelOption("max_pending_tasks"),
    ModelOption("max_pending"),
    ModelOption("max_pending_slots", "--max-pending-slot", "SLOT=AMOUNT", read=read_texts),
    ModelOption("max_priority"),
    ModelOption("max_tasks"),
    ModelOption("max_array_size"),
    ModelOption("default_time_seconds"),
    ModelOption("max_time_seconds"),
    ModelOption("booking_horizon_seconds"),
    ModelOption("max_booking_seconds", "--max-booking-time"),
    ModelOption("max_bookings"),
    ModelOption("max_booking_slot_hours", metavar="SLOT=AMOUNT", read=read_texts),
)


def _load_rules() -> type[PolicyRules]:
    from mooring.wire.tenancy.tenants import PolicyRules

    return PolicyRules


@policy_app.command(cls=command_with_options(_load_rules, _OPTIONS))
def create(
    context: typer.Context,
    name: PolicyArgument,
    rule: RuleOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Create a policy. It applies to the tenants that it is assigned to with --policy."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, checked_name
    from mooring.wire.tenancy.tenants import PolicyRequest

    request = build(PolicyRequest, name=checked_name(name, what="policy"), rules=_rules(context, rule))
    with connect(server) as client:
        made = client.create_policy(request)
    _show(made, output)


@policy_app.command("list")
@with_groups
def list_policies(output: Listing = TABLE, server: ServerOption = None) -> None:
    """List the policies."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.policies()
    if output.is_document:
        show_document(found, output)
        return
    columns = (
        Column("POLICY"),
        Column("RULES"),
        Column("CARRIED BY", number=True),
        Column("VERSION", number=True),
        Column("SINCE", wide=True),
    )
    rows = [
        [policy.name, _rules_text(policy.rules), str(policy.carriers), str(policy.version), instant(policy.created_at)]
        for policy in found
    ]
    show_table(columns, rows, output)


@policy_app.command()
def show(name: PolicyArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show one policy."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.policy(name)
    _show(found, output)


@policy_app.command(cls=command_with_options(_load_rules, _OPTIONS))
def change(
    context: typer.Context,
    name: PolicyArgument,
    rule: RuleOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Change rules of a policy. Only the given rules change."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build
    from mooring.wire.tenancy.tenants import PolicyChange

    rules = _rules(context, rule)
    if not rules:
        raise InvalidInput("no rule is given, so there is nothing to change; see `mooring policy change --help`")
    with connect(server) as client:
        changed = client.change_policy(name, build(PolicyChange, rules=rules))
    _show(changed, output)


@policy_app.command()
def revert(
    name: PolicyArgument,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Version to revert to (default: the previous one).")
    ] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Restore the rules of an earlier version of a policy."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        reverted = client.revert_policy(name, version=version)
    _show(reverted, output)


@policy_app.command()
def remove(name: PolicyArgument, server: ServerOption = None) -> None:
    """Remove a policy that is assigned to no tenant."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_policy(name)
    show_line(f"{name}: removed")


def _rules(context: typer.Context, rules: list[str] | None) -> dict[str, Any]:
    """Return the given rules; the server checks them."""
    named = {name: _value(value) for name, value in read_texts(rules or (), "--rule").items()}
    return {**named, **given_fields(context)}


def _value(text: str) -> Any:
    """Return the JSON value of the text, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _rules_text(rules: dict[str, Any]) -> str:
    return "; ".join(f"{name} {_written(value)}" for name, value in sorted(rules.items())) or NOTHING


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{amount} {slot}" for slot, amount in sorted(value.items()))
    return ", ".join(map(str, value)) if isinstance(value, list) else "unlimited" if value is None else str(value)


def _show(policy: PolicyView, output: Format) -> None:
    if output.is_document:
        show_document(policy, output)
        return
    show_fields(
        [
            ("policy", policy.name),
            *((name, _written(value)) for name, value in sorted(policy.rules.items())),
            ("carried by", f"{policy.carriers} tenant{'s' if policy.carriers != 1 else ''}"),
            ("version", str(policy.version)),
        ]
    )
