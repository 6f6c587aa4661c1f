"""The open stream of one agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from mooring.api.agents.task_secrets import SecretsByTask
from mooring.wire.agents.agent_protocol import PROTOCOL, BackgroundTaskState, Desired, FromServer, Welcome

Send = Callable[[FromServer], Coroutine[Any, Any, None]]


@dataclass(eq=False, slots=True)
class AgentSession:
    node_id: UUID
    node_name: str
    pool_id: UUID
    credential_hash: str
    send: Send
    confidential: bool = True
    """The connection cannot be read by others: it has TLS, or the agent is on this machine."""
    protocol: int = PROTOCOL
    """The one that its agent speaks."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be something to send."""
    orders_changed: bool = True
    strays: frozenset[UUID] = frozenset()
    """Tasks that live on the node although they are not in its desired state."""
    background: tuple[BackgroundTaskState, ...] = ()
    """Background tasks of its agent that have failed, as of the last heartbeat."""
    open: bool = True
    last_desired: Desired | None = None
    """Without secrets."""
    last_secrets: SecretsByTask = field(default_factory=dict)
    """The secrets that went with it, encrypted."""
    last_welcome: Welcome | None = None

    def notify(self, *, orders: bool = True) -> None:
        self.orders_changed = self.orders_changed or orders
        self.changed.set()
