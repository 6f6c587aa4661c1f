"""`mooring secret` and `mooring registry`: what is secret of a project. Values never come from the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import TENANTS, DomainOption, OutputOption, ProjectOption, ServerOption
from mooring.cli.output import Column, Format, show_json, show_line, show_table
from mooring.cli.prompts import ask_password, read_lines
from mooring.cli.words import instant
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.client import Client

app = typer.Typer()
secret_app = typer.Typer(help="Secrets of a project: files that its tasks find.", no_args_is_help=True)
registry_app = typer.Typer(help="How a project logs in to registries of images.", no_args_is_help=True)
app.add_typer(secret_app, name="secret", rich_help_panel=TENANTS)
app.add_typer(registry_app, name="registry", rich_help_panel=TENANTS)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A secret's name.")]
HostArgument = Annotated[str, typer.Argument(metavar="HOST", help="A registry, such as ghcr.io or docker.io.")]


@secret_app.command("set")
def set_secret(
    name: NameArgument,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", metavar="FILE", help="What it says; else standard input, as it is.")
    ] = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
    server: ServerOption = None,
) -> None:
    """Set a secret, new or in the place of what it was. Tasks that run keep what they got."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import checked_name

    checked_name(name, what="secret")
    content = _content(name, from_file)
    with connect(server) as client:
        kept = client.put_secret(_project(client, project), name, content, domain=domain)
    show_line(f"{kept.name}: {kept.size} bytes")


@secret_app.command("list")
def list_secrets(
    project: ProjectOption = None,
    domain: DomainOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """List the secrets of a project, without what they say."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.secrets(_project(client, project), domain=domain)
    if output is Format.JSON:
        show_json(found)
        return
    columns = (Column("SECRET"), Column("BYTES", number=True), Column("CHANGED"), Column("SINCE"))
    rows = [[one.name, str(one.size), instant(one.updated_at), instant(one.created_at)] for one in found]
    show_table(columns, rows, output)


@secret_app.command("remove")
def remove_secret(
    name: NameArgument, project: ProjectOption = None, domain: DomainOption = None, server: ServerOption = None
) -> None:
    """Remove a secret. Tasks that run keep it; those that have not started fail without it."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_secret(_project(client, project), name, domain=domain)
    show_line(f"{name}: removed")


@registry_app.command()
def login(
    host: HostArgument,
    username: Annotated[str, typer.Option("--username", "-u", metavar="NAME", help="Who the project is there.")],
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    project: ProjectOption = None,
    domain: DomainOption = None,
    server: ServerOption = None,
) -> None:
    """Let a project's tasks pull from a registry with a password or a token, which is asked for."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build
    from mooring.wire.secrets import RegistryLoginRequest

    password = read_lines(1)[0] if password_stdin else ask_password(f"Password of {username} at {host}")
    request = build(RegistryLoginRequest, username=username, password=password)
    with connect(server) as client:
        kept = client.put_registry_login(_project(client, project), host, request, domain=domain)
    show_line(f"{kept.registry}: tasks log in as {kept.username}")


@registry_app.command("list")
def list_logins(
    project: ProjectOption = None,
    domain: DomainOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """List where a project logs in, without passwords."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.registry_logins(_project(client, project), domain=domain)
    if output is Format.JSON:
        show_json(found)
        return
    columns = (Column("REGISTRY"), Column("USERNAME"), Column("CHANGED"), Column("SINCE"))
    rows = [[one.registry, one.username, instant(one.updated_at), instant(one.created_at)] for one in found]
    show_table(columns, rows, output)


@registry_app.command()
def logout(
    host: HostArgument, project: ProjectOption = None, domain: DomainOption = None, server: ServerOption = None
) -> None:
    """Forget how a project logs in to a registry."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_registry_login(_project(client, project), host, domain=domain)
    show_line(f"{host}: logged out")


def _project(client: Client, project: str | None) -> str:
    return project or client.me().project


def _content(name: str, file: Path | None) -> bytes:
    if file is not None:
        try:
            return file.read_bytes()
        except OSError as error:
            raise InvalidInput(f"cannot read {file}: {error.strerror}") from None
    if sys.stdin.isatty():
        return ask_password(f"What {name} says").encode()
    return sys.stdin.buffer.read()
