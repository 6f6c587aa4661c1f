"""Node templates and requests for nodes in the store."""

from __future__ import annotations

from datetime import timedelta

from mooring.clock import now
from mooring.model.nodes.node_templates import NodeTemplate, ScaleRequest, ScaleRequestStatus
from mooring.model.resources.devices import Device
from mooring.model.workloads.constraints import Effect, Taint
from mooring.store.core.engine import Connection
from mooring.store.core.ids import new_id
from mooring.store.scaling import node_templates, scale_requests
from mooring.store.tenancy.admin_actions import SERVER
from tests.store.harness import Harness

S = ScaleRequestStatus


async def test_a_template_round_trips(harness: Harness):
    template = NodeTemplate(
        "large",
        "default",
        {"cpu": 64_000, "gpu": 2000},
        {"disk": "ssd"},
        (Taint("spot", "yes", Effect.NO_EXECUTE),),
        "aarch64",
        frozenset({"process"}),
        "eu-west",
        "enterprise",
        "cml",
        "2.7",
        {"gpu": (Device(0, 1000, "A100", 80 * 2**30), Device(1, 1000, "A100"))},
        9,
        7,
        60,
        1,
        3,
    )
    await harness.database.write(lambda c: node_templates.put(c, template, actor=SERVER, now=now()))
    async with harness.database.read() as connection:
        assert await node_templates.by_pool(connection) == {"default": [template]}


async def test_requests_that_ended_long_ago_are_forgotten_and_open_ones_are_not(harness: Harness):
    at = now()
    long_ago = at - timedelta(days=400)
    stored = [S.REQUESTED, S.DELIVERED]
    requests = [
        ScaleRequest(new_id(), "default", "small", status, ({new_id(): 2},), long_ago, long_ago) for status in S
    ]

    async def write(connection: Connection) -> int:
        await scale_requests.insert_new(connection, requests, now=long_ago, term=harness.leadership.term)
        return await scale_requests.purge(connection, at - timedelta(days=365), 100)

    assert await harness.database.write(write) == len(S) - len(stored)
    async with harness.database.read() as connection:
        left = await scale_requests.newest(connection, pool=None, limit=100)
    assert sorted(left, key=lambda request: request.id) == [each for each in requests if each.status in stored]
