"""The commands that start something: what they hand on. What is started has tests of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mooring.settings import Settings
from tests.cli.conftest import Mooring
from tests.cli.terminal import run_in_pipe


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    seen: list[Settings] = []
    monkeypatch.setattr("mooring.server.composition.up", seen.append)
    return seen


def test_flags_become_settings_and_the_rest_stays_as_it_is(
    anonymous: Mooring, started: list[Settings], tmp_path: Path
) -> None:
    file = tmp_path / "mooring.toml"
    file.write_text('port = 9001\nhost = "127.0.0.2"\n')
    result = anonymous("up", "--port", "9000", "--simulate", "5", "--no-agent", "--role", "api", "--config", str(file))
    assert result.exit_code == 0, result.stderr
    settings = started[0]
    assert (settings.port, settings.host, settings.simulate) == (9000, "127.0.0.2", 5)
    assert (settings.agent, settings.role, settings.demo, settings.on_stop) == (False, "api", False, "leave")


def test_every_flag_of_up_is_a_setting(anonymous: Mooring, started: list[Settings], tmp_path: Path) -> None:
    result = anonymous(
        "up", "--data", str(tmp_path), "--host", "127.0.0.3", "--port", "1", "--simulate", "1", "--database",
        "sqlite+aiosqlite://", "--demo", "--insecure", "--tls-cert", "c", "--tls-key", "k", "--role", "all",
        "--on-stop", "stop", "--node-name", "me", "--agent", "--trust-tenants", "--log-format", "json", "--log-level",
        "debug",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert started[0].on_stop == "stop"
    assert started[0].log_level == "debug"


def test_an_invalid_setting_is_rejected(anonymous: Mooring, started: list[Settings], tmp_path: Path) -> None:
    file = tmp_path / "mooring.toml"
    file.write_text("colour = 3\n")
    result = anonymous("up", "--config", str(file))
    assert result.exit_code == 2
    assert "error: unknown-setting: there is no setting 'colour'" in result.stderr
    assert not started


def test_the_effective_settings_are_shown_with_their_origin(
    anonymous: Mooring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORING_ADMIN_PASSWORD", "very secret")
    shown = anonymous("config")
    assert "environment MOORING_ADMIN_PASSWORD" in shown.stdout
    assert "very secret" not in shown.stdout
    rows = {row["name"]: row for row in json.loads(anonymous("config", "-o", "json").stdout)}
    assert (rows["port"]["value"], rows["port"]["origin"]) == ("8000", "default")


def test_a_new_signing_key_is_made_for_the_named_data_folder(
    anonymous: Mooring, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Settings] = []
    monkeypatch.setattr("mooring.server.signing_keys.rotate_keys", seen.append)
    result = anonymous("keys", "rotate", "--data", str(tmp_path / "there"))
    assert (result.exit_code, [settings.data for settings in seen]) == (0, [tmp_path / "there"])


def test_an_agent_that_has_not_joined_needs_a_token(tmp_path: Path) -> None:
    result = run_in_pipe("agent", "--server", "http://127.0.0.1:9", "--name", "me", "--data", str(tmp_path / "edge"))
    assert result.returncode == 1
    assert "error: not-joined" in result.stderr


def test_help_names_the_exit_codes_and_loads_nothing_heavy() -> None:
    result = run_in_pipe("--help")
    assert result.returncode == 0
    assert "124 timed out" in " ".join(result.stdout.split())
    for command in (["--help"], ["ps", "--server", "http://127.0.0.1:9"]):
        program = (
            "import sys\nfrom mooring.cli import main\nsys.argv[1:] = " + repr(command) + "\n"
            "try: main()\nexcept SystemExit: pass\n"
            "heavy = {'fastapi', 'sqlalchemy', 'numpy', 'aiohttp', 'uvicorn', 'structlog'} & set(sys.modules)\n"
            "sys.exit(', '.join(sorted(heavy)) or 0)"
        )
        checked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr


def test_a_misspelt_command_is_wrong_usage(anonymous: Mooring) -> None:
    assert anonymous("deplyo").exit_code == 2
    assert anonymous("ps", "--no-such-option").exit_code == 2
