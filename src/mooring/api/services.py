"""What the API needs from the rest of the server, as protocols; the server hands in whatever fits them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from mooring import clock
from mooring.api.feed import EventFeed
from mooring.api.measured import MeasuredUse
from mooring.api.passwords import Passwords
from mooring.api.pressure import Pressure
from mooring.api.rates import Rates
from mooring.api.task_channels import Channel
from mooring.api.throttle import LoginThrottle
from mooring.api.tokens import Tokens
from mooring.model.quotas import Scope
from mooring.model.tenants import Principal
from mooring.sealing import Sealing
from mooring.store.actions import Actor
from mooring.store.engine import Database
from mooring.store.node_templates import StoredTemplate
from mooring.store.projects import Project
from mooring.store.views.workloads import WorkloadRow
from mooring.store.volumes import Volume
from mooring.wire.accounting import Room
from mooring.wire.agent import Purpose
from mooring.wire.api import (
    AuditReport,
    BatchAccepted,
    Difference,
    DrainRequest,
    NodeRequest,
    TaintsChange,
    WorkloadAccepted,
    WorkloadRequest,
)
from mooring.wire.explanation import Explanation
from mooring.wire.pools import PoolChange, PoolRequest
from mooring.wire.quarantine import QuarantineEnd
from mooring.wire.quotas import QuotaChange, QuotaView
from mooring.wire.rollouts import UpdateRequest
from mooring.wire.scaling import TemplateRequest
from mooring.wire.sessions import ExtendRequest
from mooring.wire.timeline import TimelineView
from mooring.wire.timeslots import (
    LabAccepted,
    LabRequest,
    MaintenanceRequest,
    TimeslotChange,
    TimeslotRequest,
    TimeslotsAccepted,
)
from mooring.wire.volumes import NewVolumeRequest


class Intake(Protocol):
    """The one way in for work."""

    async def submit(
        self, principal: Principal, request: WorkloadRequest, *, key: str | None = None
    ) -> WorkloadAccepted:
        """With a key the same request again gets the same answer and changes nothing."""
        ...

    async def submit_batch(
        self, principal: Principal, requests: Sequence[object], *, key: str | None = None
    ) -> BatchAccepted:
        """Workloads as they were sent, each accepted or refused by itself."""
        ...

    async def submit_lab(self, principal: Principal, request: LabRequest, *, key: str | None = None) -> LabAccepted:
        """A workload with a timeslot of its own, written together."""
        ...

    async def compare(self, principal: Principal, present: WorkloadRow, request: WorkloadRequest) -> list[Difference]:
        """Where a workload differs from what would be written for a request."""
        ...

    async def scale(self, principal: Principal, workload_id: UUID, replicas: int) -> None: ...

    async def extend(self, principal: Principal, workload_id: UUID, asked: ExtendRequest) -> None: ...

    async def remove(
        self, principal: Principal, workload_id: UUID, *, keep: bool = False, force: bool = False
    ) -> None: ...


class Deployments(Protocol):
    """Changes of deployments that run."""

    async def update(self, principal: Principal, workload_id: UUID, asked: UpdateRequest) -> None: ...

    async def roll_back(self, principal: Principal, workload_id: UUID, number: int | None) -> None:
        """To a revision, or to the one before the present one."""
        ...

    async def pause(self, principal: Principal, workload_id: UUID) -> None: ...

    async def resume(self, principal: Principal, workload_id: UUID) -> None: ...


class Bookings(Protocol):
    """The one way in for timeslots."""

    async def book(
        self, principal: Principal, request: TimeslotRequest, *, key: str | None = None
    ) -> TimeslotsAccepted: ...

    async def change(self, principal: Principal, timeslot_id: UUID, asked: TimeslotChange) -> UUID:
        """The id of the timeslot to look at: the same one, or what was asked for in its place."""
        ...

    async def cancel(self, principal: Principal, timeslot_id: UUID, *, series: bool = False) -> list[UUID]: ...

    async def maintain(self, principal: Principal, request: MaintenanceRequest) -> list[UUID]: ...


class Questions(Protocol):
    """What-if questions, answered by the scheduler's own rules; nothing is changed."""

    async def explain(self, workload_id: UUID) -> Explanation: ...

    async def dry_run(self, principal: Principal, request: WorkloadRequest) -> Explanation: ...

    async def free(self, principal: Principal, pool: str | None) -> Room:
        """How much would start now."""
        ...

    async def timeline(self, pool: str | None, *, hours: int, steps: int, by_node: bool) -> TimelineView:
        """What runs, is booked, planned and free in the hours ahead."""
        ...


