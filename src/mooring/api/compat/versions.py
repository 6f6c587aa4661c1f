"""Clients and agents of other versions: one version back works, and who does not is told why and what to do."""

from __future__ import annotations

from collections.abc import Mapping

from mooring import __version__
from mooring.model.errors import Outdated
from mooring.wire import agent, versions


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
    """What is added to the refusal of something unknown, where the client may know more than the server."""
    client = versions.read(headers.get(versions.CLIENT_HEADER))
    if client is None or client.protocol <= versions.PROTOCOL:
        return ""
    return (
        f"; the client is version {client.version}, newer than the server's {__version__}: "
        "what it asks for may need a newer server"
    )


def refused_agent(hello: agent.Hello) -> str | None:
    """Why this server cannot work with an agent; None where it can."""
    if agent.OLDEST_PROTOCOL <= hello.protocol <= agent.PROTOCOL:
        return None
    cure = "the agent" if hello.protocol < agent.OLDEST_PROTOCOL else "the servers first"
    return (
        f"this agent is version {hello.facts.agent_version} (protocol {hello.protocol}), and the server, version "
        f"{__version__}, works with protocols {agent.OLDEST_PROTOCOL} to {agent.PROTOCOL}: upgrade {cure}"
    )
