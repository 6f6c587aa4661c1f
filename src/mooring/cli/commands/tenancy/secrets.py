"""`mooring secret` and `mooring registry`: secrets of a project. Values never come from the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.option_groups import with_groups
from mooring.cli.input.options import (
    TENANTS,
    DomainOption,
    ProjectOption,
    ServerOption,
)
from mooring.cli.input.prompts import ask_password, read_lines
from mooring.cli.rendering.formatting import instant
from mooring.cli.rendering.output import (
    TABLE,
    Column,
    Listing,
    show_document,
    show_line,
    show_table,
)
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.client import Client

app = App()
secret_app = App(help="Manage secrets of a project, which its tasks read as files.", no_args_is_help=True)
registry_app = App(help="Manage a project's logins to image registries.", no_args_is_help=True)
app.add_typer(secret_app, name="secret", rich_help_panel=TENANTS)
app.add_typer(registry_app, name="registry", rich_help_panel=TENANTS)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The secret's name.")]
HostArgument = Annotated[str, typer.Argument(metavar="HOST", help="Registry, such as ghcr.io or docker.io.")]


@dataclass(frozen=True, kw_only=True)
class ProjectOptions:
    """The project that owns the secrets, and the server that stores them."""

    project: ProjectOption = None
    domain: DomainOption = None
    server: ServerOption = None

    @contextmanager
    def connected(self) -> Iterator[tuple[Client, str]]:
        """Return the client and the project's name, which is the user's default project if none is given."""
        from mooring.cli.connection import connect

        with connect(self.server) as client:
            yield client, self.project or client.me().project


@secret_app.command("set")
@with_groups
def set_secret(
    name: NameArgument,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", metavar="FILE", help="File with the value (default: standard input).")
    ] = None,
    *,
    of: ProjectOptions,
) -> None:
    """Create or replace a secret. Running tasks keep the value that they started with."""
    from mooring.cli.input.requests import checked_name

    checked_name(name, what="secret")
    content = _content(name, from_file)
    with of.connected() as (client, project):
        stored = client.put_secret(project, name, content, domain=of.domain)
    show_line(f"{stored.name}: {stored.size} bytes")


@secret_app.command("list")
@with_groups
def list_secrets(of: ProjectOptions, output: Listing = TABLE) -> None:
    """List the secrets of a project, without their values."""
    with of.connected() as (client, project):
        found = client.secrets(project, domain=of.domain)
    if output.is_document:
        show_document(found, output)
        return
    columns = (Column("SECRET"), Column("BYTES", number=True), Column("CHANGED"), Column("SINCE"))
    rows = [[one.name, str(one.size), instant(one.updated_at), instant(one.created_at)] for one in found]
    show_table(columns, rows, output)


@secret_app.command("remove")
@with_groups
def remove_secret(name: NameArgument, of: ProjectOptions) -> None:
    """Remove a secret. Running tasks keep it; tasks that use it and have not started will fail."""
    with of.connected() as (client, project):
        client.remove_secret(project, name, domain=of.domain)
    show_line(f"{name}: removed")


@registry_app.command()
@with_groups
def login(
    host: HostArgument,
    username: Annotated[str, typer.Option("--username", "-u", metavar="NAME", help="User name at the registry.")],
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    *,
    of: ProjectOptions,
) -> None:
    """Store a login with which a project's tasks pull images. Prompts for the password or token."""
    from mooring.cli.input.requests import build
    from mooring.wire.workloads.secrets import RegistryLoginRequest

    password = read_lines(1)[0] if password_stdin else ask_password(f"Password of {username} at {host}")
    request = build(RegistryLoginRequest, username=username, password=password)
    with of.connected() as (client, project):
        stored = client.put_registry_login(project, host, request, domain=of.domain)
    show_line(f"{stored.registry}: tasks log in as {stored.username}")


@registry_app.command("list")
@with_groups
def list_logins(of: ProjectOptions, output: Listing = TABLE) -> None:
    """List the registry logins of a project, without passwords."""
    with of.connected() as (client, project):
        found = client.registry_logins(project, domain=of.domain)
    if output.is_document:
        show_document(found, output)
        return
    columns = (Column("REGISTRY"), Column("USERNAME"), Column("CHANGED"), Column("SINCE"))
    rows = [[one.registry, one.username, instant(one.updated_at), instant(one.created_at)] for one in found]
    show_table(columns, rows, output)


@registry_app.command()
@with_groups
def logout(host: HostArgument, of: ProjectOptions) -> None:
    """Remove a project's login to a registry."""
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
        return ask_password(f"Value of {name}").encode()
    return sys.stdin.buffer.read()
