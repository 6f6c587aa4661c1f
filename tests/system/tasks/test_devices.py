"""Devices on a real node: processes see what the ledger allocates, and no device is allocated twice."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mooring.client import Client
from mooring.model.errors import MooringError
from mooring.model.resources.devices import WHOLE
from mooring.wire.cluster.pools import PoolChange
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.conftest import Servers, running_servers
from tests.system.servers import Server, eventually

TASKS = 16
AMOUNTS = ("0.1", "0.25", "0.3", "0.5", "0.7", "0.9", "1", "2", "3")
SHOW = 'echo "$CUDA_VISIBLE_DEVICES|$MOORING_DEVICES|$MOORING_DEVICE_SHARES"'


@pytest.fixture(scope="module")
def shared() -> Iterator[Servers]:
    with running_servers() as started:
        yield started


@pytest.fixture(scope="module")
def server(shared: Servers) -> Server:
    """A server, and a node with three devices."""
    server = shared.start("--no-agent")
    shared.node(server, "lab", "--device", "gpu=3:T4:16Gi")
    return server


def test_processes_see_exactly_the_devices_that_the_ledger_allocates(server: Server) -> None:
    chance = random.Random(7)
    asked = {f"w{number}": chance.choice(AMOUNTS) for number in range(TASKS)}
    with server.client() as client:
        work = [_request(name, f"{SHOW}; sleep 0.2", gpu=amount) for name, amount in asked.items()]
        assert client.submit_batch(work).refused == 0

        def all_ended() -> bool:
            assert max(_given_out(server).values(), default=0) <= WHOLE
            return client.workloads(all=True, status="SUCCEEDED", limit=1).total == TASKS

        eventually(all_ended)
        ledger = _ledger(server)
        for name, amount in asked.items():
            visible, named, shares = b"".join(client.logs(name)).decode().strip().split("|")
            indexes, amounts = named.removeprefix("gpu="), shares.removeprefix("gpu=")
            assert visible == indexes
            seen = dict(zip(map(int, indexes.split(",")), map(int, amounts.split(",")), strict=True))
            assert ledger[name] == seen
            assert sum(seen.values()) == float(amount) * WHOLE
            assert len(seen) == max(1, int(float(amount)))
        assert [device.taken for device in client.node("lab").devices["gpu"]] == [0, 0, 0]


@pytest.mark.slow
def test_a_device_share_too_large_for_any_single_device_waits_until_the_pool_allows_splitting(
    server: Server, shared: Servers
) -> None:
    mooring = shared.cli()
    mooring.out("login", "--data", str(server.data))
    with server.client() as client:
        for name in ("a", "b", "c"):
            client.submit(_request(name, f"{SHOW}; exec sleep 600", gpu="0.6"))
            eventually(lambda name=name: _output(client, name))  # type: ignore[misc]
        assert [device.taken for device in client.node("lab").devices["gpu"]] == [600, 600, 600]
        assert client.workload("b").tasks[0].devices == {"gpu": [(1, 600)]}
        assert _output(client, "b") == "1|gpu=1|gpu=600\n"

        mooring.out("run", "--detach", "--name", "half", "--gpu", "0.5", "--", "sh", "-c", f"{SHOW}; exec sleep 600")
        lack = "0 of 1 node: 1 has no single device with 0.5 gpu free (best has 0.4)"
        eventually(lambda: (client.workload("half").reason or {}).get("message") == lack)

        mooring.out("pool", "change", "default", "--fragmentation")
        assert eventually(lambda: _output(client, "half")) == "0,1|gpu=0,1|gpu=250,250\n"
        placed = json.loads(mooring.out("explain", "half", "-o", "json"))
        assert placed["tasks"][0]["devices"] == {"gpu": [[0, 250], [1, 250]]}
        assert [node["node"] for node in placed["placed_on"]] == ["lab"]
        assert "gpu 0 (0.25), gpu 1 (0.25)" in mooring.out("status", "half")
        client.change_pool("default", PoolChange(fragmentation=False))
        for name in ("a", "b", "c", "half"):
            client.remove(name)
        eventually(lambda: client.node("lab").tasks == 0)

        mooring.out("run", "--gpu", "1", "--gpu-model", "T4", "--gpu-memory", "16Gi", "--", "true")
        for demand, lack in (
            ({"models": ["A100"]}, "1 lacks gpu devices of model A100"),
            ({"memory": "10Gi"}, "1 lacks gpu devices with 10Gi of memory for the task"),
        ):
            request = _request("choosy", "true", gpu="0.5").model_dump() | {"placement": {"devices": [demand]}}
            assert lack in client.dry_run(WorkloadRequest.model_validate(request)).summary


def _request(name: str, script: str, **resources: str) -> WorkloadRequest:
    container = {"command": ["sh", "-c", script], "resources": {"cpu": "50m", **resources}}
    return WorkloadRequest.model_validate({"name": name, "containers": [container], "stop_grace_seconds": 1})


def _output(client: Client, ref: str) -> str:
    try:
        return b"".join(client.logs(ref)).decode()
    except MooringError:  # not placed or not started yet
        return ""


def _given_out(server: Server) -> dict[int, int]:
    """Return the amount of each device that is allocated now."""
    question = "SELECT device_index, SUM(amount) FROM device_allocations WHERE freed_at IS NULL GROUP BY device_index"
    return dict(_rows(server.data / "mooring.db", question))


def _ledger(server: Server) -> dict[str, dict[int, int]]:
    """Per workload what it was given of which device, ended ones included."""
    question = """
        SELECT w.name, d.device_index, d.amount FROM device_allocations d
        JOIN tasks t ON t.id = d.task_id JOIN workloads w ON w.id = t.workload_id
    """
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for name, index, amount in _rows(server.data / "mooring.db", question):
        found[name][index] = amount
    return found


def _rows(path: Path, question: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(question).fetchall()
