"""The examples of the guides and of the reference, typed into a terminal and compared with the pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.commands.desk import LOGIN, ROOT, Desk, check, desk
from tests.system.commands.transcripts import examples

WIDE = 160
FOLDERS = ("how-to", "explanation", "reference")
PAGES = [
    str(page.relative_to(ROOT))
    for folder in FOLDERS
    for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    if any(examples(page))
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: apt-get install tmux"),
]


@pytest.fixture(scope="module")
def operator() -> Iterator[Desk]:
    """An admin at the terminal of a server with simulated nodes and a node that runs processes."""
    with desk(WIDE) as made:
        made.start()
        assert made.second.run(LOGIN)[0] == 0
        yield made


@pytest.mark.parametrize("page", PAGES)
def test_examples_print_what_the_page_shows(operator: Desk, page: str) -> None:
    folder = operator.home / Path(page).stem
    folder.mkdir()
    operator.second.run(f"cd {folder}; {LOGIN}")
    problems = []
    for example in examples(ROOT / page):
        if example.command.startswith("cat ") and example.output is not None:
            (folder / example.command.removeprefix("cat ")).write_text("\n".join([*example.output, ""]))
        problems.append(check(operator, example))
    operator.second.run(f"{LOGIN}; mooring cancel --all --yes")
    assert not any(problems), "\n\n".join(f"{page}, {problem}" for problem in problems if problem)
