"""The open connections of one API process: limited per address until a credential is verified, then per user."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from starlette.types import Scope

from mooring.api.middleware.client_address import address_key, client_address
from mooring.api.middleware.load_shedding.limits import ConnectionLimits
from mooring.api.middleware.load_shedding.shedding import Flow, LoadShedding
from mooring.model.errors import TooManyAttempts
from mooring.settings import IPNetwork
from mooring.telemetry import metrics

CONNECTION = "mooring.connection"
"""The scope's key for the connection that a request or WebSocket came on."""
_RETRY_SECONDS = 5
_PARSING_SHARE = 0.25
_PARSING_BURST_SECONDS = 0.1
_MAX_FLOWS = 10_000


class Transport(Protocol):
    def abort(self) -> None: ...


class Connection:
    """One connection, until its transport is closed."""

    def __init__(self, connections: Connections, transport: Transport, address: str, *, exempt: bool) -> None:
        self._connections = connections
        self.transport = transport
        self.address = address
        self.exempt = exempt
        """From a trusted proxy, whose connections carry requests of many clients."""
        self.flow = Flow(address)
        self.on_verified: Callable[[Flow], None] = lambda _flow: None

    def verify(self, flow: Flow) -> None:
        """A credential of this flow was verified; TooManyAttempts where it has too many connections."""
        if not self.exempt and self.flow.user_id is None and self.flow != flow:
            self._connections._verified(self, flow)
        self.on_verified(flow)


class Connections:
    """Limits connections: at the limit, a new one closes the oldest of its address that has shown no valid credential.

    So idle connections cannot keep out a client that shows its credential at once, not even from the same address.
    """

    def __init__(
        self,
        load: LoadShedding,
        limits: ConnectionLimits | None = None,
        trusted_proxies: Sequence[IPNetwork] = (),
    ) -> None:
        self.load = load
        self.limits = limits or ConnectionLimits()
        self._trusted_proxies = trusted_proxies
        self._open: dict[Transport, Connection] = {}
        self._unverified: dict[str, OrderedDict[Connection, None]] = {}
        """By address, the oldest first."""
        self._users: Counter[str] = Counter()
        self._paid_at: OrderedDict[str, float] = OrderedDict()

    def opened(self, transport: Transport, client: tuple[str, int] | None) -> Connection | None:
        """Count a new connection; None where it has to be closed at once."""
        if len(self._open) >= self.limits.total and not self._close_oldest(self._most_unverified()):
            metrics.connections_closed.inc()
            return None
        address = client_address({"client": client})
        connection = Connection(self, transport, address_key(address), exempt=self._is_trusted(address))
        self._open[transport] = connection
        if not connection.exempt:
            others = self._unverified.setdefault(connection.address, OrderedDict())
            others[connection] = None
            if len(others) > self.limits.per_address:
                self._close_oldest(connection.address)
        metrics.connections.set(len(self._open))
        return connection

    def of(self, transport: Transport) -> Connection | None:
        return self._open.get(transport)

    def closed(self, transport: Transport) -> None:
        """Idempotent."""
        connection = self._open.pop(transport, None)
        if connection is None:
            return
        self._forget_unverified(connection)
        if connection.flow.user_id is not None:
            self._users[connection.flow.key] -= 1
            if not self._users[connection.flow.key]:
                del self._users[connection.flow.key]
        metrics.connections.set(len(self._open))

    def parsed(self, flow: Flow, seconds: float) -> float:
        """Count the time that a flow's WebSocket messages cost; return how long to pause so that others get theirs."""
        now = time.monotonic()
        paid_at = max(self._paid_at.pop(flow.key, now), now) + seconds / _PARSING_SHARE
        self._paid_at[flow.key] = paid_at
        if len(self._paid_at) > _MAX_FLOWS:
            self._paid_at.popitem(last=False)
        return paid_at - now - _PARSING_BURST_SECONDS

    def _verified(self, connection: Connection, flow: Flow) -> None:
        if flow.user_id is not None:
            if self._users[flow.key] >= self.limits.per_user:
                raise TooManyAttempts(
                    f"you have {self.limits.per_user} connections open, which is the limit; close one first",
                    code="too-many-connections",
                    details={"retry_after_seconds": _RETRY_SECONDS},
                )
            self._users[flow.key] += 1
        self._forget_unverified(connection)
        connection.flow = flow

    def _forget_unverified(self, connection: Connection) -> None:
        others = self._unverified.get(connection.address)
        if others is not None:
            others.pop(connection, None)
            if not others:
                del self._unverified[connection.address]

    def _most_unverified(self) -> str | None:
        return max(self._unverified, key=lambda address: len(self._unverified[address]), default=None)

    def _close_oldest(self, address: str | None) -> bool:
        if address is None or not self._unverified.get(address):
            return False
        oldest = next(iter(self._unverified[address]))
        metrics.connections_closed.inc()
        self.closed(oldest.transport)
        oldest.transport.abort()
        return True

    def _is_trusted(self, address: str | None) -> bool:
        if address is None or not self._trusted_proxies:
            return False
        parsed = ipaddress.ip_address(address)
        return any(parsed in network for network in self._trusted_proxies)


def verify_connection(scope: Scope, flow: Flow) -> None:
    """Count the connection of a request or WebSocket for the flow whose credential it showed."""
    connection: Connection | None = scope.get(CONNECTION)
    if connection is not None:
        connection.verify(flow)
