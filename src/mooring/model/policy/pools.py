"""The policy of a pool: queue order, placement, and the commit of decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from mooring.model.calendar.timeslots import BookingRules
from mooring.model.nodes.isolation import IsolationLevel
from mooring.model.nodes.node_templates import ScalingRules
from mooring.model.policy.defragmentation import DefragmentationRules
from mooring.model.policy.preemption import Preemption
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.workload import OnInsufficient


class Binding(StrEnum):
    """The commit of decisions: optimistic, with the chosen nodes locked, or once all agents have prepared."""

    OPTIMISTIC = "optimistic"
    PESSIMISTIC = "pessimistic"
    TWO_PHASE = "two_phase"


class HeadOfLine(StrEnum):
    """The effect of an unschedulable workload on those behind it in the queue.

    It blocks them, is skipped, or gets a planned start that those behind it may not delay.
    """

    STRICT = "strict"
    SKIP = "skip"
    BACKFILL = "backfill"


class BackfillOrder(StrEnum):
    """The order in which workloads are backfilled: queue order, or the shortest first."""

    QUEUE = "queue"
    SHORTEST = "shortest"


class Expectation(StrEnum):
    """The expected end of work: by its time limit, by the history of its owner, or predicted from earlier runs.

    With history, only running work is expected to end sooner. With predictions (the mean of the last two similar runs,
    or a learned quantile), pending work is planned and backfilled by its predicted run time too.
    """

    LIMIT = "limit"
    HISTORY = "history"
    RECENT = "recent"
    PREDICTED = "predicted"


class Moment(StrEnum):
    """The moment of a validator: at submission, where it rejects, or before placement, where the workload waits."""

    ENQUEUE = "enqueue"
    SCHEDULING = "scheduling"


AUTOMATIC = "auto"
"""The profile of pools that choose none: WITH_DEVICES while one of their nodes has GPUs, else WITHOUT_DEVICES."""
WITH_DEVICES, WITHOUT_DEVICES = "gpu", "locality"


def effective_profile(profile: str, *, devices: bool) -> str:
    """Return the profile that applies. `devices`: whether a node of the pool has GPUs."""
    if profile != AUTOMATIC:
        return profile
    return WITH_DEVICES if devices else WITHOUT_DEVICES


PluginOptions = tuple[tuple[str, str | int | bool], ...]
"""Arguments of a plugin by name, sorted."""

DEFAULT_TYPES = ("interactive", "batch", "inference", "system", "compute")


@dataclass(frozen=True, slots=True)
class FairShare:
    """The fair-share rules: the weight of past use in the queue order."""

    half_life_days: int = 7
    lookback_days: int = 28
    slot_weights: tuple[tuple[str, int], ...] = (("cpu", 1000), ("gpu", 10_000), ("memory", 1))
    """In thousandths; slots that are not named weigh 1000."""


@dataclass(frozen=True, slots=True)
class HealthProgram:
    """The health check that the agents of a pool run periodically: a failing node gets no new tasks until it passes."""

    command: tuple[str, ...]
    interval_seconds: int = 60
    timeout_seconds: int = 10


@dataclass(frozen=True, slots=True)
class Backfill:
    """The backfill rules: work that starts ahead of unschedulable work."""

    depth: int = 1
    """Number of unschedulable workloads with a planned start. A very high number plans all of them."""
    order: BackfillOrder = BackfillOrder.QUEUE
    max_bypass_seconds: int = 3600
    """Work whose start cannot be planned preempts before work behind it is placed once it has waited this long."""
    expectation: Expectation = Expectation.LIMIT


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    profile: str
    weights: tuple[tuple[str, int], ...] | None = None
    """Scorers and their weights, instead of those of the profile."""
    binding: Binding = Binding.OPTIMISTIC
    hold_seconds: int = 60
    """The duration of a hold during preparation."""
    fragmentation: bool = False
    """A device share may be split over several devices if none has enough left."""
    preemption: Preemption | None = None
    sequencer: str = "fair_queue"
    """The order of workloads of one priority."""
    fair_share: FairShare = FairShare()
    factors: tuple[tuple[str, int], ...] = ()
    """The weights of the sequencer `multi_factor`."""
    ageing_seconds: int = 0
    """Seconds of waiting that raise the priority by one; 0: never."""
    head_of_line: HeadOfLine = HeadOfLine.BACKFILL
    on_insufficient: OnInsufficient = OnInsufficient.WAIT
    """The default for workloads."""
    pending_timeout_seconds: int = 0
    """Pending workloads expire this long after their creation; 0: never."""
    allowed_types: tuple[str, ...] = DEFAULT_TYPES
    max_tasks_per_node: int | None = None
    default_time_seconds: int | None = None
    max_time_seconds: int | None = None
    idle_timeout_seconds: int | None = None
    """The default for interactive sessions."""
    deprioritise: int = 0
    """A workload that could not be started is requeued with its priority lowered by this much; 0: it fails."""
    validators: tuple[tuple[str, tuple[Moment, ...]], ...] = ()
    """Validators that run at other moments than their default."""
    public: bool = True
    """Every tenant may use it; otherwise only those with access."""
    privileged: bool = False
    """Its containers may be privileged."""
    host_paths: tuple[str, ...] = ()
    """Folders of its nodes that containers may mount, subfolders included."""
    isolation: IsolationLevel = "none"
    """Minimum isolation level of nodes for process tasks."""
    health: HealthProgram | None = None
    shared_volumes: str | None = None
    """A folder that all nodes mount, for volumes that are not bound to one node."""
    hold_max_seconds: int = 1800
    """The maximum duration of a hold while the agents report progress."""
    paused: bool = False
    """Nothing is placed until the pool is resumed; running tasks continue."""
    paused_reason: str | None = None
    backfill: Backfill = Backfill()
    bookings: BookingRules = field(default_factory=BookingRules)
    scaling: ScalingRules = field(default_factory=ScalingRules)
    defragmentation: DefragmentationRules = field(default_factory=DefragmentationRules)
    scorer_options: tuple[tuple[str, PluginOptions], ...] = ()
    filters: tuple[tuple[str, PluginOptions], ...] = ()
    """Filter plugins in addition to the built-in ones, with their options."""
    selector: str | None = None
    """Instead of that of the profile."""
    selector_options: PluginOptions = ()
    default_cpu: int = 1000
    """CPU request, in millicores, of a task that does not give one; 0: none."""
    default_memory: int = 1 << 30
    """Memory request, in bytes, of a task that does not give one; 0: none."""

    @property
    def default_requests(self) -> Amounts:
        """The amounts that a task requests of the slots that it does not mention."""
        return {"cpu": self.default_cpu, "memory": self.default_memory}
