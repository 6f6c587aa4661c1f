"""The policy of a pool: who is next, how its workloads are placed and how decisions become durable."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from mooring.model.preemption import Preemption
from mooring.model.templates import ScalingRules
from mooring.model.timeslots import BookingRules
from mooring.model.workloads import OnInsufficient


class Binding(StrEnum):
    """How decisions are committed: at once, after locking the chosen nodes, or when all agents have prepared."""

    OPTIMISTIC = "optimistic"
    PESSIMISTIC = "pessimistic"
    TWO_PHASE = "two_phase"


class HeadOfLine(StrEnum):
    """What a workload that finds too little room does to those behind it.

    It stops them, is passed over, or gets a planned start which those behind it may not delay.
    """

    STRICT = "strict"
    SKIP = "skip"
    BACKFILL = "backfill"


class BackfillOrder(StrEnum):
    """In which order those behind a planned start are tried: as they are queued, or the shortest first."""

    QUEUE = "queue"
    SHORTEST = "shortest"


class Expectation(StrEnum):
    """When running work is expected to end: by its time limit, or sooner if its owner's work usually does."""

    LIMIT = "limit"
    HISTORY = "history"


class Moment(StrEnum):
    """When a validator is asked: at submission, where it rejects, or before placing, where it lets wait."""

    ENQUEUE = "enqueue"
    SCHEDULING = "scheduling"


DEFAULT_TYPES = ("interactive", "batch", "inference", "system", "compute")


@dataclass(frozen=True, slots=True)
class FairShare:
    """How past use counts against who comes next."""

    half_life_days: int = 7
    lookback_days: int = 28
    slot_weights: tuple[tuple[str, int], ...] = (("cpu", 1000), ("gpu", 10_000), ("memory", 1))
    """In thousandths; slots that are not named weigh 1000."""


@dataclass(frozen=True, slots=True)
class HealthProgram:
    """What the agents of a pool run now and then: a node where it fails takes nothing new until it passes again."""

    command: tuple[str, ...]
    interval_seconds: int = 60
    timeout_seconds: int = 10


@dataclass(frozen=True, slots=True)
class Backfill:
    """How work may go before other work that lacks room."""

    depth: int = 1
    """So many of those that lack room have a planned start; one without a limit makes it the plan of all."""
    order: BackfillOrder = BackfillOrder.QUEUE
    max_bypass_seconds: int = 3600
    """Work whose start cannot be planned is passed by others for so long; then it stops them."""
    expectation: Expectation = Expectation.LIMIT


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    profile: str
    weights: tuple[tuple[str, int], ...] | None = None
    """Scorers and their weights in place of the profile's own."""
    binding: Binding = Binding.OPTIMISTIC
    hold_seconds: int = 60
    """How long a chosen place is kept while it is being made ready."""
    fragmentation: bool = False
    """A share of a device may be split over several devices where none has enough left."""
    preemption: Preemption | None = None
    sequencer: str = "fifo"
    """Who is next among those of one priority."""
    fair_share: FairShare = FairShare()
    factors: tuple[tuple[str, int], ...] = ()
    """Of the sequencer `multi_factor`: what counts how much."""
    ageing_seconds: int = 0
    """Every so many seconds of waiting raise the priority by one; 0: never."""
    head_of_line: HeadOfLine = HeadOfLine.BACKFILL
    on_insufficient: OnInsufficient = OnInsufficient.WAIT
    """For workloads that do not say."""
    pending_timeout_seconds: int = 0
    """What still waits so long after its creation expires; 0: never."""
    allowed_types: tuple[str, ...] = DEFAULT_TYPES
    max_tasks_per_node: int | None = None
    default_time_seconds: int | None = None
    max_time_seconds: int | None = None
    idle_timeout_seconds: int | None = None
    """Of interactive sessions that say none."""
    deprioritise: int = 0
    """What could not be started however often it was tried waits again, so much lower in priority; 0: it fails."""
    validators: tuple[tuple[str, tuple[Moment, ...]], ...] = ()
    """Where a validator is asked at other moments than its own."""
    public: bool = True
    """Every tenant may use it; otherwise those who were given access."""
    privileged: bool = False
    """Its containers may have all of root's powers over their node."""
    host_paths: tuple[str, ...] = ()
    """Folders of its nodes that containers may mount, with what is in them."""
    health: HealthProgram | None = None
    shared_volumes: str | None = None
    """A folder that all nodes mount: volumes in it are on none of them alone."""
    hold_max_seconds: int = 1800
    """How long a chosen place is kept at most, while the agents say that they get on with making it ready."""
    paused: bool = False
    """Nothing of it is placed until it is resumed; what runs goes on."""
    paused_reason: str | None = None
    backfill: Backfill = Backfill()
    bookings: BookingRules = field(default_factory=BookingRules)
    scaling: ScalingRules = field(default_factory=ScalingRules)
