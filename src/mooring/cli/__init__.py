"""The `mooring` command. It imports the client, and the server and the agent in order to start them.

Commands import their dependencies when they run, so that help and completion start fast.
"""

from __future__ import annotations


def main() -> None:
    from mooring.cli.input.argv import scrub

    scrub()
    from mooring.cli.app import app

    app(prog_name="mooring")
