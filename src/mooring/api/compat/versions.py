"""Clients and agents of other versions: the previous version works; others are refused with the reason and a remedy."""

from __future__ import annotations

from collections.abc import Mapping

from mooring import __version__
from mooring.model.errors import Outdated
from mooring.wire import versions
from mooring.wire.agents import agent_protocol


def check_client(headers: Mapping[str, str]) -> None:
    """Outdated for a client that says it is older than this server works with."""
    client = versions.read(headers.get(versions.CLIENT_HEADER))
    if client is not None and client.protocol < versions.OLDEST_PROTOCOL:
        raise Outdated(
            f"this client is version {client.version} (protocol {client.protocol}), and the server, version "
            f"{__version__}, works with protocol {versions.OLDEST_PROTOCOL} and newer: upgrade the client",
            details={"client": client.version, "server": __version__},
        )


def of_a_newer_client(headers: Mapping[str, str]) -> str:
    """Return a hint for refusals of unknown input, if the client is newer than the server; empty otherwise."""
    client = versions.read(headers.get(versions.CLIENT_HEADER))
    if client is None or client.protocol <= versions.PROTOCOL:
        return ""
    return (
        f"; the client is version {client.version}, newer than the server's {__version__}: "
        "the request may need a newer server"
    )


def refused_agent(hello: agent_protocol.Hello) -> str | None:
    """Return the message that refuses an agent of an unsupported protocol version; None if it is supported."""
    if agent_protocol.OLDEST_PROTOCOL <= hello.protocol <= agent_protocol.PROTOCOL:
        return None
    cure = "the agent" if hello.protocol < agent_protocol.OLDEST_PROTOCOL else "the servers first"
    return (
        f"this agent is version {hello.facts.agent_version} (protocol {hello.protocol}), and the server, version "
        f"{__version__}, works with protocols "
        f"{agent_protocol.OLDEST_PROTOCOL} to {agent_protocol.PROTOCOL}: upgrade {cure}"
    )
