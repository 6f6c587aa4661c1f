"""A flood of requests costs only the flow that sends it: the quiet user is never refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import pytest

from mooring.wire.tenancy.tenants import KeypairRequest
from mooring.wire.tenancy.users import UserRequest
from tests.system.conftest import running_servers
from tests.system.servers import PASSWORD, Server

CONNECTIONS = 24
MIN_FLOODED = 200
"""Answers that the flood has had before the quiet user begins: more than an address may have at once."""
KEYPAIRS = 8
REQUESTS = 5
"""Pairs of a read and a submission by each credential."""
WORK = {"containers": [{"image": "nginx:latest", "resources": {"cpu": "10m", "memory": "1Mi"}}]}

Headers = dict[str, str]


class Request(NamedTuple):
    method: str
    path: str
    headers: Headers
    body: Any = None


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_servers() as servers:
        server = servers.start("--simulate", "2", "--no-agent", environment={"MOORING_ADDRESS_RATE": "20"})
        with server.client() as admin:
            for name in ("quiet", "flooding"):
                admin.create_user(UserRequest(username=name, password=PASSWORD))
        yield server


@pytest.fixture(params=["token", "keypair"])
def quiet(server: Server, request: pytest.FixtureRequest) -> list[Headers]:
    """Credentials of the quiet user; unused keypairs."""
    if request.param == "token":
        return [server.credential("quiet")]
    with server.client("quiet") as client:
        made = [client.create_keypair(KeypairRequest(scope="work")) for _ in range(KEYPAIRS)]
    return [{"Authorization": aiohttp.encode_basic_auth(each.access_key, each.secret)} for each in made]


async def test_a_flood_of_one_user_refuses_no_request_of_another(server: Server, quiet: list[Headers]) -> None:
    async with flood(server, by_turns(server.credential("flooding"))):
        assert await ask(server, quiet) == expected(quiet)


@pytest.mark.slow
async def test_a_flood_of_unauthenticated_clients_refuses_no_request_of_a_user(
    server: Server, quiet: list[Headers]
) -> None:
    # Answered without the pause of a 401, so that the address has used up its rate all the time.
    page = Request("GET", "/no-such-page", {})
    requests = [
        *[page] * 20,
        *by_turns({}),
        *by_turns({"Authorization": "Bearer made-up"}),
        *by_turns({"Authorization": aiohttp.encode_basic_auth("MK" + "A" * 18, "made-up")}),
    ]
    async with flood(server, requests) as statuses:
        assert await ask(server, quiet) == expected(quiet)
        assert statuses[429]


def by_turns(headers: Headers) -> list[Request]:
    """A read and a submission."""
    return [Request("GET", "/api/workloads?limit=20", headers), Request("POST", "/api/workloads", headers, WORK)]


def expected(credentials: Sequence[Headers]) -> Counter[int]:
    return Counter({200: REQUESTS * len(credentials), 202: REQUESTS * len(credentials)})


async def ask(server: Server, credentials: Sequence[Headers]) -> Counter[int]:
    """Send the requests of the quiet user, one after the other, and count the statuses of the responses."""
    statuses: Counter[int] = Counter()
    async with aiohttp.ClientSession(server.url) as session:
        for headers in credentials:
            for request in by_turns(headers) * REQUESTS:
                statuses[await send(session, request)] += 1
    return statuses


@asynccontextmanager
async def flood(server: Server, requests: Sequence[Request]) -> AsyncIterator[Counter[int]]:
    """Connections that each send the next request as soon as the last one is answered, whatever the answer."""
    statuses: Counter[int] = Counter()
    flooded = asyncio.Event()

    async def repeat(first: int) -> None:
        async with aiohttp.ClientSession(server.url) as session:
            number = first
            while True:
                statuses[await send(session, requests[number % len(requests)])] += 1
                number += 1
                if statuses.total() >= MIN_FLOODED:
                    flooded.set()

    async with asyncio.TaskGroup() as group:
        flooding = [group.create_task(repeat(number)) for number in range(CONNECTIONS)]
        await flooded.wait()
        yield statuses
        for task in flooding:
            task.cancel()


async def send(session: aiohttp.ClientSession, request: Request) -> int:
    async with session.request(request.method, request.path, headers=request.headers, json=request.body) as answer:
        await answer.read()
        return answer.status
