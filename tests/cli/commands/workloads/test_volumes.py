"""`mooring volume`: made, listed, shown and removed; the folder that nodes share."""

import json
from uuid import UUID

from mooring.wire.workloads.volumes import VolumeUse
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer

WHO = "web (ann) and 2 that you may not see"


def test_volumes_are_made_listed_shown_and_removed(server: FakeServer, mooring: Mooring) -> None:
    made = mooring("volume", "create", "data", "--size", "10Gi", "--pool", "toy")
    assert made.exit_code == 0, made.output
    assert server.last("POST", "/api/volumes").body == {"name": "data", "size": "10Gi", "pool": "toy", "shared": False}
    assert mooring("volume", "create", "all", "--size", "1Ti", "--shared", "--project", "vision").exit_code == 0
    known = server.volumes.known
    uses = [VolumeUse(workload="web", user="ann", id=UUID(int=1))]
    mounted = {"status": "lost", "node": "node-1", "mounted_by": 3, "uses": uses}
    known["data"] = known["data"].model_copy(update=mounted)
    lines = [line.split() for line in mooring("volume", "list").stdout.splitlines()]
    assert lines == [
        ["VOLUME", "PROJECT", "STATUS", "SIZE", "POOL", "NODE", "MOUNTED", "BY"],
        ["data", "default", "lost", "10Gi", "toy", "node-1", *WHO.split()],
        ["all", "vision", "available", "1Ti", "default", "all", "nodes", "of", "its", "pool", "-"],
    ]
    shown = mooring("volume", "show", "data", "--project", "default").stdout
    assert f"mounted by: {WHO}\n" in shown
    assert server.last("GET", "/api/volumes/data").query == {"project": "default"}
    assert json.loads(mooring("volume", "list", "-o", "json").stdout)[0]["size"] == "10Gi"
    removed = mooring("volume", "remove", "data")
    assert (removed.exit_code, removed.stdout) == (0, "data: being removed\n")
    assert list(known) == ["all"]


def test_a_node_is_shown_with_its_volumes(server: FakeServer, mooring: Mooring) -> None:
    mooring("volume", "create", "data", "--size", "10Gi")
    shown = mooring("node", "show", "node-1").stdout.splitlines()
    assert server.last("GET", "/api/volumes").query == {"node": "node-1"}
    assert [line.split() for line in shown[-2:]] == [
        ["VOLUME", "PROJECT", "SIZE", "MOUNTED", "BY"],
        ["data", "default", "10Gi", "-"],
    ]


def test_a_name_that_cannot_be_one_is_refused_before_anything_is_asked(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("volume", "create", "../etc", "--size", "1Gi").exit_code != 0
    assert not [seen for seen in server.seen if seen.path == "/api/volumes"]


def test_the_folder_for_shared_volumes_of_a_pool_is_set(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("pool", "change", "default", "--shared-volumes", "/mnt/shared").exit_code == 0
    assert server.last("PATCH", "/api/pools/default").body == {"shared_volumes": "/mnt/shared"}
