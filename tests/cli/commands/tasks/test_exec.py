"""The boundary between the options of `mooring exec` and its command."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer

SCRIPT = ("sh", "-c", "exit 3", "--", "-i", "--task", "7")


@pytest.mark.parametrize(
    ("arguments", "command", "container"),
    [
        (("web", *SCRIPT), SCRIPT, None),
        (("web", "--", *SCRIPT), SCRIPT, None),
        (("web", "-i", "-c", "main", *SCRIPT), SCRIPT, "main"),
        (("web", "-ic", "main", "--", *SCRIPT), SCRIPT, "main"),
        (("-i", "-c", "main", "web", *SCRIPT), SCRIPT, "main"),
        (("--container=main", "web", "--task", "0", *SCRIPT), SCRIPT, "main"),
        (("web", "--", "--help"), ("--help",), None),
        (("--", "web", "-c", "main"), ("-c", "main"), None),
    ],
    ids=[
        "right after the name",
        "after dashes",
        "after options",
        "after options and dashes",
        "options before the name",
        "options around the name",
        "a command that begins with dashes",
        "no options at all",
    ],
)
def test_from_its_first_word_on_everything_is_the_command(
    server: FakeServer, mooring: Mooring, arguments: tuple[str, ...], command: tuple[str, ...], container: str | None
) -> None:
    server.add("web")
    ran = mooring("exec", *arguments)
    assert ran.exit_code == 3, ran.stderr
    [opening] = server.commands
    assert (tuple(opening.command), opening.container) == (command, container)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("web", "--nothing", "sh"), "No such option: --nothing"),
        (("web",), "Missing argument 'COMMAND'"),
        (("web", "-c", "main"), "Missing argument 'COMMAND'"),
        ((), "Missing argument 'NAME'"),
    ],
    ids=["an option that is not ours", "no command", "options and no command", "nothing"],
)
def test_an_invalid_command_is_refused(
    server: FakeServer, mooring: Mooring, arguments: tuple[str, ...], problem: str
) -> None:
    server.add("web")
    refused = mooring("exec", *arguments)
    assert (refused.exit_code, server.commands) == (2, [])
    assert problem in refused.stderr


def test_help_before_the_command_is_that_of_exec(mooring: Mooring) -> None:
    shown = mooring("exec", "web", "--help")
    assert shown.exit_code == 0
    assert "additional command" in shown.stdout
