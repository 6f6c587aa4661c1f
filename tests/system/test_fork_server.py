"""The fork server of the tests: a fork behaves like the program that it replaces."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mooring.clock import AHEAD
from tests.system.conftest import Servers
from tests.system.fork_server import ForkedProcess, can_fork, launch
from tests.system.servers import MOORING, clean_environment, eventually

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command to its end and return its exit code and output."""

    def run(*words: str, **variables: str) -> tuple[int, str, str]:
        with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
            process = launch(MOORING, words, clean_environment(tmp_path / "home") | variables, out, err)
        return process.wait(60), (tmp_path / "out").read_text(), (tmp_path / "err").read_text()

    return run


def test_a_fork_has_the_arguments_and_output_of_a_program(run: Run):
    code, out, err = run("--version")
    assert (code, err) == (0, "")
    assert out.startswith("mooring ")


def test_a_fork_reports_its_exit_code(run: Run):
    code, out, err = run("no-such-command")
    assert (code, out) == (2, "")
    assert "no-such-command" in err


def test_a_fork_has_only_the_given_environment(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MOORING_PORT", "1234")
    assert _port(run("config", "--output", "json")) == "8000"
    assert _port(run("config", "--output", "json", MOORING_PORT="4321")) == "4321"
    assert _port(run("config", "--output", "json")) == "8000"


def test_a_fork_runs_in_the_folder_of_the_test(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "settings.toml").write_text("port = 5555\n")
    monkeypatch.chdir(tmp_path)
    assert _port(run("config", "--config", "settings.toml", "--output", "json")) == "5555"


def test_a_forked_server_leads_its_session_and_reports_the_signal_that_ended_it(servers: Servers):
    process = servers.start("--no-agent").process
    assert isinstance(process, ForkedProcess)
    assert os.getsid(process.pid) == process.pid
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == process.poll() == -signal.SIGKILL
    eventually(lambda: not psutil.pid_exists(process.pid))


def test_a_server_whose_clock_is_moved_at_import_is_not_forked():
    assert can_fork({"MOORING_PORT": "1"})
    assert not can_fork({AHEAD: "/tmp/ahead"})


def _port(answer: tuple[int, str, str]) -> str:
    code, out, err = answer
    assert code == 0, err
    [value] = [row["value"] for row in json.loads(out) if row["name"] == "port"]
    return str(value)
