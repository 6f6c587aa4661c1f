"""A server works with clients and agents one version back; who is older, or newer, is told what to do."""

import pytest

from mooring import __version__
from mooring.api.compatibility import refused_agent
from mooring.wire import agent, versions
from mooring.wire.agent import Hello
from tests.api.test_hub import FACTS
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
async def test_an_older_client_is_refused_with_both_versions_and_what_to_do(world: World):
    answer = await world.client.get("/health", headers=client(versions.OLDEST_PROTOCOL - 1))
    assert (answer.status_code, answer.json()["code"]) == (426, "client-too-old")
    message = answer.json()["message"]
    assert "9.8.7" in message
    assert __version__ in message
    assert "upgrade the client" in message


@on_sqlite
async def test_a_newer_client_learns_why_the_server_does_not_know_what_it_asks_for(world: World):
    newer, admin = client(versions.PROTOCOL + 1), await world.admin()
    unknown_path = await world.client.get("/api/some/news", headers=newer)
    field = {"name": "n", "resources": {}, "news": 1}
    unknown_field = await world.client.post("/api/nodes", json=field, headers=admin | newer)
    for answer, status in ((unknown_path, 404), (unknown_field, 422)):
        assert answer.status_code == status
        assert "9.8.7, newer than the server" in answer.json()["message"]
    assert "newer" not in (await world.client.get("/api/some/news", headers=client(versions.PROTOCOL))).text


@pytest.mark.parametrize(
    ("protocol", "cure"),
    [(agent.OLDEST_PROTOCOL - 1, "upgrade the agent"), (agent.PROTOCOL + 1, "upgrade the servers first")],
)
def test_an_agent_of_another_protocol_is_told_both_versions_and_what_to_do(protocol: int, cure: str):
    sentence = refused_agent(Hello(protocol=protocol, facts=FACTS))
    assert sentence is not None
    assert sentence.endswith(cure)
    assert FACTS.agent_version in sentence
    assert __version__ in sentence


def test_agents_of_this_protocol_and_the_one_before_are_taken():
    for protocol in (agent.OLDEST_PROTOCOL, agent.PROTOCOL):
        assert refused_agent(Hello(protocol=protocol, facts=FACTS)) is None
