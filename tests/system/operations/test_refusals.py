"""Settings with which a server refuses to start, and the requirements for listening beyond this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system.conftest import Servers
from tests.system.servers import Cli, eventually


@pytest.mark.parametrize(
    ("flags", "environment", "words"),
    [
        pytest.param(["--host", "0.0.0.0"], {}, ["0.0.0.0", "--tls-cert", "--insecure"], id="in the clear"),
        pytest.param(
            ["--simulate", "3", "--database", "postgresql://nobody@127.0.0.1:1/none"],
            {},
            ["simulated nodes", "--demo"],
            id="simulation on PostgreSQL",
        ),
        pytest.param([], {"MOORING_PROT": "8001"}, ["prot", "MOORING_PROT"], id="unknown setting"),
        pytest.param([], {"MOORING_TOKEN_SECONDS": "soon"}, ["token_seconds"], id="wrong value"),
        pytest.param(["--tls-cert", "cert.pem"], {}, ["--tls-key"], id="half of TLS"),
        pytest.param([], {"CONTROL_PLANE_API_URL": "controller:9000"}, ["must begin with http://"], id="no address"),
        pytest.param(
            [],
            {"CONTROL_PLANE_API_URL": "http://me:secret@controller", "MOORING_CONTROL_PLANE_TOKEN": "secret"},
            ["not both"],
            id="two logins",
        ),
        pytest.param(["--config", "broken.toml"], {}, ["broken.toml", "line 1"], id="broken TOML"),
        pytest.param(["--config", "unknown.toml"], {}, ["prot", "unknown.toml"], id="unknown setting in TOML"),
    ],
)
def test_a_server_with_contradictory_settings_does_not_start(
    servers: Servers, flags: list[str], environment: dict[str, str], words: list[str]
) -> None:
    (servers.folder / "broken.toml").write_text("port = = 8001\n")
    (servers.folder / "unknown.toml").write_text("prot = 8001\n")
    in_place = [str(servers.folder / flag) if flag.endswith((".toml", ".pem")) else flag for flag in flags]
    server = servers.prepare(*in_place, environment=environment)
    server.launch()
    assert server.exit_code() == 2
    for word in words:
        assert word in server.log
    assert not (server.data / "mooring.db").exists()


def test_a_server_without_its_database_names_it_without_the_password(servers: Servers) -> None:
    server = servers.prepare("--database", "postgresql://me:secret@127.0.0.1:1/mooring")
    server.launch()
    assert server.exit_code() == 5
    assert "cannot open the database postgresql+asyncpg://me:***@127.0.0.1:1/mooring" in server.log
    assert "secret" not in server.log


@pytest.mark.slow
def test_tls_works_for_clients_that_trust_the_certificate_and_no_others(servers: Servers) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("making a certificate needs openssl")
    certificate, key = _self_signed(servers.folder)
    server = servers.prepare("--host", "0.0.0.0", "--tls-cert", str(certificate), "--tls-key", str(key))
    server.ca_file = certificate
    server.start()
    assert server.url.startswith("https://")

    mooring = servers.cli()
    words = ("login", "--server", server.url, "--username", "admin", "--password-stdin")
    stranger: Cli = servers.cli("stranger")
    refused = stranger(*words, given="admin123\n")
    assert refused.returncode == 5
    assert "certificate" in refused.stderr
    mooring.out(*words, "--ca-file", str(certificate), given="admin123\n")
    # The agent inside the server trusts the certificate as well.
    eventually(lambda: " ready " in mooring.out("nodes"))
    done = mooring("run", "--", "echo", "hello")
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr

    neighbour = servers.cli("neighbour")
    neighbour.out("login", "--data", str(server.data))
    neighbour.out("audit")


def _self_signed(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=mooring"
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True, timeout=60)
    return certificate, key
