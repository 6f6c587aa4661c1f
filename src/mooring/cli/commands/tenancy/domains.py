"""`mooring domain`: the outermost tenants; for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import TENANTS, ActiveOption, OutputOption, PolicyOption, ServerOption
from mooring.cli.output import Column, Format, Styled, show_fields, show_json, show_line, show_table
from mooring.cli.words import NOTHING, instant
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.tenants import DomainView

app = typer.Typer()
domain_app = typer.Typer(help="Domains: what projects and users belong to.", no_args_is_help=True)
app.add_typer(domain_app, name="domain", rich_help_panel=TENANTS)

DomainArgument = Annotated[str, typer.Argument(metavar="DOMAIN", help="A domain's name.")]


@domain_app.command()
def create(name: DomainArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Make a domain."""
    from mooring.cli.connection import connect
    from mooring.model.names import check_name

    check_name(name, what="domain")
    with connect(server) as client:
        made = client.create_domain(name)
    _show(made, output)


@domain_app.command("list")
def list_domains(output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """List the domains that you may see."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.domains()
    if output is Format.JSON:
        show_json(found)
        return
    columns = (Column("DOMAIN"), Column("STATE"), Column("POLICY"), Column("SINCE"), Column("VERSION", number=True))
    rows = [
        [domain.name, state(domain.active), domain.policy or NOTHING, instant(domain.created_at), str(domain.version)]
        for domain in found
    ]
    show_table(columns, rows, output)


@domain_app.command()
def show(name: DomainArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show one domain."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.domain(name)
    _show(found, output)


@domain_app.command()
def change(
    name: DomainArgument,
    active: ActiveOption = None,
    policy: PolicyOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Activate or deactivate a domain, or give it a policy."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build
    from mooring.wire.tenants import TenantChange

    if active is None and policy is None:
        raise InvalidInput("there is nothing to change: give --active, --inactive or --policy")
    with connect(server) as client:
        changed = client.change_domain(name, build(TenantChange, active=active, policy=policy))
    _show(changed, output)


@domain_app.command()
def remove(name: DomainArgument, server: ServerOption = None) -> None:
    """Remove a domain that has no projects and no users."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_domain(name)
    show_line(f"{name}: removed")


def state(active: bool) -> str | Styled:
    return "active" if active else Styled("inactive", "yellow")


def _show(domain: DomainView, output: Format) -> None:
    if output is Format.JSON:
        show_json(domain)
        return
    show_fields(
        [
            ("domain", domain.name),
            ("state", state(domain.active)),
            ("policy", domain.policy or ""),
            ("since", instant(domain.created_at)),
            ("version", str(domain.version)),
        ]
    )
