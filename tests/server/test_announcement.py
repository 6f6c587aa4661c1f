"""The lines that a server prints at its start and stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.server.data_folder import announce
from mooring.server.process import tasks_left_text
from mooring.settings import load


def printed(tmp_path: Path, capsys: pytest.CaptureFixture[str], **settings: object) -> str:
    announce(load({"data": tmp_path, **settings}).settings, "http://127.0.0.1:8000", None)
    return capsys.readouterr().out


def test_a_server_without_a_container_engine_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = printed(tmp_path, capsys, engine="none", simulate=5)
    assert "No container engine was found" in text
    assert "run -- echo hello" in text
    assert "--pool simulated" in text
    assert "--pool simulated" not in printed(tmp_path, capsys, engine="none")


def test_a_server_with_a_container_engine_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = printed(tmp_path, capsys, engine="unix:///run/engine.sock")
    assert "run --image alpine" in text
    assert "unix:///run/engine.sock" in text
    assert "No container engine" not in text


def test_a_server_without_an_agent_suggests_no_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert "echo hello" not in printed(tmp_path, capsys, agent=False)


def test_only_a_login_code_makes_a_link_that_logs_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert "Console: http://127.0.0.1:8000/ " in printed(tmp_path, capsys)
    announce(load({"data": tmp_path}).settings, "http://127.0.0.1:8000", None, "the-code")
    assert "    http://127.0.0.1:8000/login#code=the-code\n" in capsys.readouterr().out
    assert "Console" not in printed(tmp_path, capsys, role="scheduler", database="postgresql://localhost/x")


def test_the_tasks_that_continue_after_a_stop_are_named():
    assert tasks_left_text(["web/0"]).startswith("1 task continues to run on this machine: web/0;")
    many = tasks_left_text([f"web/{number}" for number in range(12)])
    assert many.startswith("12 tasks continue to run")
    assert "web/9 and 2 more" in many
