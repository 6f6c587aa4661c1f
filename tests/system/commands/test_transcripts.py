"""The examples of the documentation, typed into a real terminal and compared with the output that the pages show."""

from __future__ import annotations

import shutil

import pytest

from tests.system.commands.desk import LOGIN, ROOT, START, check, desk, wrong
from tests.system.commands.transcripts import examples, table_rows

NARROW, WIDE = 80, 120
TOURS = ["README.md", "docs/tutorial/getting-started.md"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: apt-get install tmux"),
]


@pytest.mark.parametrize("page", TOURS)
def test_examples_print_what_the_page_shows(page: str) -> None:
    problems = []
    with desk(WIDE) as newcomer:
        started = newcomer.start()
        assert newcomer.second.run(LOGIN)[0] == 0
        for example in examples(ROOT / page):
            if example.command.startswith(START):
                problems.append(wrong(example, 0, started, newcomer.names))
            else:
                problems.append(check(newcomer, example))
    assert not any(problems), "\n\n".join(problem for problem in problems if problem)


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
