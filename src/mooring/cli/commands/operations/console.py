"""`mooring console`: a link to the web console that logs in once."""

from __future__ import annotations

import os
import sys
from html import escape
from pathlib import Path
from typing import Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.help import App
from mooring.cli.input.options import ACCOUNT, ServerOption
from mooring.cli.rendering.output import show_line

app = App()

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<title>Mooring</title>
</head>
<body><a href="{link}">Open the console</a></body>
</html>
"""


@app.command(rich_help_panel=ACCOUNT)
def console(
    print_: Annotated[bool, typer.Option("--print", help="Only print the link; do not open a browser.")] = False,
    server: ServerOption = None,
) -> None:
    """Open the web console in a browser, logged in as you. The printed link works once, for ten minutes."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        code = client.create_login_code().code
        link = f"{client.server.rstrip('/')}/login#code={code}"
    show_line(link)
    # Without a display, the browsers that are found run in the terminal and cannot show the console.
    if not print_ and sys.stdout.isatty() and (sys.platform == "darwin" or os.environ.get("DISPLAY")):
        _open(link)


def _open(link: str) -> None:
    """Open the link in a browser, which gets the address of a private page that leads to it.

    Every user of this machine can read the arguments of a program, and could use the code before the browser does.
    """
    import webbrowser

    try:
        webbrowser.open(_private_page(link).as_uri())
    except (OSError, webbrowser.Error) as error:
        say(f"no browser could be opened ({error}); open the link yourself")


def _private_page(link: str) -> Path:
    from mooring.client.credentials import CredentialStore
    from mooring.security.private_files import write_private

    page = CredentialStore.of_user().path.with_name("console.html")
    page.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(page, _PAGE.format(link=escape(link)))
    return page