class Nodes(Protocol):
    async def add_simulated(self, principal: Principal, request: NodeRequest) -> UUID: ...

    async def drain(self, principal: Principal, name: str, request: DrainRequest) -> None: ...

    async def resume(self, principal: Principal, name: str) -> None: ...

    async def change_taints(self, principal: Principal, name: str, request: TaintsChange) -> None: ...

    async def remove(self, principal: Principal, name: str, force: bool) -> None: ...

    async def end_quarantined(self, principal: Principal, asked: QuarantineEnd) -> None: ...


class Pools(Protocol):
    async def create(self, asked: PoolRequest, actor: Actor) -> None: ...

    async def change(self, name: str, asked: PoolChange, actor: Actor) -> None: ...

    async def remove(self, name: str, actor: Actor) -> None: ...

    async def revert(self, name: str, version: int | None, actor: Actor) -> None: ...

    async def pause(self, name: str, reason: str | None, actor: Actor) -> None: ...

    async def resume(self, name: str, actor: Actor) -> None: ...

    async def put_template(self, pool: str, name: str, asked: TemplateRequest, actor: Actor) -> StoredTemplate: ...


class Quotas(Protocol):
    async def own(self, principal: Principal) -> QuotaView: ...

    async def of(self, principal: Principal, scope: Scope, ref: str) -> QuotaView: ...

    async def change(self, principal: Principal, scope: Scope, ref: str, asked: QuotaChange) -> QuotaView: ...

    async def revert(self, principal: Principal, scope: Scope, ref: str, version: int | None) -> QuotaView: ...


class Volumes(Protocol):
    async def create(self, principal: Principal, asked: NewVolumeRequest) -> Volume: ...

    async def every(self, principal: Principal, project: Project | None, node: str | None = None) -> list[Volume]: ...

    async def find(self, principal: Principal, project: Project | None, name: str) -> Volume: ...

    async def remove(self, principal: Principal, project: Project | None, name: str) -> bool: ...


class Logs(Protocol):
    def stream(
        self, task_id: UUID, node_id: UUID, *, container: str, tail: int | None, follow: bool
    ) -> AsyncIterator[bytes]:
        """The output of a container of a task from its node; Unavailable where the node does not answer."""
        ...


class WaysIn(Protocol):
    def check(self, node_id: UUID) -> None:
        """Unavailable where the node's agent is not connected to this very process, or too old."""

    def open(
        self, task_id: UUID, node_id: UUID, container: str | None, purpose: Purpose
    ) -> AbstractAsyncContextManager[Channel]:
        """A channel into a task for the block; Unavailable where its node does not answer."""
        ...


class Changes(Protocol):
    @property
    def count(self) -> int:
        """How often something was committed."""
        ...

    async def wait(self, timeout: float, seen: int | None = None) -> int:
        """Returns the count when it differs from `seen`, or when the seconds are over."""
        ...


class State(Protocol):
    """What this server is doing."""

    @property
    def role(self) -> str: ...

    @property
    def last_pass_at(self) -> datetime | None: ...

    @property
    def last_pass_ms(self) -> float | None: ...

    @property
    def passes(self) -> int: ...

    async def checks(self) -> dict[str, str]:
        """Every part that it needs, with "ok" or what is wrong."""
        ...


class PassResult(Protocol):
    """In workloads."""

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
        """Returns when the seat is given back."""
        ...

    async def run_pass(self) -> PassResult:
        """A pass over everything that waits; TimeoutError where it takes very long."""
        ...


class Auditor(Protocol):
    async def audit(self) -> AuditReport: ...

    async def repair(self, principal: Principal) -> AuditReport: ...


@dataclass(frozen=True, slots=True)
class DeploymentLimits:
    """How much a deployment may ask for per replica, and how many replicas."""

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
    intake: Intake
    deployments: Deployments
    bookings: Bookings
    questions: Questions
    nodes: Nodes
    pools: Pools
    quotas: Quotas
    volumes: Volumes
    logs: Logs
    ways_in: WaysIn
    changes: Changes
    feed: EventFeed
    state: State
    auditor: Auditor
    tokens: Tokens
    metrics_text: Callable[[], bytes]
    version: str
    public_url: str
    """What this API is reached by from outside; the `Location` of accepted work begins with it."""
    sealing: Sealing
    leader: Leadership | None = None
    """None where this process never leads."""
    limits: DeploymentLimits = field(default_factory=DeploymentLimits)
    passwords: Passwords = field(default_factory=Passwords)
    throttle: LoginThrottle = field(default_factory=LoginThrottle)
    rates: Rates = field(default_factory=Rates)
    pressure: Pressure = field(default_factory=Pressure)
    measured: MeasuredUse = field(default_factory=MeasuredUse)
    now: Callable[[], datetime] = clock.now
