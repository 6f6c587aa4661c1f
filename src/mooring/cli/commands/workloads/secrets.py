"""`mooring secret` and `mooring registry`: what is secret of a project. Values never come from the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.option_groups import with_groups
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


@dataclass(frozen=True, kw_only=True)
class ProjectOptions:
    """Whose secrets are meant, and where they are kept."""

    project: ProjectOption = None
    domain: DomainOption = None
    server: ServerOption = None

    @contextmanager
    def connected(self) -> Iterator[tuple[Client, str]]:
        """The client, and the name of the project: one's own if none was named."""
        from mooring.cli.connection import connect

        with connect(self.server) as client:
            yield client, self.project or client.me().project


@secret_app.command("set")
@with_groups
def set_secret(
    name: NameArgument,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", metavar="FILE", help="What it says; else standard input, as it is.")
    ] = None,
    *,
    of: ProjectOptions,
) -> None:
    """Set a secret, new or in the place of what it was. Tasks that run keep what they got."""
    from mooring.cli.requests import checked_name

    checked_name(name, what="secret")
    content = _content(name, from_file)
    with of.connected() as (client, project):
        kept = client.put_secret(project, name, content, domain=of.domain)
    show_line(f"{kept.name}: {kept.size} bytes")


@secret_app.command("list")
@with_groups
def list_secrets(of: ProjectOptions, output: OutputOption = Format.TABLE) -> None:
    """List the secrets of a project, without what they say."""
    with of.connected() as (client, project):
        found = client.secrets(project, domain=of.domain)
    if output is Format.JSON:
        show_json(found)
        return
    columns = (Column("SECRET"), Column("BYTES", number=True), Column("CHANGED"), Column("SINCE"))
    rows = [[one.name, str(one.size), instant(one.updated_at), instant(one.created_at)] for one in found]
    show_table(columns, rows, output)


@secret_app.command("remove")
@with_groups
def remove_secret(name: NameArgument, of: ProjectOptions) -> None:
    """Remove a secret. Tasks that run keep it; those that have not started fail without it."""
    with of.connected() as (client, project):
        client.remove_secret(project, name, domain=of.domain)
    show_line(f"{name}: removed")


@registry_app.command()
@with_groups
def login(
    host: HostArgument,
    username: Annotated[str, typer.Option("--username", "-u", metavar="NAME", help="Who the project is there.")],
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    *,
    of: ProjectOptions,
) -> None:
    """Let a project's tasks pull from a registry with a password or a token, which is asked for."""
    from mooring.cli.requests import build
    from mooring.wire.secrets import RegistryLoginRequest

    password = read_lines(1)[0] if password_stdin else ask_password(f"Password of {username} at {host}")
    request = build(RegistryLoginRequest, username=username, password=password)
    with of.connected() as (client, project):
        kept = client.put_registry_login(project, host, request, domain=of.domain)
    show_line(f"{kept.registry}: tasks log in as {kept.username}")


@registry_app.command("list")
@with_groups
def list_logins(of: ProjectOptions, output: OutputOption = Format.TABLE) -> None:
    """List where a project logs in, without passwords."""
    with of.connected() as (client, project):
        found = client.registry_logins(project, domain=of.domain)
    if output is Format.JSON:
        show_json(found)
        return
    columns = (Column("REGISTRY"), Column("USERNAME"), Column("CHANGED"), Column("SINCE"))
    rows = [[one.registry, one.username, instant(one.updated_at), instant(one.created_at)] for one in found]
    show_table(columns, rows, output)


@registry_app.command()
@with_groups
def logout(host: HostArgument, of: ProjectOptions) -> None:
    """Forget how a project logs in to a registry."""
    with of.connected() as (client, project):
        client.remove_registry_login(project, host, domain=of.domain)
    show_line(f"{host}: logged out")


def _content(name: str, file: Path | None) -> bytes:
    if file is not None:
        try:
            return file.read_bytes()
        except OSError as error:
            raise InvalidInput(f"cannot read {file}: {error.strerror}") from None
    if sys.stdin.isatty():
        return ask_password(f"What {name} says").encode()
    return sys.stdin.buffer.read()
