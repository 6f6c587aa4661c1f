"""The examples of the documentation, typed into a real terminal and compared with the output that the pages show."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers import free_port
from tests.system.servers import MOORING, clean_environment, workspace
from tests.system.tmux import Terminal, terminal
from tests.system.transcripts import Example, difference, examples, table_rows

ROOT = Path(__file__).parents[2]
NARROW, WIDE = 80, 120
TOURS = ["README.md", "docs/tutorial/getting-started.md"]
START = "make run"
LOGIN = "mooring login"
"""Printed by `make run`; pages that assume a login do not repeat it."""
STARTED = "Ctrl-C stops"
LISTINGS = ("mooring nodes", "mooring ps", "mooring status")
"""Commands that a reader repeats until a change that was just requested has taken effect, such as a drain."""
SETTLING_SECONDS = 30.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: apt-get install tmux"),
]


@dataclass
class Desk:
    """Two terminals on one machine: `make run` in the first, everything else in the second."""

    first: Terminal
    second: Terminal
    names: dict[str, str]

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
            yield Desk(first, second, names)
            first.press("C-c")


def wrong(example: Example, status: int, lines: list[str], names: dict[str, str]) -> str | None:
    if example.output is None:
        return None if status == 0 else f"exit code {status}"
    fails = any(line.startswith("error:") for line in example.output)
    if (status != 0) != fails and not example.interrupted:
        return f"exit code {status}"
    missing = difference(example.output, lines, names)
    return None if missing is None else f"the page shows {missing!r}"


@pytest.mark.parametrize("page", TOURS)
def test_examples_print_what_the_page_shows(page: str) -> None:
    problems = []
    with desk(WIDE) as newcomer:
        started = newcomer.start()
        assert newcomer.second.run(LOGIN)[0] == 0
        for example in examples(ROOT / page):
            status, lines = (0, started) if example.command.startswith(START) else newcomer.run(example)
            problem = wrong(example, status, lines, newcomer.names)
            deadline = time.monotonic() + SETTLING_SECONDS
            while problem is not None and example.command.startswith(LISTINGS) and time.monotonic() < deadline:
                status, lines = newcomer.run(example)
                problem = wrong(example, status, lines, newcomer.names)
            if problem is not None:
                problems.append("\n".join([f"{page}:{example.line}: $ {example.command}", problem, *lines]))
    assert not problems, "\n\n".join(problems)


@pytest.mark.parametrize("page", TOURS)
def test_tables_fit_a_narrow_terminal_with_one_line_per_row(page: str) -> None:
    problems = []
    with desk(NARROW) as newcomer:
        newcomer.start()
        assert newcomer.second.run(LOGIN)[0] == 0
        for example in examples(ROOT / page):
            if example.command.startswith(START):
                continue
            newcomer.run(example)
            lines = newcomer.second.lines()
            if any(len(row) > NARROW for row in table_rows(lines)):
                problems.append("\n".join([f"{page}:{example.line}: $ {example.command}", *lines]))
    assert not problems, "\n\n".join(problems)
