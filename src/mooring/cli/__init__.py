"""The `mooring` command. It uses the client, and the server and the agent to start them.

Commands import what they need when they run, so that help and completion answer at once.
"""

from __future__ import annotations


def main() -> None:
    from mooring.cli.app import app

    app(prog_name="mooring")
