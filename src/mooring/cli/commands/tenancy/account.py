"""`mooring login`, `logout`, `passwd` and `whoami`: who you are to the server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import ACCOUNT, OutputOption, ServerOption
from mooring.cli.output import Format, show_fields, show_json, show_line
from mooring.cli.prompts import ask_new_password, ask_password, read_lines
from mooring.cli.words import instant
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.client.local import LocalServer

app = typer.Typer()

CaFileOption = Annotated[
    Path | None, typer.Option("--ca-file", metavar="FILE", help="The authority that signed the server's certificate.")
]
PasswordStdinOption = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]


@app.command(rich_help_panel=ACCOUNT)
def login(
    username: Annotated[str | None, typer.Option("--username", "-u", metavar="NAME", help="Who you are.")] = None,
    password_stdin: PasswordStdinOption = False,
    keypair: Annotated[
        str | None,
        typer.Option(metavar="ACCESS_KEY", help="Log in with a keypair; its secret is asked for as a password is."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The data folder of a server on this machine.")
    ] = None,
    ca_file: CaFileOption = None,
    server: ServerOption = None,
) -> None:
    """Log in. On the machine and as the user that runs `mooring up`, nothing needs to be typed."""
    from mooring.cli.connection import connect
    from mooring.client.local import ADMIN, admin_password

    if keypair is not None:
        _keep_keypair(keypair, password_stdin, ca_file, server)
        return
    local = _local_server(server, data)
    authority = str(ca_file.resolve()) if ca_file else local.ca_file if local else None
    with connect(local.url if local else server, ca_file=authority) as client:
        password = admin_password(local.data) if local and username in (None, ADMIN) and not password_stdin else None
        if data and username is None and not password_stdin and password is None:
            raise InvalidInput(f"{data} holds no admin password that you may read; log in with --username")
        from_folder = local.data.resolve() if local and password else None
        name = username or (ADMIN if from_folder else _ask_username())
        if password is None:
            password = read_lines(1)[0] if password_stdin else ask_password(f"Password of {name}")
        token = client.login(name, password, remember=True, data_folder=from_folder, ca_file=authority)
        address = client.server
    show_line(f"logged in to {address} as {name}; the login is renewed by itself and lasts {_hours(token.expires_in)}")


@app.command(rich_help_panel=ACCOUNT)
def logout(
    all_: Annotated[bool, typer.Option("--all", help="Forget the logins to all servers.")] = False,
    server: ServerOption = None,
) -> None:
    """Forget the login on this machine."""
    from mooring.client.address import resolve_server
    from mooring.client.credentials import CredentialStore

    store = CredentialStore.of_user()
    for address in store.servers() if all_ else [resolve_server(server, store)]:
        known = store.forget(address)
        show_line(f"logged out of {address}" if known else f"there was no login to {address}")


@app.command(rich_help_panel=ACCOUNT)
def passwd(
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the old and the new password, a line each.")
    ] = False,
    server: ServerOption = None,
) -> None:
    """Change your password."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build
    from mooring.wire.api import PasswordChange

    with connect(server) as client:
        name = client.me().username
        if password_stdin:
            old, new = read_lines(2)
        else:
            old, new = ask_password(f"Present password of {name}"), ask_new_password(name)
        build(PasswordChange, old_password=old, new_password=new)
        client.change_password(old, new)
    show_line(f"the password of {name} is changed")


@app.command(rich_help_panel=ACCOUNT)
def whoami(output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show who you are to the server."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        user = client.me()
        address = client.server
    if output is Format.JSON:
        show_json(user)
        return
    show_fields(
        [
            ("user", user.username),
            ("role", user.role),
            ("project", user.project),
            ("domain", user.domain),
            ("runs as", user.os_user or ""),
            ("since", instant(user.created_at)),
            ("server", address),
        ]
    )


def _keep_keypair(access_key: str, secret_stdin: bool, ca_file: Path | None, server: str | None) -> None:
    """Try a keypair and remember it for the server."""
    import time

    from mooring.client import Client
    from mooring.client.address import resolve_server
    from mooring.client.credentials import CredentialStore, Login

    store = CredentialStore.of_user()
    address = resolve_server(server, store)
    authority = str(ca_file.resolve()) if ca_file else None
    secret = read_lines(1)[0] if secret_stdin else ask_password(f"Secret of {access_key}")
    with Client(address, keypair=(access_key, secret), store=store, ca_file=authority) as client:
        user = client.me()
        address = client.server
    now = time.time()
    store.save(address, Login(access_key, secret, now, now, ca_file=authority, keypair=True), make_last=True)
    show_line(f"logged in to {address} as {user.username} with the keypair {access_key}")


def _local_server(server: str | None, data: Path | None) -> LocalServer | None:
    """The server of this machine, if that is the one to log in to."""
    import os

    from mooring.client.address import canonical_address
    from mooring.client.local import find_local_server

    local = find_local_server(data)
    if data is not None and local is None:
        raise InvalidInput(f"{data} holds no record of a server; was it started with --data {data}?")
    named = server or os.environ.get("MOORING_SERVER")
    if local is None or (named and canonical_address(named) != canonical_address(local.url)):
        return None
    return local


def _ask_username() -> str:
    if not sys.stdin.isatty():
        raise InvalidInput("there is nobody to ask for a name; give --username")
    answer: str = typer.prompt("Username", err=True)
    return answer


def _hours(seconds: int) -> str:
    from mooring.cli.words import duration

    return duration(seconds)
