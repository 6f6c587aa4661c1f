"""The client's address: the peer of the connection, or what a trusted proxy says, and nothing that a client says."""

from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import httpx2
import pytest
from starlette.requests import HTTPConnection

from mooring.api.agents.secret_decryption import is_confidential
from mooring.api.app import create_app
from mooring.api.middleware.client_address import address_key, client_address
from mooring.model.errors import InvalidInput
from mooring.settings import load
from tests.api.world import World


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("not an address", None),
    ],
)
def test_an_address_has_one_form(host: str, address: str | None):
    assert client_address({"type": "http", "client": (host, 1234)}) == address


def test_a_connection_without_a_peer_has_no_address():
    assert client_address({"type": "http"}) is None
    assert client_address({"type": "http", "client": None}) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("192.0.2.1", "192.0.2.2", False),
        (None, None, True),
    ],
)
def test_an_ipv6_network_counts_as_one_address(one: str | None, other: str | None, same: bool):
    assert (address_key(one) == address_key(other)) is same


@pytest.mark.parametrize(
    ("proxies", "peer", "forwarded", "address"),
    [
        ([], "127.0.0.1", ["203.0.113.9"], "127.0.0.1"),
        (["10.0.0.5/32"], "10.0.0.6", ["203.0.113.9"], "10.0.0.6"),
        (["10.0.0.5/32"], "10.0.0.5", ["203.0.113.9"], "203.0.113.9"),
        (["10.0.0.5/32"], "10.0.0.5", [], "10.0.0.5"),
        (["10.0.0.5/32"], "::ffff:10.0.0.5", ["203.0.113.9"], "203.0.113.9"),
        (["10.0.0.0/8"], "10.0.0.5", ["198.51.100.1, 203.0.113.9, 10.2.0.1"], "203.0.113.9"),
        (["10.0.0.0/8"], "10.0.0.5", ["198.51.100.1", "203.0.113.9"], "203.0.113.9"),
        (["2001:db8::/32"], "2001:db8::5", ["[2001:db9::1]:443"], "2001:db9::1"),
    ],
    ids=[
        "loopback is not trusted by default",
        "a stranger's header is ignored",
        "a proxy is believed",
        "a proxy that says nothing",
        "a proxy seen on a socket for both families",
        "what a client put in front is ignored",
        "also where it is a header of its own",
        "an address with a port",
    ],
)
async def test_only_trusted_proxies_say_where_a_client_is(
    world: World, proxies: list[str], peer: str, forwarded: list[str], address: str
):
    app = create_app(replace(world.services, trusted_proxies=[ip_network(each) for each in proxies]))
    headers = [*(await world.admin()).items(), *(("X-Forwarded-For", each) for each in forwarded)]
    transport = httpx2.ASGITransport(app=app, client=(peer, 1234))
    async with httpx2.AsyncClient(transport=transport, base_url="http://mooring.test") as client:
        made = await client.post("/api/projects", json={"name": "new"}, headers=headers)
        assert made.status_code == 201, made.text
        [newest] = (await client.get("/api/actions?limit=1", headers=headers)).json()["actions"]
    assert newest["address"] == address


@pytest.mark.parametrize(
    ("more", "confidential"),
    [
        ({}, True),
        ({"headers": [(b"x-forwarded-for", b"203.0.113.9")]}, False),
        ({"headers": [(b"forwarded", b"for=203.0.113.9")]}, False),
        ({"client": ("203.0.113.9", 1)}, False),
        ({"client": ("203.0.113.9", 1), "scheme": "wss"}, True),
    ],
    ids=["on this machine", "an unknown proxy here", "the same by its other header", "elsewhere", "elsewhere by TLS"],
)
def test_a_connection_from_this_machine_is_confidential_unless_a_proxy_passed_it_on(
    more: dict[str, Any], confidential: bool
):
    plain = {"type": "websocket", "client": ("127.0.0.1", 1), "headers": [], "scheme": "ws", "path": "/"}
    assert is_confidential(HTTPConnection({**plain, "server": ("mooring.test", 80), **more})) is confidential


def test_trusted_proxies_are_addresses_and_networks():
    loaded = load({"trusted_proxies": "10.0.0.5, 10.1.2.3/16,2001:db8::/32"}, environment={})
    assert [str(each) for each in loaded.settings.trusted_networks] == ["10.0.0.5/32", "10.1.0.0/16", "2001:db8::/32"]
    assert load(environment={"FORWARDED_ALLOW_IPS": "10.0.0.5"}).settings.trusted_proxies == "10.0.0.5"
    assert load(environment={}).settings.trusted_networks == ()


@pytest.mark.parametrize("text", ["*", "proxy.example", "10.0.0.0/33"])
def test_a_proxy_that_is_no_address_is_refused(text: str):
    with pytest.raises(InvalidInput, match="trusted_proxies"):
        load({"trusted_proxies": text}, environment={})
