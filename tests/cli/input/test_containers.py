"""Container options are translated into requests, or rejected before anything is sent."""

from __future__ import annotations

import pytest

from mooring.wire.workloads.workloads import ContainerView
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer, running

OPTIONS = (
    "--port", "80", "--port", "443", "--volume", "site:/www:ro", "-v", "site:/copy", "-v", "/data/sets:/sets",
    "--secret", "api-key", "--secret", "cert=tls.pem", "--pull", "always", "--user", "1000:1000", "--read-only",
    "--cap-add", "CHOWN", "--cap-add", "cap_setuid",
    "--ready-http", "80/healthz", "--terminal",
)  # fmt: skip
HAD = {
    "ports": [80, 443],
    "mounts": [
        {"volume": "site", "path": "/www", "read_only": True},
        {"volume": "site", "path": "/copy"},
        {"volume": "folder-1", "path": "/sets"},
    ],
    "secrets": {"api-key": "api-key", "tls.pem": "cert"},
    "pull": "always",
    "user": "1000:1000",
    "read_only": True,
    "capabilities": ["CHOWN", "SETUID"],
    "readiness": {"port": 80, "path": "/healthz"},
    "terminal": True,
}


@pytest.mark.parametrize(
    ("command", "path"),
    [
        (("deploy", "web"), "/api/workloads"),
        (("run", "--detach", "--name", "web"), "/api/workloads"),
        (("session", "create", "--name", "web"), "/api/sessions"),
        (("lab", "create", "--name", "web", "--for", "2h"), "/api/labs"),
    ],
    ids=["deployment", "run", "session", "lab"],
)
def test_all_fields_of_containers_are_sent(
    server: FakeServer, mooring: Mooring, command: tuple[str, ...], path: str
) -> None:
    server.plan = [running]
    sent = mooring(*command, "--image", "nginx", *OPTIONS, *([] if command[0] == "deploy" else ["serve"]))
    assert sent.exit_code == 0, sent.stderr
    body = server.last("POST", path).body
    body = body.get("workload", body)
    [container] = body.get("containers", [body])
    assert {name: container[name] for name in HAD} == HAD
    assert body["volumes"] == [
        {"name": "site", "kind": "named"},
        {"name": "folder-1", "kind": "host", "path": "/data/sets"},
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        ("--port", "0"),
        ("--port", "65536"),
        ("--volume", "site"),
        ("--volume", "site:/www:sometimes"),
        ("--volume", "site:www"),
        ("--volume", "Site:/www"),
        ("--volume", "a:b:/www:ro"),
        ("--secret", "=file"),
        ("--secret", "key=../file"),
        ("--pull", "sometimes"),
        ("--user", "root; reboot"),
        ("--cap-add", "SYS_ADMIN"),
        ("--ready-http", "/healthz"),
        ("--ready-http", "99999/healthz"),
        ("--ready-http", "80/a b"),
    ],
)
def test_invalid_options_are_rejected_before_anything_is_sent(
    server: FakeServer, mooring: Mooring, wrong: tuple[str, ...]
) -> None:
    assert mooring("deploy", "web", "--image", "nginx", *wrong).exit_code == 2
    assert not server.requests("POST", "/api/workloads")


def test_status_shows_the_containers_and_their_options(server: FakeServer, mooring: Mooring) -> None:
    server.add(
        "web",
        containers=[
            ContainerView(name="fetch", role="init", image=None, command=["cp", "a", "b"]),
            ContainerView(
                name="main", role="main", image="nginx", command=[], ports=[80, 443], mounts={"/www": "pages"}
            ),
        ],
    )
    shown = mooring("status", "web").stdout
    assert "container fetch: init, cp a b\n" in shown
    assert "container main: nginx, listens on 80, 443, pages at /www\n" in shown
