"""`mooring domain`: domains, the outermost tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import (
    TENANTS,
    ActiveOption,
    OutputOption,
    PolicyOption,
    ServerOption,
)
from mooring.cli.rendering.formatting import NOTHING, instant
from mooring.cli.rendering.output import (
    TABLE,
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
    from mooring.wire.tenancy.tenants import DomainView

app = App()
domain_app = App(help="Manage domains, which contain projects and users.", no_args_is_help=True)
app.add_typer(domain_app, name="domain", rich_help_panel=TENANTS)

DomainArgument = Annotated[str, typer.Argument(metavar="DOMAIN", help="The domain's name.")]


@domain_app.command()
def create(name: DomainArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Create a domain."""
    from mooring.cli.connection import connect
    from mooring.model.names import check_name

    check_name(name, what="domain")
    with connect(server) as client:
        made = client.create_domain(name)
    _show(made, output)


@domain_app.command("list")
@with_groups
def list_domains(output: Listing = TABLE, server: ServerOption = None) -> None:
    """List the domains that you may see."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.domains()
    if output.is_document:
        show_document(found, output)
        return
    columns = (Column("DOMAIN"), Column("STATE"), Column("POLICY"), Column("SINCE"), Column("VERSION", number=True))
    rows = [
        [domain.name, state(domain.active), domain.policy or NOTHING, instant(domain.created_at), str(domain.version)]
        for domain in found
    ]
    show_table(columns, rows, output)


@domain_app.command()
def show(name: DomainArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show a domain."""
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
    """Activate or deactivate a domain, or assign a policy to it."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build
    from mooring.wire.tenancy.tenants import TenantChange

    if active is None and policy is None:
        raise InvalidInput("no change is given; use --active, --inactive or --policy")
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
    if output.is_document:
        show_document(domain, output)
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
