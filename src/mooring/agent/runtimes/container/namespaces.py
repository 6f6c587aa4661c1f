"""Connections to ports inside a container through its network namespace, which need no container network."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mooring.agent.access import network_namespaces
from mooring.agent.access.port_connections import Connected
from mooring.agent.runtimes.container.state_machine import ContainerState
from mooring.model.errors import Conflict


async def connect(container: ContainerState, port: int) -> Connected:
    """Connect to a port on the container's loopback, or at its address if its namespace may not be entered."""

    def is_current() -> bool:
        return container.id in Path(f"/proc/{container.pid}/cgroup").read_text()

    try:
        made = network_namespaces.socket_of(container.pid, is_current)
    except PermissionError:
        if container.address is None:
            raise Conflict(
                "the agent cannot enter the task's network, and the task has no address", code="not-reachable"
            ) from None
        return await asyncio.open_connection(container.address, port)
    return await network_namespaces.connect(made, port)
