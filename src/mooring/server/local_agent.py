"""The agent that a server runs on its own machine."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.clock import now
from mooring.model.tenancy.tenants import Principal
from mooring.server.database_setup import (
    DEFAULT_POOL,
)
from mooring.settings import Settings
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import (
    join_tokens,
)

if TYPE_CHECKING:
    from mooring.agent.agent import Agent

_JOIN_TOKEN_LIFE = timedelta(minutes=10)


async def local_agent(database: Database, settings: Settings, url: str, admin: Principal) -> Agent:
    """Return this machine's agent; it joins like any other, with a token made here."""
    # Imported here: most servers of a cluster run no work themselves.
    from mooring.agent.agent import Agent
    from mooring.agent.node.facts import node_name
    from mooring.agent.options import Options

    root = settings.data / "agent"
    name = settings.node_name or node_name()

    async def work(connection: Connection) -> str:
        return await join_tokens.create(
            connection,
            node_name=name,
            pool=DEFAULT_POOL,
            created_by=admin.user_id,
            expires_at=now() + _JOIN_TOKEN_LIFE,
            now=now(),
        )

    return Agent(
        [url],
        root,
        name,
        join_token=await database.write(work),
        options=Options(
            trust_tenants=settings.trust_tenants,
            ca_file=settings.tls_cert,
            engine=settings.engine,
            task_network=settings.task_network,
            host_paths=tuple(map(Path, filter(None, settings.host_paths.split(":")))),
        ),
    )
