"""`mooring user`: who may use the server; for administrators of all or of their domain."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.options import TENANTS, DomainOption, OutputOption, PolicyOption, ServerOption
from mooring.cli.output import Cell, Column, Format, Styled, show_fields, show_json, show_line, show_table
from mooring.cli.prompts import ask_new_password, read_lines
from mooring.cli.words import instant
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.api import UserView

app = typer.Typer()
user_app = typer.Typer(help="Users of the server; for administrators.", no_args_is_help=True)
app.add_typer(user_app, name="user", rich_help_panel=TENANTS)

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="A user's name.")]
PasswordStdinOption = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]
OsUserOption = Annotated[
    str | None, typer.Option(metavar="ACCOUNT", help='The account that its processes run as; "" for none.')
]


class Role(StrEnum):
    ADMIN = "admin"
    DOMAIN_ADMIN = "domain-admin"
    USER = "user"


@user_app.command("add", hidden=True)
@user_app.command()
def create(
    name: UserArgument,
    role: Annotated[Role, typer.Option(help="What it may do.")] = Role.USER,
    project: Annotated[str | None, typer.Option(metavar="PROJECT", help="Made if it does not exist.")] = None,
    domain: DomainOption = None,
    os_user: OsUserOption = None,
    password_stdin: PasswordStdinOption = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Make a user; without --password-stdin a password is made and shown once."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build, checked_name
    from mooring.wire.api import UserRequest

    request = build(
        UserRequest,
        username=checked_name(name, what="user"),
        password=read_lines(1)[0] if password_stdin else None,
        role=role.value,
        project=checked_name(project, what="project"),
        domain=checked_name(domain, what="domain"),
        os_user=os_user,
    )
    with connect(server) as client:
        made = client.create_user(request)
    if output is Format.JSON:
        show_json(made)
        return
    show_line(f"{made.username}: {made.role} of project {made.project}")
    if made.password:
        show_line(f"password: {made.password}")
        say("the password is not shown again; its owner can change it with `mooring passwd`")


@user_app.command("list")
def list_users(domain: DomainOption = None, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """List the users that you may see."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.users(domain=domain)
    if output is Format.JSON:
        show_json(found)
        return
    columns = (
        Column("USER"),
        Column("ROLE"),
        Column("PROJECT"),
        Column("DOMAIN", wide=True),
        Column("RUNS AS"),
        Column("POLICY", wide=True),
        Column("STATE"),
        Column("SINCE"),
        Column("ID", wide=True),
    )
    show_table(columns, [_row(user) for user in found], output)


@user_app.command()
def show(name: UserArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show one user."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        user = client.user(name)
    if output is Format.JSON:
        show_json(user)
    else:
        names = ("user", "role", "project", "domain", "runs as", "policy", "state", "since", "id")
        show_fields(list(zip(names, _row(user), strict=True)))


@user_app.command()
def passwd(name: UserArgument, password_stdin: PasswordStdinOption = False, server: ServerOption = None) -> None:
    """Give a user a new password."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build
    from mooring.wire.api import UserChange

    password = read_lines(1)[0] if password_stdin else ask_new_password(name)
    with connect(server) as client:
        user = client.change_user(name, build(UserChange, password=password))
    show_line(f"the password of {user.username} is changed")


@user_app.command()
def remove(name: UserArgument, server: ServerOption = None) -> None:
    """Remove a user that never worked; one that did is deactivated with `mooring user change NAME --inactive`."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_user(name)
    show_line(f"{name}: removed")


@user_app.command("set", hidden=True)
@user_app.command()
def change(
    name: UserArgument,
    role: Annotated[Role | None, typer.Option(help="What it may do.")] = None,
    active: Annotated[bool | None, typer.Option("--active/--inactive", help="Whether it may log in.")] = None,
    os_user: OsUserOption = None,
    project: Annotated[
        str | None, typer.Option(metavar="PROJECT", help="Its default project; it must be a member.")
    ] = None,
    policy: PolicyOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Change a user's role, default project, policy, its account on the nodes, or whether it may log in."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build
    from mooring.wire.api import UserChange

    if all(given is None for given in (role, active, os_user, project, policy)):
        raise InvalidInput(
            "there is nothing to change: give --role, --active, --inactive, --os-user, --project or --policy"
        )
    request = build(
        UserChange, role=role.value if role else None, active=active, os_user=os_user, project=project, policy=policy
    )
    with connect(server) as client:
        user = client.change_user(name, request)
    if output is Format.JSON:
        show_json(user)
    else:
        runs_as = f", runs as {user.os_user}" if user.os_user else ""
        show_line(f"{user.username}: {user.role}, {'active' if user.active else 'inactive'}{runs_as}")


def _row(user: UserView) -> list[Cell]:
    state = "active" if user.active else Styled("inactive", "yellow")
    return [
        user.username,
        user.role,
        user.project,
        user.domain,
        user.os_user or "",
        user.policy or "",
        state,
        instant(user.created_at),
        str(user.id),
    ]
