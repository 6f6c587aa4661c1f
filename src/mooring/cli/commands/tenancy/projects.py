"""`mooring project`: projects and their members."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.commands.tenancy.domains import state
from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import (
    TENANTS,
    ActiveOption,
    DomainOption,
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
    show_document,
    show_fields,
    show_line,
    show_table,
)
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.tenancy.tenants import MemberView, ProjectView

app = App()
project_app = App(help="Manage projects and their members.", no_args_is_help=True)
app.add_typer(project_app, name="project", rich_help_panel=TENANTS)

ProjectArgument = Annotated[str, typer.Argument(metavar="PROJECT", help="The project's name.")]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]


class MemberRole(StrEnum):
    USER = "user"
    PROJECT_ADMIN = "project-admin"


@project_app.command()
def create(
    name: ProjectArgument, domain: DomainOption = None, output: OutputOption = Format.TABLE, server: ServerOption = None
) -> None:
    """Create a project."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, checked_name
    from mooring.wire.tenancy.tenants import ProjectRequest

    request = build(ProjectRequest, name=checked_name(name, what="project"), domain=domain)
    with connect(server) as client:
        made = client.create_project(request)
    _show(made, output)


@project_app.command("list")
@with_groups
def list_projects(domain: DomainOption = None, output: Listing = TABLE, server: ServerOption = None) -> None:
    """List the projects that you may see."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.projects(domain=domain)
    if output.is_document:
        show_document(found, output)
        return
    columns = (
        Column("PROJECT"),
        Column("DOMAIN"),
        Column("STATE"),
        Column("MEMBERS", number=True),
        Column("POLICY"),
        Column("SINCE"),
        Column("VERSION", number=True, wide=True),
    )
    rows = [
        [
            project.name,
            project.domain,
            state(project.active),
            str(project.members),
            project.policy or NOTHING,
            instant(project.created_at),
            str(project.version),
        ]
        for project in found
    ]
    show_table(columns, rows, output)


@project_app.command()
def show(
    name: ProjectArgument, domain: DomainOption = None, output: OutputOption = Format.TABLE, server: ServerOption = None
) -> None:
    """Show a project."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.project(name, domain=domain)
    _show(found, output)


@project_app.command()
def change(
    name: ProjectArgument,
    active: ActiveOption = None,
    policy: PolicyOption = None,
    domain: DomainOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Activate or deactivate a project, or assign a policy to it."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build
    from mooring.wire.tenancy.tenants import TenantChange

    if active is None and policy is None:
        raise InvalidInput("no change is given; use --active, --inactive or --policy")
    with connect(server) as client:
        changed = client.change_project(name, build(TenantChange, active=active, policy=policy), domain=domain)
    _show(changed, output)


@project_app.command()
def remove(name: ProjectArgument, domain: DomainOption = None, server: ServerOption = None) -> None:
    """Remove a project that has no work and is no user's default project."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_project(name, domain=domain)
    show_line(f"{name}: removed")


@project_app.command()
@with_groups
def members(
    name: ProjectArgument, domain: DomainOption = None, output: Listing = TABLE, server: ServerOption = None
) -> None:
    """List the members of a project."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.members(name, domain=domain)
    _show_members(found, output)


@project_app.command("add-member")
def add_member(
    name: ProjectArgument,
    user: UserArgument,
    role: Annotated[MemberRole, typer.Option(help="Role in the project.")] = MemberRole.USER,
    domain: DomainOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Add a user to a project, or change a member's role."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build
    from mooring.wire.tenancy.tenants import MemberRequest

    with connect(server) as client:
        found = client.add_member(name, build(MemberRequest, username=user, role=role.value), domain=domain)
    _show_members(found, output)


@project_app.command("remove-member")
def remove_member(
    name: ProjectArgument, user: UserArgument, domain: DomainOption = None, server: ServerOption = None
) -> None:
    """Remove a member from a project. The user's keypairs in the project become invalid."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_member(name, user, domain=domain)
    show_line(f"{user} is no longer a member of {name}")


def _show(project: ProjectView, output: Format) -> None:
    if output.is_document:
        show_document(project, output)
        return
    show_fields(
        [
            ("project", project.name),
            ("domain", project.domain),
            ("state", state(project.active)),
            ("members", str(project.members)),
            ("policy", project.policy or ""),
            ("since", instant(project.created_at)),
            ("version", str(project.version)),
        ]
    )


def _show_members(found: list[MemberView], output: Format | Listing) -> None:
    if output.is_document:
        show_document(found, output)
        return
    columns = (Column("USER"), Column("ROLE"), Column("STATE"), Column("SINCE"))
    rows = [[one.username, one.role, state(one.active), instant(one.created_at)] for one in found]
    show_table(columns, rows, output)
