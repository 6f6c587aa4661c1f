"""`mooring quota`: what is limited, in use, borrowed and left."""

import json

from mooring.wire.tenancy.quotas import GuaranteeLine, QuotaLine, QuotaView
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer

LINE = QuotaLine(
    scope="project",
    tenant="p-1",
    name="vision",
    slot="gpu",
    limit="8",
    reserved="2",
    used="4",
    pending="3",
    borrowed="1",
    left="2",
)


def test_own_quotas_are_shown_level_by_level(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("quota").stdout == "no limits, and nothing in use\n"
    share = GuaranteeLine(pool="default", slot="gpu", guaranteed="5", in_use="6", borrowed="1")
    server.quotas = QuotaView(quotas=[LINE], guarantees=[share])
    lines = [line.split() for line in mooring("quota").stdout.splitlines()]
    assert lines[:2] == [
        ["LEVEL", "NAME", "SLOT", "LIMIT", "USED", "RESERVED", "PENDING", "BORROWED", "LEFT", "UNTIL"],
        ["project", "vision", "gpu", "8", "4", "2", "3", "1", "2", "-"],
    ]
    assert lines[-1] == ["default", "gpu", "5", "6", "1"]
    assert json.loads(mooring("quota", "-o", "json").stdout)["quotas"][0]["left"] == "2"


def test_limits_of_a_tenant_are_set_permanently_or_temporarily_and_removed(
    server: FakeServer, mooring: Mooring
) -> None:
    path = "/api/quotas/project/vision"
    assert mooring("quota", "show", "project", "vision").exit_code == 0
    assert mooring("quota", "set", "project", "vision", "gpu=4", "memory=64Gi").exit_code == 0
    assert server.last("PUT", path).body == {"limits": {"gpu": "4", "memory": "64Gi"}}
    assert mooring("quota", "set", "project", "vision", "gpu=8", "--until", "2030-01-01T00:00:00Z").exit_code == 0
    assert server.last("PUT", path).body == {"limits": {"gpu": "8"}, "until": "2030-01-01T00:00:00Z"}
    assert mooring("quota", "set", "project", "vision", "gpu=2", "--guaranteed-in", "default").exit_code == 0
    assert server.last("PUT", path).body == {"guaranteed": {"gpu": "2"}, "pool": "default"}
    assert mooring("quota", "unset", "project", "vision", "gpu").exit_code == 0
    assert server.last("PUT", path).body == {"limits": {"gpu": None}}
    assert mooring("quota", "revert", "project", "vision", "--version", "3").exit_code == 0
    assert server.last("POST", f"{path}/revert").body == {"version": 3}
    assert mooring("quota", "set", "project", "vision", "gpu").exit_code == 2
