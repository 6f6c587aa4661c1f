"""Errors that no command expects: the user gets a message, never a traceback."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mooring.cli.app import app
from mooring.cli.exits import ExitCode
from mooring.client import Client
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("MOORING_DEBUG", raising=False)
    return tmp_path / "state"


@pytest.fixture
def defect(mooring: Mooring, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect in every command that lists pools."""

    def broken(*_: object, **__: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr(Client, "pools", broken)


def listed() -> Result:
    return CliRunner().invoke(app, ["pool", "list"], prog_name="mooring")


@pytest.mark.parametrize("reason", ["a\tb", "x" * 501, "two\nlines", ""])
@pytest.mark.parametrize("command", [("drain", "n1"), ("pool", "pause", "default")])
def test_an_invalid_reason_is_wrong_usage(
    mooring: Mooring, server: FakeServer, reason: str, command: tuple[str, ...]
) -> None:
    server.seen.clear()
    result = mooring(*command, "--reason", reason)
    assert result.exit_code == ExitCode.USAGE
    assert "reason: " in result.stderr
    assert "Traceback" not in result.output
    assert not [seen for seen in server.seen if seen.method != "GET"]


@pytest.mark.usefixtures("defect")
def test_a_defect_shows_a_message_and_saves_the_traceback_for_the_user_alone(state: Path) -> None:
    result = listed()
    assert result.exit_code == ExitCode.INTERNAL_ERROR
    assert "Traceback" not in result.output
    saved = state / "mooring" / "traceback.txt"
    assert str(saved) in result.stderr
    assert "internal error: KeyError: 'no such thing'" in result.stderr
    assert "Traceback" in saved.read_text()
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600


@pytest.mark.usefixtures("defect")
def test_repeated_defects_keep_one_file_and_follow_no_link(state: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("mine")
    (state / "mooring").mkdir(parents=True)
    (state / "mooring" / "traceback.txt").symlink_to(other)
    assert listed().exit_code == listed().exit_code == ExitCode.INTERNAL_ERROR
    assert other.read_text() == "mine"
    assert [file.name for file in (state / "mooring").iterdir()] == ["traceback.txt"]


@pytest.mark.usefixtures("defect")
def test_the_debug_switch_shows_the_traceback(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORING_DEBUG", "1")
    assert "Traceback (most recent call last)" in listed().stderr


@pytest.mark.usefixtures("defect")
def test_a_traceback_that_cannot_be_saved_changes_neither_message_nor_exit_code(state: Path) -> None:
    state.write_text("no folder")
    result = listed()
    assert result.exit_code == ExitCode.INTERNAL_ERROR
    assert "could not be saved" in result.stderr
    assert "Traceback" not in result.output
