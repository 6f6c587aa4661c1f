"""`mooring user`: users of the server; for administrators of the server or of a domain."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import (
    TENANTS,
    DomainOption,
    OutputOption,
    PolicyOption,
    ServerOption,
)
from mooring.cli.input.prompts import ask_new_password, read_lines
from mooring.cli.rendering.formatting import instant
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Format,
    Listing,
    Styled,
    show_document,
    show_fields,
    show_line,
    show_table,
)
from mooring.model.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.wire.tenancy.users import UserView

app = App()
user_app = App(help="Manage users of the server; for administrators.", no_args_is_help=True)
app.add_typer(user_app, name="user", rich_help_panel=TENANTS)

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
PasswordStdinOption = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]
OsUserOption = Annotated[
    str | None, typer.Option(metavar="ACCOUNT", help='OS account that the user\'s processes run as, or "" for none.')
]


class Role(StrEnum):
    ADMIN = "admin"
    DOMAIN_ADMIN = "domain-admin"
    USER = "user"


@user_app.command("add", hidden=True)
@user_app.command()
def create(
    name: UserArgument,
    role: Annotated[Role, typer.Option(help="Role of the user.")] = Role.USER,
    project: Annotated[
        str | None, typer.Option(metavar="PROJECT", help="Default project (default: that of the domain).")
    ] = None,
    create_project: Annotated[
        bool, typer.Option("--create-project", help="Create the project if it does not exist.")
    ] = False,
    domain: DomainOption = None,
    os_user: OsUserOption = None,
    password_stdin: PasswordStdinOption = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Create a user. Without --password-stdin, a password is generated and shown once."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, checked_name
    from mooring.wire.tenancy.users import UserRequest

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
        if project is not None and not create_project:
            _require_project(client, project, domain)
        made = client.create_user(request)
    if output.is_document:
        show_document(made, output)
        return
    show_line(f"{made.username}: {made.role} of project {made.project}")
    if made.password:
        show_line(f"password: {made.password}")
        say("the password is not shown again; the user can change it with `mooring passwd`")


def _require_project(client: Client, project: str, domain: str | None) -> None:
    """Raise an error if there is no such project: the server would create one for a mistyped name."""
    try:
        client.project(project, domain=domain)
    except NotFound as error:
        from mooring.cli.suggestions import suggestion

        missing = NotFound(f"there is no project {project!r}", details={"noun": "project", "name": project})
        missing.details["hint"] = f"{suggestion(missing) or ''} --create-project creates it".strip()
        raise missing from error


@user_app.command("list")
@with_groups
def list_users(domain: DomainOption = None, output: Listing = TABLE, server: ServerOption = None) -> None:
    """List the users that you may see."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.users(domain=domain)
    if output.is_document:
        show_document(found, output)
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
    """Show a user."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        user = client.user(name)
    if output.is_document:
        show_document(user, output)
    else:
        names = ("user", "role", "project", "domain", "runs as", "policy", "state", "since", "id")
        show_fields(list(zip(names, _row(user), strict=True)))


@user_app.command()
def passwd(name: UserArgument, password_stdin: PasswordStdinOption = False, server: ServerOption = None) -> None:
    """Set a user's password."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build
    from mooring.wire.tenancy.users import UserChange

    password = read_lines(1)[0] if password_stdin else ask_new_password(name)
    with connect(server) as client:
        user = client.change_user(name, build(UserChange, password=password))
    show_line(f"{user.username}: password changed")


@user_app.command()
def remove(name: UserArgument, server: ServerOption = None) -> None:
    """Remove a user without any work. Deactivate others with `mooring user change NAME --inactive`."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_user(name)
    show_line(f"{name}: removed")


@user_app.command("set", hidden=True)
@user_app.command()
def change(
    name: UserArgument,
    role: Annotated[Role | None, typer.Option(help="Role of the user.")] = None,
    active: Annotated[
        bool | None, typer.Option("--active/--inactive", help="Allow or forbid the user to log in.")
    ] = None,
    os_user: OsUserOption = None,
    project: Annotated[
        str | None, typer.Option(metavar="PROJECT", help="Default project, of which the user must be a member.")
    ] = None,
    policy: PolicyOption = None,
    revoke_keypairs: Annotated[
        bool, typer.Option("--revoke-keypairs", help="Deactivate the user's keypairs that have a secret.")
    ] = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Change a user's role, default project, policy, OS account, or permission to log in."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build
    from mooring.wire.tenancy.users import UserChange

    if all(given is None for given in (role, active, os_user, project, policy, revoke_keypairs or None)):
        raise InvalidInput(
            "no change is given; use --role, --active, --inactive, --os-user, --project, --policy or --revoke-keypairs"
        )
    request = build(
        UserChange,
        role=role.value if role else None,
        active=active,
        os_user=os_user,
        project=project,
        policy=policy,
        revoke_keypairs=revoke_keypairs or None,
    )
    with connect(server) as client:
        user = client.change_user(name, request)
    if output.is_document:
        show_document(user, output)
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
