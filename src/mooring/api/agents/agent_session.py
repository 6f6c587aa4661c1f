"""One agent's open stream, as the server's parts know it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from mooring.api.confidences import Confidences
from mooring.wire.agent import PROTOCOL, Desired, FromServer, Welcome

Send = Callable[[FromServer], Coroutine[Any, Any, None]]


@dataclass(eq=False, slots=True)
class AgentSession:
    node_id: UUID
    node_name: str
    pool_id: UUID
    credential_hash: str
    send: Send
    confidential: bool = True
    """Nobody on the way can read what is said: TLS, or it is this machine."""
    protocol: int = PROTOCOL
    """The one that its agent speaks."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Its agent may have to be told something."""
    orders_changed: bool = True
    strays: frozenset[UUID] = frozenset()
    """What its agent says lives on the node without being listed."""
    open: bool = True
    last_desired: Desired | None = None
    """Without what is secret in it."""
    last_confidences: Confidences = field(default_factory=dict)
    """What went with it, sealed."""
    last_welcome: Welcome | None = None

    def wake(self, *, orders: bool = True) -> None:
        self.orders_changed = self.orders_changed or orders
        self.changed.set()
