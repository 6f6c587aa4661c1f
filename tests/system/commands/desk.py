"""Two terminals of a newcomer who follows a page of the documentation, and the comparison of what they show."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers import free_port
from tests.system.commands.tmux import Terminal, terminal
from tests.system.commands.transcripts import Example, difference
from tests.system.servers import MOORING, clean_environment, workspace

ROOT = Path(__file__).parents[3]
START = "make run"
LOGIN = "mooring login"
"""Printed by `make run`; pages that assume a login do not repeat it."""
STARTED = "Ctrl-C stops"
LISTINGS = (
    "mooring nodes",
    "mooring ps",
    "mooring status",
    "mooring explain",
    "mooring session show",
    "mooring rollout status",
)
"""Commands that a reader repeats until a change that was just requested has taken effect, such as a drain."""
DIFFERENCE = "mooring diff"
"""It exits with 1 if there is a difference, which pages show."""
SETTLING_SECONDS = 30.0


@dataclass
class Desk:
    """Two terminals on one machine: `make run` in the first, everything else in the second."""

    first: Terminal
    second: Terminal
    names: dict[str, str]
    home: Path
    """The folder in which the second terminal begins."""

    def start(self) -> list[str]:
        self.first.begin(START)
        self.first.wait_for(STARTED)
        # Log lines of the running server may follow the banner on the screen already.
        lines = self.first.lines()
        return lines[: 1 + next(at for at, line in enumerate(lines) if STARTED in line)]

    def run(self, example: Example) -> tuple[int, list[str]]:
        if not example.interrupted:
            return self.second.run(example.command)
        assert example.output is not None
        self.second.begin(example.command)
        self.second.wait_for_lines(len(example.output) - 1)
        self.second.press("C-c")
        status, lines = self.second.end()
        return status, lines[: len(example.output) - 1]


@contextmanager
def desk(columns: int) -> Iterator[Desk]:
    with workspace() as folder:
        environment = clean_environment(folder / "home") | {
            "TERM": "screen",
            "LANG": "C.UTF-8",
            "MOORING_DATA": str(folder / "data"),
            "MOORING_PORT": str(free_port()),
            "MOORING_NODE_NAME": "vm",
        }
        environment["PATH"] = f"{Path(MOORING).parent}:{environment['PATH']}"
        names = {str(folder / "data"): "/var/lib/mooring", str(ROOT): "/home/ada/mooring"}
        with (
            terminal(folder / "first", columns, environment, ROOT) as first,
            terminal(folder / "second", columns, environment, folder / "home") as second,
        ):
            yield Desk(first, second, names, folder / "home")
            first.press("C-c")


def wrong(example: Example, status: int, lines: list[str], names: dict[str, str]) -> str | None:
    if example.output is None:
        return None if status == 0 else f"exit code {status}"
    fails = any(line.startswith("error:") for line in example.output) or example.command.startswith(DIFFERENCE)
    if (status != 0) != fails and not example.interrupted:
        return f"exit code {status}"
    missing = difference(example.output, lines, names)
    return None if missing is None else f"the page shows {missing!r}"


def check(desk: Desk, example: Example) -> str | None:
    """Type an example and return how the output differs from the page, or None."""
    status, lines = desk.run(example)
    problem = wrong(example, status, lines, desk.names)
    deadline = time.monotonic() + SETTLING_SECONDS
    while problem is not None and example.command.startswith(LISTINGS) and time.monotonic() < deadline:
        status, lines = desk.run(example)
        problem = wrong(example, status, lines, desk.names)
    return None if problem is None else "\n".join([f"line {example.line}: $ {example.command}", problem, *lines])
