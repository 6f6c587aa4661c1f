"""`mooring console`: a link to the web console that logs in once."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.help import App
from mooring.cli.input.options import ACCOUNT, ServerOption
from mooring.cli.rendering.output import show_line

app = App()


@app.command(rich_help_panel=ACCOUNT)
def console(
    print_: Annotated[bool, typer.Option("--print", help="Only print the link; do not open a browser.")] = False,
    server: ServerOption = None,
) -> None:
    """Open the web console in a browser, logged in as you. The printed link works once, for ten minutes."""
    import webbrowser

    from mooring.cli.connection import connect

    with connect(server) as client:
        code = client.create_login_code().code
        link = f"{client.server.rstrip('/')}/login#code={code}"
    show_line(link)
    # Without a display, the browsers that are found run in the terminal and cannot show the console.
    if not print_ and sys.stdout.isatty() and (sys.platform == "darwin" or os.environ.get("DISPLAY")):
        try:
            webbrowser.open(link)
        except webbrowser.Error as error:
            say(f"no browser could be opened ({error}); open the link yourself")
