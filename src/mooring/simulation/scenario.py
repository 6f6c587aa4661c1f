"""A scenario: nodes, jobs, pools, tenants and events. Readers and generators make it, the engine replays it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.policy.defragmentation import Gain
from mooring.model.policy.pools import Expectation, PoolPolicy
from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.quotas import Scope
from mooring.model.workloads.workload import OnInsufficient
from mooring.scheduling.plugins.profiles import Registry
from mooring.simulation.estimates import Estimates, TimeLimits
from mooring.simulation.jobs import Job
from mooring.simulation.live_state import Live

_MODELLED = {
    "profile",
    "weights",
    "scorer_options",
    "filters",
    "selector",
    "selector_options",
    "sequencer",
    "fair_share",
    "factors",
    "ageing_seconds",
    "head_of_line",
    "backfill",
    "preemption",
    "fragmentation",
    "on_insufficient",
    "pending_timeout_seconds",
    "max_tasks_per_node",
    "default_time_seconds",
    "max_time_seconds",
    "bookings",
}
"""Options of a pool that the simulation follows."""
_WITHOUT_EFFECT = {
    "default_cpu",
    "default_memory",
    "deprioritise",
    "hold_seconds",
    "hold_max_seconds",
    "health",
    "host_paths",
    "privileged",
    "public",
    "shared_volumes",
    "paused_reason",
}
"""Options that change nothing for jobs of a trace: they concern submissions, agents or containers."""


@dataclass(frozen=True, slots=True)
class TenantRules:
    """The limits of a tenant and its entitlement."""

    scope: Scope
    name: str
    limits: Amounts = field(default_factory=dict)
    guaranteed: Amounts = field(default_factory=dict)
    """Of a project, for preemption with the scope `reclaim`."""
    weight: int = 100
    """Its fair-share weight; twice the weight entitles to twice as much."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Nodes that are lost at a time and return later, or never. Their jobs are requeued."""

    nodes: tuple[str, ...]
    at: int
    back_at: int | None = None


@dataclass(frozen=True, slots=True)
class Booking:
    """Capacity reserved for a window of time; requested when the simulation starts."""

    name: str
    pool: str
    start: int
    end: int
    request: Amounts
    count: int = 1
    lead_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Defragmentation:
    """Running jobs of a pool are moved at intervals; each starts again on its new node."""

    pool: str
    every_seconds: int
    moves: int
    """The maximum at a time."""
    gain: Gain = Gain.GPU
    max_lost_seconds: int = 3600
    """Jobs that have run for longer stay."""
    for_pending: bool = False
    """Only pending work that requests devices causes moves; typical requests do not."""


@dataclass(frozen=True, slots=True)
class Scenario:
    nodes: Sequence[Node]
    jobs: Sequence[Job]
    pools: Mapping[str, PoolPolicy]
    tenants: Sequence[TenantRules] = ()
    faults: Sequence[Fault] = ()
    bookings: Sequence[Booking] = ()
    defragmentation: Sequence[Defragmentation] = ()
    until: int | None = None
    """The simulation ends at this time; None: with its last event."""
    estimates: Estimates = field(default_factory=TimeLimits)
    """The run times that the scheduler plans with."""
    live: Live | None = None
    """The state of a server that the simulation starts from; None: an empty cluster at time 0."""

    @property
    def moves(self) -> Sequence[Defragmentation]:
        """The rules of defragmentation, with those of pools that move tasks automatically: their budget every hour."""
        if self.live is not None:
            return self.defragmentation
        automatic = [
            Defragmentation(
                name,
                3600,
                rules.moves_per_hour,
                rules.gain,
                rules.max_lost_seconds,
                for_pending=rules.gain is Gain.GPU,
            )
            for name, policy in self.pools.items()
            if (rules := policy.defragmentation).moves_per_hour
        ]
        return [*self.defragmentation, *automatic]

    @property
    def begins(self) -> int:
        """The time at which the simulation starts."""
        return 0 if self.live is None else self.live.at


