"""Malicious fields of containers are refused by the schema."""

from typing import Any

import pytest
from pydantic import ValidationError

from mooring.wire.workloads.workloads import WorkloadRequest

IMAGES = ("nginx; reboot", "$(reboot)", "`reboot`", "nginx\nreboot", "nginx|sh", "-v", "--privileged", "a b", "a&b", "")
ENVIRONMENT_NAMES = ("", "A=B", "A B", "A\n", "A\0", "1A", "É", "LD-PRELOAD", "A;reboot", "A" * 256)
SECRET_FILES = ("", "../key", "a/b", "/etc/passwd", ".", "..", ".hidden", "a\n", "a\0b", "k" * 128)
USERS = ("", "root; reboot", "a b", "1000:", ":0", "0:0:0", "../root", "a\n", "-1", "x" * 65)
URL_PATHS = ("healthz", "/a b", "/\r\nHost: other", "/é", "//\0", "http://169.254.169.254/", "/" * 1025)
BAD: dict[str, list[dict[str, Any]]] = {
    "image": [{"image": image} for image in IMAGES],
    "environment": [
        *({"environment": {name: "x"}} for name in ENVIRONMENT_NAMES),
        {"environment": {"A": "x\0LD_PRELOAD=/tmp/x.so"}},
        {"environment": {"A": 1}},
        {"environment": {"A": "x" * 40_000}},
        {"environment": {f"A{n}": "x" for n in range(257)}},
    ],
    "command": [{"command": "reboot"}, {"command": ["a\0b"]}, {"command": ["x"] * 1025}],
    "secrets": [
        *({"secrets": {file: "key"}} for file in SECRET_FILES),
        {"secrets": {"file": "../key"}},
        {"secrets": {f"f{n}": "key" for n in range(33)}},
    ],
    "user": [{"user": user} for user in USERS],
    "capabilities": [{"capabilities": [name]} for name in ("SYS_ADMIN", "ALL", "CAP_CHOWN", "chown", "NET_ADMIN")],
    "ports": [{"ports": [port]} for port in (0, -1, 65536, "80", True)] + [{"ports": list(range(1, 34))}],
    "mounts": [
        {"mounts": [{"volume": "../data", "path": "/data"}]},
        {"mounts": [{"volume": "data", "path": "data"}]},
        {"mounts": [{"volume": "data", "path": "/" * 1025}]},
        {"mounts": [{"volume": "data", "path": "/data", "propagation": "shared"}]},
        {"mounts": [{"volume": f"v{n}", "path": f"/{n}"} for n in range(33)]},
    ],
    "readiness": [
        *({"readiness": {"path": path, "port": 80}} for path in URL_PATHS),
        {"readiness": {"port": 80, "host": "169.254.169.254"}},
        {"readiness": {"port": 80, "interval_seconds": 0}},
        {"readiness": {"port": 80, "timeout_seconds": 10**6}},
        {"readiness": {"port": 80, "failures": 0}},
    ],
    "limits": [{"limits": {"cpu": -1}}, {"limits": {"CPU!": 1}}, {"limits": {f"s{n}": 1 for n in range(33)}}],
    "pull": [{"pull": "sometimes"}],
    "others": [
        {"network": "host"},
        {"pid": "host"},
        {"ipc": "host"},
        {"devices": ["/dev/mem"]},
        {"security_opt": ["seccomp=unconfined"]},
        {"privileged": "yes"},
        {"shared_memory": -1},
        {"sidecar": True},
    ],
}


def request(container: dict[str, Any]) -> dict[str, Any]:
    return {"containers": [{"image": "nginx", **container}]}


def test_valid_fields_are_accepted():
    assert WorkloadRequest.model_validate(request({})).containers[0].image == "nginx"


@pytest.mark.parametrize(
    "said", [pytest.param(said, id=f"{field} {n}") for field, tried in BAD.items() for n, said in enumerate(tried)]
)
def test_malicious_fields_are_refused(said: dict[str, Any]):
    with pytest.raises(ValidationError):
        WorkloadRequest.model_validate(request(said))


@pytest.mark.parametrize(
    "more",
    [
        {"containers": [{"name": f"c{n}", "image": "nginx"} for n in range(17)]},
        {"init_containers": [{"name": f"i{n}", "image": "nginx"} for n in range(17)]},
        {"init_containers": [{"image": "nginx"}]},
        {"volumes": [{"name": f"v{n}"} for n in range(33)]},
        {"volumes": [{"name": "../../etc"}]},
        {"volumes": [{"name": "data", "kind": "shared", "path": "/"}]},
        {"volumes": [{"name": "data", "kind": "host", "path": "etc"}]},
        {"volumes": [{"name": "data", "volume_id": "00000000-0000-0000-0000-000000000000"}]},
    ],
)
def test_a_task_with_invalid_amounts_or_references_is_refused(more: dict[str, Any]):
    with pytest.raises(ValidationError):
        WorkloadRequest.model_validate(request({}) | more)
