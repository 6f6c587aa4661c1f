"""Rules for reading and comparing examples of the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.commands.transcripts import Example, difference, examples, table_rows

PAGE = """\
# Page

    $ mooring book --name a \\
        --count 2
    a is confirmed

    $ mooring logs -f a
    one
    ^C

<!-- setup: mooring pool create toys -->
<!-- not executed: needs a registry -->
<!-- setup: mooring pool create more -->

    mooring deploy web

Text.

    mooring nodes      # all nodes
    print("no command")
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_examples_are_commands_with_the_output_that_is_shown(page: Path) -> None:
    assert list(examples(page)) == [
        Example(3, "mooring book --name a --count 2", ("a is confirmed",)),
        Example(7, "mooring logs -f a", ("one", "^C")),
        Example(11, "mooring pool create toys", None, hidden=True),
        Example(13, "mooring pool create more", None, hidden=True),
        Example(19, "mooring nodes      # all nodes", None),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a: running"], ["a: running"], True),
        (["a: running"], ["a: failed"], False),
        (["a: running"], ["a: running", "b: running"], False),
        (["a: running", "b: running"], ["a: running"], False),
        (["…", "c"], ["a", "b", "c"], True),
        (["a", "…"], ["a", "b", "c"], True),
        (["a", "…", "d"], ["a", "b", "c"], False),
        (["password: …"], ["password: xyzzy"], True),
        (["NAME   AGE", "sh-1a2974db  2s"], ["NAME AGE", "sh-00000000 14s"], True),
        (["on 2026-11-16 19:13:29"], ["on 2030-01-01 00:00:00"], True),
        (["a: pending", "a: running"], ["a: scheduled", "a: running"], True),
        (["kept in /var/lib/mooring"], ["kept in /tmp/data"], True),
    ],
)
def test_output_differs_only_in_what_varies(shown: list[str], printed: list[str], same: bool) -> None:
    assert (difference(shown, printed, {"/tmp/data": "/var/lib/mooring"}) is None) is same


def test_a_table_begins_with_its_header_and_ends_with_an_empty_line() -> None:
    lines = ["name: web", "", "NAME  AGE", "web   2s", "", "Text."]
    assert list(table_rows(lines)) == ["NAME  AGE", "web   2s"]
