"""Standard input of `mooring run`: passed on if there is any, never waited for if there is none."""

from __future__ import annotations

import io
import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooring.cli.interaction.session_input import InputMode
from mooring.model.errors import InvalidInput
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer

NO_OPTIONS = {"interactive": False, "terminal": False, "restarts": False}


@pytest.fixture
def opened() -> Iterator[list[int]]:
    descriptors: list[int] = []
    yield descriptors
    for descriptor in descriptors:
        os.close(descriptor)


def use(monkeypatch: pytest.MonkeyPatch, descriptor: int) -> None:
    monkeypatch.setattr(sys, "stdin", os.fdopen(descriptor, closefd=False))


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("pipe with data", InputMode.PIPE),
        ("pipe that may get data", InputMode.PIPE),
        ("pipe that has ended", InputMode.NONE),
        ("file with data", InputMode.PIPE),
        ("empty file", InputMode.NONE),
        ("null device", InputMode.NONE),
        ("terminal", InputMode.NONE),
    ],
)
def test_input_is_passed_on_without_an_option_if_it_is_a_pipe_or_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opened: list[int], kind: str, mode: InputMode
) -> None:
    if kind.startswith("pipe"):
        reader, writer = os.pipe()
        opened += [reader]
        if kind == "pipe with data":
            os.write(writer, b"data")
        if kind == "pipe that has ended":
            os.close(writer)
        else:
            opened += [writer]
    elif kind == "terminal":
        master, reader = pty.openpty()
        opened += [master, reader]
    else:
        path = Path("/dev/null") if kind == "null device" else tmp_path / "input"
        if kind != "null device":
            path.write_bytes(b"data" if kind == "file with data" else b"")
        reader = os.open(path, os.O_RDONLY)
        opened += [reader]
    use(monkeypatch, reader)
    assert InputMode.of(**NO_OPTIONS) is mode


def test_closed_input_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert InputMode.of(**NO_OPTIONS) is InputMode.NONE
    monkeypatch.setattr(sys, "stdin", io.StringIO("data"))
    assert InputMode.of(**NO_OPTIONS) is InputMode.NONE


def test_a_session_that_is_restarted_gets_no_input(monkeypatch: pytest.MonkeyPatch, opened: list[int]) -> None:
    reader, writer = os.pipe()
    opened += [reader, writer]
    use(monkeypatch, reader)
    assert InputMode.of(interactive=False, terminal=False, restarts=True) is InputMode.NONE
    with pytest.raises(InvalidInput, match="--restart"):
        InputMode.of(interactive=True, terminal=False, restarts=True)


def test_a_terminal_session_needs_a_terminal_before_anything_is_submitted(server: FakeServer, mooring: Mooring) -> None:
    result = mooring("run", "-it", "--", "sh")
    assert (result.exit_code, "-t needs a terminal" in result.stderr) == (2, True), result.stderr
    assert not server.workloads


@pytest.mark.parametrize("words", [("-i", "alpine", "--", "id"), ("-i", "python:3.12", "id")])
def test_the_former_short_form_of_the_image_option_is_explained(
    server: FakeServer, mooring: Mooring, words: tuple[str, ...]
) -> None:
    result = mooring("run", *words)
    assert (result.exit_code, f"--image {words[1]}" in result.stderr) == (2, True), result.stderr
    assert not server.workloads


def test_a_detached_session_keeps_its_terminal_and_input_for_attach(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("run", "-dit", "--name", "desk", "--", "sh").exit_code == 0
    assert server.last("POST", "/api/workloads").body["containers"] == [
        {"command": ["sh"], "terminal": True, "stdin": True}
    ]
