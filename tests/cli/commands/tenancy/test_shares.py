"""`mooring shares` and `mooring occupancy`."""

from uuid import UUID

from mooring.wire.tenancy.shares import (
    OccupancyLine,
    OccupancyReport,
    ShareList,
    ShareView,
)
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer


def test_shares_show_weight_use_factor_and_rank(server: FakeServer, mooring: Mooring) -> None:
    ada = ShareView(
        scope="user",
        id=UUID(int=1),
        name="lab/vision/ada",
        weight=200,
        used_percent=12.34,
        held_percent=5.0,
        factor=0.9,
        rank=3,
    )
    server.shares = ShareList(pool="gpu", sequencer="fair_share", shares=[ada])
    shown = mooring("shares", "--pool", "gpu")
    assert server.last("GET", "/api/shares").query == {"pool": "gpu"}
    assert shown.stdout.splitlines()[-1].split() == ["user", "lab/vision/ada", "200", "12.3%", "5.0%", "0.900", "3"]
    assert "fair_share" in shown.stderr


def test_a_weight_is_set_by_level_and_name_within_its_bounds(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("shares", "set", "project", "vision", "250").stdout == "vision: weight 250\n"
    assert server.last("PUT", "/api/shares/project/vision").body == {"weight": 250}
    assert mooring("shares", "set", "project", "vision", "0").exit_code == 2
    assert mooring("shares", "set", "keypair", "vision", "100").exit_code == 2


def test_occupancy_shows_one_axis_or_all(server: FakeServer, mooring: Mooring) -> None:
    line = OccupancyLine(axis="node", name="n1", slot="cpu", amount=1500, shown="1.5")
    server.occupancy = OccupancyReport(occupancy=[line])
    assert mooring("occupancy", "--by", "node").stdout.splitlines()[-1].split() == ["node", "n1", "cpu", "1.5"]
    assert server.last("GET", "/api/occupancy").query == {"by": "node"}
