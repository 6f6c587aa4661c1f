"""`mooring policy`: what those may do who carry one, and how much; for administrators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.options import TENANTS, OutputOption, ServerOption
from mooring.cli.output import Column, Format, show_fields, show_json, show_line, show_table
from mooring.cli.words import NOTHING, instant
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.tenants import PolicyView

app = typer.Typer()
policy_app = typer.Typer(help="Policies: limits and rights that tenants carry.", no_args_is_help=True)
app.add_typer(policy_app, name="policy", rich_help_panel=TENANTS)

PolicyArgument = Annotated[str, typer.Argument(metavar="POLICY", help="A policy's name.")]
LimitOption = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="SLOT=AMOUNT", help="How much one may use at once; may be repeated."),
]
RightOption = Annotated[
    list[str] | None, typer.Option("--right", metavar="RIGHT", help="private, system or designate; may be repeated.")
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option("--rule", metavar="NAME=VALUE", help="Any rule, such as max_sessions=5; may be repeated."),
]


@policy_app.command()
def create(
    name: PolicyArgument,
    limit: LimitOption = None,
    right: RightOption = None,
    rule: RuleOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Make a policy; it holds for those who are given it with --policy."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build, checked_name
    from mooring.wire.tenants import PolicyRequest

    request = build(PolicyRequest, name=checked_name(name, what="policy"), rules=_rules(limit, right, rule))
    with connect(server) as client:
        made = client.create_policy(request)
    _show(made, output)


@policy_app.command("list")
def list_policies(output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """List the policies."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.policies()
    if output is Format.JSON:
        show_json(found)
        return
    columns = (
        Column("POLICY"),
        Column("RULES"),
        Column("CARRIED BY", number=True),
        Column("VERSION", number=True),
        Column("SINCE", wide=True),
    )
    rows = [
        [policy.name, _words(policy.rules), str(policy.carriers), str(policy.version), instant(policy.created_at)]
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


@policy_app.command()
def change(
    name: PolicyArgument,
    limit: LimitOption = None,
    right: RightOption = None,
    rule: RuleOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Change rules of a policy. --limit replaces all its limits, --right all its rights."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build
    from mooring.wire.tenants import PolicyChange

    rules = _rules(limit, right, rule)
    if not rules:
        raise InvalidInput("there is nothing to change: give --limit, --right or --rule")
    with connect(server) as client:
        changed = client.change_policy(name, build(PolicyChange, rules=rules))
    _show(changed, output)


@policy_app.command()
def revert(
    name: PolicyArgument,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="To this version; else the one before.")
    ] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Give a policy the rules of an earlier version back."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        reverted = client.revert_policy(name, version=version)
    _show(reverted, output)


@policy_app.command()
def remove(name: PolicyArgument, server: ServerOption = None) -> None:
    """Remove a policy that nobody carries."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_policy(name)
    show_line(f"{name}: removed")


def _rules(limits: list[str] | None, rights: list[str] | None, rules: list[str] | None) -> dict[str, Any]:
    """The rules as the API takes them; whether they can be meant is for the server to say."""
    from mooring.cli.requests import assignments

    written: dict[str, Any] = {name: _value(value) for name, value in assignments(rules, option="--rule").items()}
    if limits:
        written["limits"] = assignments(limits, option="--limit")
    if rights:
        written["rights"] = rights
    return written


def _value(text: str) -> Any:
    """A number, null, a list or a mapping as JSON; anything else is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _words(rules: dict[str, Any]) -> str:
    return "; ".join(f"{name} {_written(value)}" for name, value in sorted(rules.items())) or NOTHING


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{amount} {slot}" for slot, amount in sorted(value.items()))
    return ", ".join(map(str, value)) if isinstance(value, list) else "unlimited" if value is None else str(value)


def _show(policy: PolicyView, output: Format) -> None:
    if output is Format.JSON:
        show_json(policy)
        return
    show_fields(
        [
            ("policy", policy.name),
            *((name, _written(value)) for name, value in sorted(policy.rules.items())),
            ("carried by", f"{policy.carriers} tenant{'s' if policy.carriers != 1 else ''}"),
            ("version", str(policy.version)),
        ]
    )
