"""The units and the image: valid, sandboxed, and a server that needs no more than they leave it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

from mooring.api.middleware.load_shedding.limits import RESERVED_FILES
from mooring.settings import SECRETS, Settings
from tests.servers import START_SECONDS

DEPLOY = Path(__file__).parent.parent / "deploy"
SERVER, AGENT = (DEPLOY / "systemd" / f"{name}.service" for name in ("mooring", "mooring-agent"))

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


def lines_of(unit: Path, name: str) -> list[str]:
    return [line.partition("=")[2] for line in unit.read_text().splitlines() if line.startswith(f"{name}=")]


@needs_systemd
@pytest.mark.parametrize("unit", [SERVER, AGENT], ids=lambda unit: unit.stem)
def test_systemd_finds_no_mistake_in_a_unit(unit: Path, tmp_path: Path):
    # It also looks whether the program is there.
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/mooring/bin/mooring", "/bin/true"))
    answer = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")


@needs_systemd
def test_a_server_is_exposed_as_little_as_systemd_can_make_it():
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=15", str(SERVER)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout[-200:]


def test_only_the_agent_runs_as_root():
    assert lines_of(SERVER, "User") == ["mooring"]
    assert lines_of(SERVER, "CapabilityBoundingSet") == [""]
    assert "--no-agent" in lines_of(SERVER, "ExecStart")[0]
    assert not lines_of(AGENT, "User")
    assert "It runs as root, since" in AGENT.read_text()


def test_the_limits_on_open_files_cover_every_connection():
    """The server lowers its limit on connections to what they allow."""
    needed = Settings.model_fields["connection_limit"].default + RESERVED_FILES
    for unit in (SERVER, AGENT):
        assert int(lines_of(unit, "LimitNOFILE")[0]) >= needed
    [composed] = re.findall(r"ulimits: \{nofile: (\d+)\}", (DEPLOY / "compose.yaml").read_text())
    assert int(composed) >= needed


def test_the_credentials_of_the_unit_are_secrets_among_the_settings():
    given = {line.partition(":")[0] for line in lines_of(SERVER, "LoadCredential")}
    assert given
    assert given <= set(SECRETS)


def test_server_and_agent_keep_separate_state():
    """The server's user could otherwise replace the files of an agent that is root."""
    folders = [lines_of(unit, "StateDirectory")[0] for unit in (SERVER, AGENT)]
    assert len(set(folders)) == 2
    for unit, folder in zip((SERVER, AGENT), folders, strict=True):
        assert f"--data /var/lib/{folder} " in lines_of(unit, "ExecStart")[0]


def test_the_image_runs_as_a_numeric_user_without_privileges():
    text = (DEPLOY / "Dockerfile").read_text()
    user = re.findall(r"^USER (\d+):(\d+)$", text, re.MULTILINE)
    assert user
    assert all(int(number) > 0 for number in user[-1])
    assert text.index("USER ") < text.index("ENTRYPOINT")
    named = re.findall(r"MOORING_([A-Z]+)=", text)
    assert [name for name in named if name.lower() not in Settings.model_fields] == []
    compose = (DEPLOY / "compose.yaml").read_text()
    for line in ("read_only: true", "cap_drop: [ALL]", "no-new-privileges:true"):
        assert line in compose


@pytest.mark.slow
@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("setpriv") is None, reason="needs root, to give it up, and setpriv"
)
def test_a_server_runs_as_another_user_without_capabilities():
    """With one, to read: the interpreter of the tests may be in a home that is closed to others."""
    with tempfile.TemporaryDirectory(prefix="mooring-deploy-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        own = folder / "state"
        own.mkdir(mode=0o700)
        os.chown(own, 10001, 10001)
        stored = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
        command = [
            *("setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", "--no-new-privs", *stored),
            *("--bounding-set=-all,+dac_read_search", str(Path(sys.executable).with_name("mooring")), "up"),
            *("--no-agent", "--port", "0", "--data", str(own), "--role", "api"),
        ]
        environment = {"HOME": str(own), "PATH": os.defpath, "MOORING_ADMIN_PASSWORD": "correct horse battery"}
        log = (folder / "log").open("wb")
        server = subprocess.Popen(command, env=environment, cwd="/", stdout=log, stderr=log)
        try:
            limit = time.monotonic() + START_SECONDS
            while not (own / "server.json").exists():
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < limit, (folder / "log").read_text()
                time.sleep(0.05)
            url = json.loads((own / "server.json").read_text())["url"]
            with urllib.request.urlopen(f"{url}/health", timeout=START_SECONDS) as answer:
                assert answer.status == 200
            lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
            status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            assert (status["Uid"].split()[0], status["NoNewPrivs"]) == ("10001", "1")
            assert int(status["CapEff"], 16) == 1 << 2
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(START_SECONDS)
            log.close()
