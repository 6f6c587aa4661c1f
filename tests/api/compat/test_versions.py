"""A server works with clients and agents one version back; others get an error that says what to do."""

import pytest

from mooring import __version__
from mooring.api.compat.versions import refused_agent
from mooring.wire import versions
from mooring.wire.agents import agent_protocol
from mooring.wire.agents.agent_protocol import Hello
from tests.api.agents.test_hub import FACTS
from tests.api.world import World
from tests.store.databases import on_sqlite


def client(protocol: int) -> dict[str, str]:
    return {versions.CLIENT_HEADER: f"mooring-python/9.8.7 protocol/{protocol}"}


@on_sqlite
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="curl"),
        pytest.param({versions.CLIENT_HEADER: "something else"}, id="another program"),
        pytest.param(client(versions.OLDEST_PROTOCOL), id="one version back"),
        pytest.param(client(versions.PROTOCOL), id="the same"),
        pytest.param(client(versions.PROTOCOL + 1), id="newer"),
    ],
)
async def test_clients_of_this_version_and_the_one_before_are_served(world: World, headers: dict[str, str]):
    assert (await world.client.get("/api/nodes", headers=await world.admin() | headers)).status_code == 200


@on_sqlite
async def test_an_older_client_is_refused_with_both_versions_and_a_remedy(world: World):
    answer = await world.client.get("/health", headers=client(versions.OLDEST_PROTOCOL - 1))
    assert (answer.status_code, answer.json()["code"]) == (426, "client-too-old")
    message = answer.json()["message"]
    assert "9.8.7" in message
    assert __version__ in message
    assert "upgrade the client" in message


@on_sqlite
async def test_a_newer_client_learns_that_the_server_is_older(world: World):
    newer, admin = client(versions.PROTOCOL + 1), await world.admin()
    unknown_path = await world.client.get("/api/some/news", headers=admin | newer)
    field = {"name": "n", "resources": {}, "news": 1}
    unknown_field = await world.client.post("/api/nodes", json=field, headers=admin | newer)
    for answer, status in ((unknown_path, 404), (unknown_field, 422)):
        assert answer.status_code == status
        assert "9.8.7, newer than the server" in answer.json()["message"]
    assert "newer" not in (await world.client.get("/api/some/news", headers=client(versions.PROTOCOL))).text


@pytest.mark.parametrize(
    ("protocol", "cure"),
    [
        (agent_protocol.OLDEST_PROTOCOL - 1, "upgrade the agent"),
        (agent_protocol.PROTOCOL + 1, "upgrade the servers first"),
    ],
)
def test_an_agent_of_another_protocol_is_refused_with_both_versions_and_a_remedy(protocol: int, cure: str):
    sentence = refused_agent(Hello(protocol=protocol, facts=FACTS))
    assert sentence is not None
    assert sentence.endswith(cure)
    assert FACTS.agent_version in sentence
    assert __version__ in sentence


def test_agents_of_this_protocol_and_the_one_before_are_taken():
    for protocol in (agent_protocol.OLDEST_PROTOCOL, agent_protocol.PROTOCOL):
        assert refused_agent(Hello(protocol=protocol, facts=FACTS)) is None
