"""The parts of a server that its API uses. Protocols stand only for parts that the API may not import."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from mooring import clock
from mooring.api.agents.hub import AgentHub
from mooring.api.agents.measured_usage import MeasuredUse
from mooring.api.auth.login_cache import LoginCache
from mooring.api.auth.login_records import LoginRecords
from mooring.api.auth.login_throttle import LoginThrottle
from mooring.api.auth.passwords import Passwords
from mooring.api.auth.tokens import Tokens
from mooring.api.middleware.load_shedding.rates import Rates
from mooring.api.middleware.load_shedding.shedding import LoadShedding
from mooring.api.streams.event_feed import EventFeed
from mooring.api.streams.open_connections import OpenConnections
from mooring.security.encryption import SecretBox
from mooring.services.administration.audit import Auditor
from mooring.services.administration.defragmentation import Defragmentation
from mooring.services.administration.nodes import NodeAdmin
from mooring.services.administration.pools import PoolAdmin
from mooring.services.administration.quotas import QuotaAdmin
from mooring.services.administration.shares import Shares
from mooring.services.administration.volumes import VolumeAdmin
from mooring.services.bookings.bookings import Bookings
from mooring.services.deployments.deployments import DeploymentAdmin
from mooring.services.queries.queries import Queries
from mooring.services.submission.submission import SubmissionService
from mooring.services.uploads.uploads import Uploads
from mooring.services.what_if.what_if import WhatIf
from mooring.settings import IPNetwork
from mooring.store.core.engine import Database


class Logs(Protocol):
    def stream(
        self,
        task_id: UUID,
        node_id: UUID,
        *,
        container: str,
        tail: int | None,
        follow: bool,
        since: float | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[bytes]:
        """Yield the output of a container of a task from its node; raise Unavailable if the node does not answer."""
        ...


@dataclass(frozen=True, slots=True)
class Readiness:
    checks: dict[str, str]
    """Each part that the server needs, with "ok" or its problem."""
    degraded: dict[str, str] = field(default_factory=dict)
    """Parts that are impaired while the server does its work."""


class State(Protocol):
    """The role and the progress of this server."""

    @property
    def role(self) -> str: ...

    @property
    def last_pass_at(self) -> datetime | None: ...

    @property
    def last_pass_ms(self) -> float | None: ...

    @property
    def passes(self) -> int: ...

    async def readiness(self) -> Readiness: ...


class PassResult(Protocol):
    """Numbers of workloads by the outcome of a pass."""

    @property
    def placed(self) -> int: ...

    @property
    def impossible(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def seconds(self) -> float: ...


class Leadership(Protocol):
    """The scheduler of this process."""

    @property
    def leads(self) -> bool: ...

    async def resign(self) -> None:
        """Return once the lease is released."""
        ...

    async def run_pass(self) -> PassResult:
        """Run a pass over the whole queue; raise TimeoutError if it takes very long."""
        ...


@dataclass(frozen=True, slots=True)
class DeploymentLimits:
    """Limits on the request of a replica of a deployment, and on the number of replicas."""

    min_cpu: float = 0.5
    max_cpu: float = 16
    min_memory_mb: int = 512
    max_memory_mb: int = 16384
    max_gpu: int = 8
    min_storage_gb: int = 1
    max_storage_gb: int = 1000
    max_replicas: int = 10
    max_scale: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    database: Database
    submissions: SubmissionService
    deployments: DeploymentAdmin
    bookings: Bookings
    queries: Queries
    what_if: WhatIf
    nodes: NodeAdmin
    pools: PoolAdmin
    defragmentation: Defragmentation
    quotas: QuotaAdmin
    shares: Shares
    volumes: VolumeAdmin
    uploads: Uploads
    logs: Logs
    task_access: AgentHub
    feed: EventFeed
    state: State
    auditor: Auditor
    tokens: Tokens
    connections: OpenConnections
    login_records: LoginRecords
    metrics_text: Callable[[], bytes]
    version: str
    public_url: str
    """Base URL of this API for clients; the `Location` of accepted work begins with it."""
    secret_box: SecretBox
    leader: Leadership | None = None
    """None if this process never leads."""
    metrics_token: str | None = None
    """Bearer token that `/metrics` requires; None: none."""
    trusted_proxies: Sequence[IPNetwork] = ()
    """Proxies whose `X-Forwarded-For` names the client."""
    limits: DeploymentLimits = field(default_factory=DeploymentLimits)
    passwords: Passwords = field(default_factory=Passwords)
    throttle: LoginThrottle = field(default_factory=LoginThrottle)
    load: LoadShedding = field(default_factory=LoadShedding)
    logins: LoginCache = field(default_factory=LoginCache)
    measured: MeasuredUse = field(default_factory=MeasuredUse)
    now: Callable[[], datetime] = clock.now

    @property
    def rates(self) -> Rates:
        return self.load.rates
