"""`mooring login`, `logout`, `passwd` and `whoami`: the user's own account."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.help import App
from mooring.cli.input.options import ACCOUNT, OutputOption, ServerOption
from mooring.cli.input.prompts import ask_new_password, ask_password, read_lines
from mooring.cli.rendering.formatting import instant
from mooring.cli.rendering.output import (
    Format,
    show_document,
    show_fields,
    show_line,
)
from mooring.model.errors import InvalidInput, MooringError, NotAuthenticated, NotFound

if TYPE_CHECKING:
    from mooring.client.credentials import Login
    from mooring.client.local import LocalServer

app = App()

_LOGOUT_SECONDS = 5.0

CaFileOption = Annotated[
    Path | None, typer.Option("--ca-file", metavar="FILE", help="CA certificate of the server (PEM).")
]
PasswordStdinOption = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]


@app.command(rich_help_panel=ACCOUNT)
def login(
    username: Annotated[str | None, typer.Option("--username", "-u", metavar="NAME", help="User name.")] = None,
    password_stdin: PasswordStdinOption = False,
    keypair: Annotated[
        str | None,
        typer.Option(metavar="ACCESS_KEY", help="Access key to log in with; prompts for its secret."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Data folder of a server on this machine.")
    ] = None,
    ca_file: CaFileOption = None,
    server: ServerOption = None,
) -> None:
    """Log in. The user that runs `mooring up` needs no password on the same machine."""
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
            raise InvalidInput(f"{data} has no admin password that you can read; log in with --username")
        from_folder = local.data.resolve() if local and password else None
        name = username or (ADMIN if from_folder else _ask_username())
        if password is None:
            password = read_lines(1)[0] if password_stdin else ask_password(f"Password of {name}")
        token = client.login(name, password, remember=True, data_folder=from_folder, ca_file=authority)
        address = client.server
    show_line(
        f"logged in to {address} as {name}; the login lasts {_hours(token.expires_in)} and is renewed automatically"
    )


@app.command(rich_help_panel=ACCOUNT)
def logout(
    all_: Annotated[bool, typer.Option("--all", help="Remove the logins to all servers.")] = False,
    server: ServerOption = None,
) -> None:
    """End the stored login, and remove it from this machine. A keypair is only removed."""
    from mooring.client.address import resolve_server
    from mooring.client.credentials import CredentialStore

    store = CredentialStore.of_user()
    for address in store.servers() if all_ else [resolve_server(server, store)]:
        stored = store.get(address)
        if stored is not None and not stored.keypair:
            _end_login(address, stored)
        known = store.forget(address)
        show_line(f"logged out of {address}" if known else f"not logged in to {address}")


@app.command(rich_help_panel=ACCOUNT)
def passwd(
    password_stdin: Annotated[
        bool,
        typer.Option("--password-stdin", help="Read the old and the new password from standard input, one per line."),
    ] = False,
    revoke_keypairs: Annotated[
        bool, typer.Option("--revoke-keypairs", help="Also deactivate your keypairs that have a secret.")
    ] = False,
    server: ServerOption = None,
) -> None:
    """Change your password. Your other logins end; keypairs stay valid unless you revoke them."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build
    from mooring.wire.tenancy.users import PasswordChange

    with connect(server) as client:
        name = client.me().username
        if password_stdin:
            old, new = read_lines(2)
        else:
            old, new = ask_password(f"Current password of {name}"), ask_new_password(name)
        build(PasswordChange, old_password=old, new_password=new)
        client.change_password(old, new, revoke_keypairs=revoke_keypairs)
    show_line(f"{name}: password changed")


@app.command(rich_help_panel=ACCOUNT)
def whoami(output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show the user that you are logged in as."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        user = client.me()
        address = client.server
    if output.is_document:
        show_document(user, output)
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


def _end_login(address: str, stored: Login) -> None:
    """End the login at its server, if the server answers and the login has not ended already."""
    from mooring.client import Client

    try:
        # With the token alone: no renewal, and no new login from the data folder.
        with Client(address, token=stored.token, ca_file=stored.ca_file, timeout_seconds=_LOGOUT_SECONDS) as client:
            client.end_login("current")
    except (NotAuthenticated, NotFound):
        return
    except MooringError as problem:
        say(f"{address}: the login was not ended there and expires by itself: {problem.message}")


def _keep_keypair(access_key: str, secret_stdin: bool, ca_file: Path | None, server: str | None) -> None:
    """Check a keypair and store it for the server."""
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
    """Return the server of this machine, if it is the one to log in to."""
    import os

    from mooring.client.address import canonical_address
    from mooring.client.local import find_local_server

    local = find_local_server(data)
    if data is not None and local is None:
        raise InvalidInput(f"{data} has no record of a server; was the server started with --data {data}?")
    named = server or os.environ.get("MOORING_SERVER")
    if local is None or (named and canonical_address(named) != canonical_address(local.url)):
        return None
    return local


def _ask_username() -> str:
    if not sys.stdin.isatty():
        raise InvalidInput("cannot ask for a user name without a terminal; use --username")
    answer: str = typer.prompt("Username", err=True)
    return answer


def _hours(seconds: int) -> str:
    from mooring.cli.rendering.formatting import duration

    return duration(seconds)