def check(scenario: Scenario) -> None:
    """Raise InvalidInput for unknown names, and for pool options that the simulation does not model."""
    registry = Registry()
    registry.discover()
    for name, policy in scenario.pools.items():
        if scenario.live is None:
            _check_modelled(name, policy)
        registry.profile_of(policy)
        registry.sequencer(policy)
    for pool in {job.pool for job in scenario.jobs} | {node.pool for node in scenario.nodes}:
        if pool not in scenario.pools:
            raise InvalidInput(f"there is no pool {pool!r}; add it to pools", code="invalid-scenario")
    names = {node.name for node in scenario.nodes}
    if len(names) < len(scenario.nodes):
        raise InvalidInput("two nodes have the same name", code="invalid-scenario")
    for rule in scenario.defragmentation:
        if rule.pool not in scenario.pools:
            raise InvalidInput(f"defragmentation: there is no pool {rule.pool!r}", code="invalid-scenario")
    for fault in scenario.faults:
        if unknown := sorted(set(fault.nodes) - names):
            raise InvalidInput(f"a fault names node {unknown[0]!r}, which does not exist", code="invalid-scenario")
    if scenario.live is not None:
        return
    if scenario.faults and scenario.bookings:
        raise InvalidInput("the simulation does not model faults together with bookings", code="not-modelled")
    booked = {booking.name: booking for booking in scenario.bookings}
    for booking in scenario.bookings:
        if booking.pool not in scenario.pools:
            raise InvalidInput(f"booking {booking.name!r}: there is no pool {booking.pool!r}", code="invalid-scenario")
    for job in scenario.jobs:
        if job.booking and (job.booking not in booked or booked[job.booking].pool != job.pool):
            raise InvalidInput(
                f"{job.name}: there is no booking {job.booking!r} in pool {job.pool!r}", code="invalid-scenario"
            )
    _check_open_ended(scenario)


def options_without_model(policy: PoolPolicy) -> list[str]:
    """Return the options of a pool that differ from their defaults and that the simulation does not follow."""
    default = PoolPolicy(policy.profile)
    return [
        option.name
        for option in fields(policy)
        if option.name not in _MODELLED | _WITHOUT_EFFECT
        and not (option.name == "allowed_types" and "batch" in policy.allowed_types)
        and getattr(policy, option.name) != getattr(default, option.name)
    ]


def _check_modelled(name: str, policy: PoolPolicy) -> None:
    for option in options_without_model(policy):
        if option == "defragmentation":
            continue  # modelled, except from the state of a server
        raise _not_modelled(name, f"the option {option!r}")
    if policy.backfill.expectation is Expectation.HISTORY:
        raise _not_modelled(name, "the expectation 'history' of backfill")
    if policy.on_insufficient is OnInsufficient.SCALE_UP:
        raise _not_modelled(name, "the value 'scale_up' of on_insufficient")


def _check_open_ended(scenario: Scenario) -> None:
    """Raise if work without a time limit would have to move for a booking: the simulation moves no work."""
    for pool in {booking.pool for booking in scenario.bookings}:
        policy = scenario.pools[pool]
        open_ended = any(job.pool == pool and job.limit_seconds is None and not job.booking for job in scenario.jobs)
        limited = policy.default_time_seconds is not None or policy.max_time_seconds is not None
        if open_ended and not limited and policy.bookings.movable_notice_seconds is not None:
            raise _not_modelled(
                pool, "moving work without a time limit for bookings (set bookings.open_ended to refuse)"
            )


def _not_modelled(pool: str, what: str) -> InvalidInput:
    return InvalidInput(f"pool {pool}: the simulation does not model {what}", code="not-modelled")


def with_task_limits(nodes: Sequence[Node], pools: Mapping[str, PoolPolicy]) -> list[Node]:
    """Return the nodes with the maximum number of tasks that their pools allow."""
    limits = {name: policy.max_tasks_per_node for name, policy in pools.items()}
    return [
        node if (most := limits[node.pool]) is None else replace(node, max_tasks=min(most, node.max_tasks or most))
        for node in nodes
    ]
