"""Secrets in argv: every user of a machine can read /proc/PID/cmdline, so none stays there."""

from __future__ import annotations

import socket
import subprocess
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mooring.cli.commands.operations import console
from mooring.cli.input.argv import redacted
from mooring.model.errors import InvalidInput
from mooring.settings import SECRETS, load
from tests.system.servers import MOORING, clean_environment

SECRET = "hunter2-of-the-database"
PATIENCE_SECONDS = 60


@contextmanager
def running(home: Path, *words: str, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [MOORING, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(home) | (environment or {}),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_SECONDS)
        yield listening


def test_a_database_password_in_argv_is_removed_from_the_process_list_and_still_used(
    tmp_path: Path, listener: socket.socket
) -> None:
    url = f"postgresql://me:{SECRET}@127.0.0.1:{listener.getsockname()[1]}/mooring?sslmode=disable"
    with running(tmp_path, "up", "--data", str(tmp_path / "data"), "--database", url) as server:
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(4096)
            shown = _command_line(server.pid)
            connection.sendall(b"R\x00\x00\x00\x08\x00\x00\x00\x03")  # asks for the password in clear text
            answer = connection.recv(4096)
        server.kill()
        assert server.stderr is not None
        said = server.stderr.read()
    assert SECRET not in shown
    assert "postgresql://me:***@127.0.0.1" in shown
    assert SECRET.encode() in answer
    assert "MOORING_DATABASE_FILE" in said
    assert SECRET not in said


@pytest.mark.parametrize("form", [["--token", SECRET], [f"--token={SECRET}"]])
def test_a_join_token_in_argv_is_removed_from_the_process_list_and_still_used(
    tmp_path: Path, listener: socket.socket, form: list[str]
) -> None:
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with running(tmp_path, "agent", "--server", url, *form, "--name", "n", "--data", str(tmp_path)) as agent:
        received = _first_request(listener)
        shown = _command_line(agent.pid)
    assert SECRET not in shown
    assert "***" in shown
    assert SECRET.encode() in received


@pytest.mark.parametrize("source", ["environment", "file", "credential"])
def test_a_join_token_reaches_the_agent_without_argv(tmp_path: Path, listener: socket.socket, source: str) -> None:
    (tmp_path / "join_token").write_text(f"{SECRET}\n")
    environment = {
        "environment": {"MOORING_JOIN_TOKEN": SECRET},
        "file": {"MOORING_JOIN_TOKEN_FILE": str(tmp_path / "join_token")},
        "credential": {"CREDENTIALS_DIRECTORY": str(tmp_path)},
    }[source]
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    words = ("agent", "--server", url, "--name", "n", "--data", str(tmp_path / "data"))
    with running(tmp_path, *words, environment=environment):
        assert SECRET.encode() in _first_request(listener)


def test_the_process_list_shows_no_secret_of_any_command() -> None:
    url = f"postgresql://me:{SECRET}@db/x"
    for words in (
        ["up", "--database", url],
        ["up", f"--database={url}"],
        ["db", "copy", "sqlite:///a.db", url],
        ["db", "check", "--database", f"postgresql://db/x?user=me&password={SECRET}&sslmode=require"],
        ["up", "--database", f"postgresql://me:{SECRET}/with@signs@db/x"],
        ["agent", "--server", "https://server", "--token", SECRET],
        ["run", "-e", f"DATABASE={url}", "--", "true"],
    ):
        shown = redacted(words)
        assert SECRET not in " ".join(shown)
        assert len(shown) == len(words)


def test_arguments_without_a_secret_stay_as_they_are() -> None:
    for words in (
        ["up", "--database", "postgresql://db/x", "--port", "8000"],
        ["nodes", "--server", "https://server:8000/path?x=1"],
        ["run", "--", "curl", f"https://me:{SECRET}@host/"],
        ["token", "create", "--name", "edge"],
    ):
        assert redacted(words) == words


@pytest.mark.parametrize("name", SECRETS)
def test_every_secret_setting_comes_from_the_environment_a_file_or_a_credential(tmp_path: Path, name: str) -> None:
    variable = f"MOORING_{name.upper()}"
    (tmp_path / name).write_text(f"{SECRET}\n")
    for environment, origin in (
        ({variable: SECRET}, f"environment {variable}"),
        ({f"{variable}_FILE": str(tmp_path / name)}, f"file of {variable}_FILE"),
        ({"CREDENTIALS_DIRECTORY": str(tmp_path)}, f"systemd credential {name}"),
    ):
        loaded = load(environment=environment)
        value = getattr(loaded.settings, name)
        assert (value if isinstance(value, str) else value.get_secret_value()) == SECRET
        assert loaded.origins[name] == origin


def test_a_secret_file_that_is_missing_empty_or_given_twice_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for environment, words in (
        ({"MOORING_SIGNING_KEY_FILE": str(tmp_path / "none")}, "cannot read"),
        ({"MOORING_SIGNING_KEY_FILE": str(empty)}, "is empty"),
        ({"MOORING_SIGNING_KEY_FILE": str(empty), "MOORING_SIGNING_KEY": "x"}, "both"),
    ):
        with pytest.raises(InvalidInput, match=words):
            load(environment=environment)


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def _first_request(listener: socket.socket) -> bytes:
    """The request that brings the token; connections without it, such as probes, are closed."""

    def read() -> bytes:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(PATIENCE_SECONDS)
            data = b""
            while SECRET.encode() not in data and (piece := connection.recv(65536)):
                data += piece
                head, end, body = data.partition(b"\r\n\r\n")
                lengths = [
                    int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
                ]
                if end and len(body) >= sum(lengths):
                    break
            return data

    return _until(read, lambda data: SECRET.encode() in data)


def _until(read: Callable[[], bytes], wanted: Callable[[bytes], bool]) -> bytes:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if wanted(data := read()):
            return data
    raise AssertionError("the token was never sent")


def test_browser_gets_no_login_code_as_an_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(webbrowser, "open", opened.append)
    console._open("https://mooring.test/login#code=the-code")
    [address] = opened
    assert "the-code" not in address
    page = Path(address.removeprefix("file://"))
    assert 'url=https://mooring.test/login#code=the-code"' in page.read_text()
    assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
