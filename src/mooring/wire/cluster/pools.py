"""Schemas of pools: their options and their numbers of nodes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from mooring.model.nodes.isolation import IsolationLevel
from mooring.model.policy.defragmentation import MAX_MOVES
from mooring.model.resources.quantity import INT64_MAX
from mooring.wire.cluster.defragmentation import GainName
from mooring.wire.fields import INT32_MAX, Answer, LabelName, Name, Quantity, Request, Said, ShortText, SlotName
from mooring.wire.workloads.containers import FolderPath

Seconds = Annotated[int, Field(ge=0, le=31_536_000)]
PluginName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
Weights = Annotated[dict[LabelName, Annotated[int, Field(ge=1, le=1_000_000)]], Field(max_length=64)]
OptionName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
OptionText = Annotated[str, StringConstraints(max_length=4096, pattern=r"^[^\x00-\x1f\x7f]*$")]
PluginOptions = Annotated[
    dict[OptionName, bool | Annotated[int, Field(ge=-INT64_MAX, le=INT64_MAX)] | OptionText], Field(max_length=32)
]
TypeName = Literal["interactive", "batch", "inference", "system", "compute"]
MomentName = Literal["enqueue", "scheduling"]


class PreemptionChange(Request):
    """Preemption rules of a pool. A field that is not given has its default."""

    enabled: bool = Field(True, description="Allow preemption.")
    mode: Literal["terminate", "requeue"] = Field(
        "requeue",
        description="Preempt running work for work of higher priority: terminate or requeue the victims (default off).",
    )
    scope: Literal["user", "project", "domain", "pool", "reclaim"] = Field(
        "pool", description="Owners whose tasks may be preempted, relative to the preemptor (default pool)."
    )
    min_runtime_seconds: Seconds = Field(
        0, description="Never preempt tasks that have run for less than this (default 0)."
    )
    hold_seconds: Annotated[int, Field(ge=1, le=86_400)] = Field(
        300, description="Time that freed capacity is held for the preemptor (default 300)."
    )


class FairShareChange(Request):
    """Fair-share rules of a pool. Only the fields that are given change."""

    half_life_days: Annotated[int, Field(ge=1, le=365)] | None = Field(
        None, description="fair_share: age at which past usage counts half (default 7)."
    )
    lookback_days: Annotated[int, Field(ge=1, le=365)] | None = Field(
        None, description="fair_share: maximum age of past usage that counts (default 28)."
    )
    slot_weights: dict[SlotName, Annotated[int, Field(ge=0, le=1_000_000)]] | None = Field(
        None, description="fair_share: weight of a slot in thousandths (default gpu=10000, memory=1, others 1000)."
    )


class BookingRulesChange(Request):
    """Defaults for the pool's bookings. Only the fields that are given change."""

    lead_seconds: Seconds | None = Field(
        None, description="Time before its start at which a booking is prepared (default 2100)."
    )
    grace_seconds: Seconds | None = Field(
        None, description="Time after its start at which a booking that could not start is missed (default 300)."
    )
    notice_seconds: Seconds | None = Field(
        None, description="Time before its end at which users of a booking are notified (default 300)."
    )
    open_ended: Literal["refuse", "until_lead", "displace"] | None = Field(
        None,
        description=(
            "Work without a time limit on capacity that is booked later: refuse it, move it before the booking's lead, "
            "or also let new bookings displace it, also that of other users (default until_lead)."
        ),
    )
    open_ended_notice_seconds: Annotated[int, Field(ge=3600, le=31_536_000)] | None = Field(
        None,
        description="Minimum notice before work without a time limit moves (default 86400).",
    )
    """Counted from the task's placement, or from the booking's confirmation, to the booking's lead."""


class BackfillChange(Request):
    """Rules for work that starts ahead of unschedulable work. Only the fields that are given change."""

    depth: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = Field(
        None, description="backfill: number of unschedulable workloads with a planned start (default 1)."
    )
    order: Literal["queue", "shortest"] | None = Field(
        None, description="backfill: order in which other work fills gaps (default queue)."
    )
    max_bypass_seconds: Seconds | None = Field(
        None,
        description="backfill: time after which work without a planned start may preempt (default 3600).",
    )
    expectation: Literal["limit", "history", "recent", "predicted"] | None = Field(
        None,
        description=(
            "backfill: expected run times: the time limit; running work by its owner's history; all work by the last "
            "two similar runs, or predicted from earlier runs (default limit)."
        ),
    )


class HealthChange(Request):
    """Health check that the pool's agents run. An empty command removes it."""

    command: Annotated[list[ShortText], Field(max_length=64)] = Field(
        description=(
            'Health check to run on every node, without a shell, or "" for none; failing nodes take no new work.'
        )
    )
    interval_seconds: Annotated[int, Field(ge=1, le=86_400)] = Field(
        60, description="Time between two health checks (default 60)."
    )
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = Field(
        10, description="Maximum duration of a health check (default 10)."
    )


class ScalingChange(Request):
    """Scaling rules of a pool. Only the fields that are given change."""

    goal: Literal["cheapest", "fewest"] | None = Field(
        None, description="Scale up at the lowest cost or by the fewest nodes (default cheapest)."
    )
    least: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = Field(
        None, description="Minimum number of nodes, even if idle (default 0)."
    )
    most: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = Field(
        None, description="Maximum number of nodes to scale up to; 0 is no limit (default 0)."
    )
    cooldown_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = Field(
        None, description="Minimum time between two scale-up requests (default 60)."
    )
    idle_seconds: Seconds | None = Field(
        None, description="Time after which an idle node may be removed (default 600)."
    )
    shrink_cooldown_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = Field(
        None, description="Minimum time from any scaling to the next scale-down (default 300)."
    )
    shrink: Literal["advise", "drain"] | None = Field(
        None, description="Only advise on nodes that may be removed, or drain them as well (default advise)."
    )


class DefragmentationChange(Request):
    """Automatic defragmentation of a pool. Only the fields that are given change."""

    moves_per_hour: Annotated[int, Field(ge=0, le=MAX_MOVES)] | None = Field(
        None, description="Maximum number of running tasks to move in any hour; 0 moves none (default 0)."
    )
    gain: GainName | None = Field(
        None,
        description=(
            "Purpose of the moves: GPUs for pending work, capacity for the largest gang, or empty nodes (default gpu)."
        ),
    )
    max_lost_seconds: Seconds | None = Field(
        None, description="Longest run time of a batch task that may restart on another node (default 3600)."
    )
    interactive: bool | None = Field(None, description="Move interactive sessions too (default no).")


class PoolChange(Request):
    """Options of a pool. Only the fields that are given change.

    {} resets weights, factors, validators and plugin options to their defaults and removes the additional filters, 0
    lifts a limit, "" removes a folder or a selector. `filters` and `scorer_options` map a plugin to its options.
    """

    profile: PluginName | None = Field(
        None, description="Profile that chooses nodes: auto (default), locality, pack, spread, gpu, kubernetes, …"
    )
    weights: Weights | None = Field(None, description="Weight of a scorer, instead of the profile's weights.")
    scorer_options: Annotated[dict[LabelName, PluginOptions], Field(max_length=64)] | None = Field(
        None, description="Options of a scorer that has a weight."
    )
    filters: Annotated[dict[LabelName, PluginOptions], Field(max_length=64)] | None = Field(
        None, description='Filter plugin in addition to the built-in filters, or "" for none; replaces all filters.'
    )
    selector: PluginName | Literal[""] | None = Field(
        None, description='Selector among the scored nodes, such as highest:ties=random, or "" for that of the profile.'
    )
    selector_options: PluginOptions | None = Field(None, description="Options of the selector.")
    binding: Literal["optimistic", "pessimistic", "two_phase"] | None = Field(
        None, description="Protocol that makes decisions durable (default optimistic)."
    )
    hold_seconds: Annotated[int, Field(ge=1, le=3600)] | None = Field(
        None, description="two_phase: time that a placement is held until it is ready (default 60)."
    )
    hold_max_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = Field(
        None,
        description="two_phase: maximum time that a placement is held while agents report progress (default 1800).",
    )
    fragmentation: bool | None = Field(
        None, description="Allow a fractional device request to be split over several devices (default no)."
    )
    preemption: PreemptionChange | None = Field(None, description="Preemption rules.")
    bookings: BookingRulesChange | None = Field(None, description="Defaults for bookings.")
    sequencer: PluginName | None = Field(
        None,
        description="Order within a priority: fair_queue (default), fifo, lifo, drf, fair_share, multi_factor.",
    )
    fair_share: FairShareChange | None = Field(None, description="Fair-share rules.")
    factors: dict[PluginName, Annotated[int, Field(ge=0, le=1_000_000)]] | None = Field(
        None, description="multi_factor: weight of a factor."
    )
    ageing_seconds: Seconds | None = Field(
        None, description="Pending time that raises the priority by one; 0 never raises it (default 0)."
    )
    head_of_line: Literal["strict", "skip", "backfill"] | None = Field(
        None,
        description=(
            "Unschedulable work blocks the work behind it, is skipped, or gets a planned start that "
            "other work may not delay (default backfill)."
        ),
    )
    backfill: BackfillChange | None = Field(None, description="Backfill rules.")
    on_insufficient: Literal["wait", "fail", "scale_up"] | None = Field(
        None, description="Action for unschedulable work that does not choose one itself (default wait)."
    )
    pending_timeout_seconds: Seconds | None = Field(
        None, description="Time after its creation at which pending work expires; 0 is never (default 0)."
    )
    allowed_types: Annotated[list[TypeName], Field(min_length=1)] | None = Field(
        None, description="Session type that the pool accepts (default all)."
    )
    max_tasks_per_node: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = Field(
        None, description="Maximum number of tasks on a node; 0 is the node's own limit (default 0)."
    )
    default_cpu: Quantity | None = Field(
        None, description="CPU request of tasks that do not give one: 500m, 2; 0 is none (default 1)."
    )
    default_memory: Quantity | None = Field(
        None, description="Memory request of tasks that do not give one: 512Mi, 2Gi; 0 is none (default 1Gi)."
    )
    default_time_seconds: Seconds | None = Field(
        None, description="Time limit of work that does not set one; 0 is no limit (default 0)."
    )
    max_time_seconds: Seconds | None = Field(None, description="Maximum time limit; 0 is no limit (default 0).")
    idle_timeout_seconds: Seconds | None = Field(
        None, description="Time after which an idle interactive session ends; 0 is never (default 0)."
    )
    deprioritise: Annotated[int, Field(ge=0, le=100)] | None = Field(
        None,
        description="Priority to subtract when work is requeued after failed starts; 0 fails it instead (default 0).",
    )
    validators: dict[PluginName, list[MomentName]] | None = Field(
        None, description="Moments at which a validator runs: enqueue, scheduling, both, or none."
    )
    public: bool | None = Field(None, description="Allow every tenant to use the pool (default yes).")
    privileged: bool | None = Field(None, description="Allow privileged containers (default no).")
    host_paths: Annotated[list[FolderPath], Field(max_length=64)] | None = Field(
        None, description='Folder of the nodes that containers may mount, or "" for none; replaces all folders.'
    )
    shared_volumes: FolderPath | Literal[""] | None = Field(
        None, description='Folder that all nodes mount, for shared volumes, or "" for none.'
    )
    isolation: IsolationLevel | None = Field(
        None, description="Lowest isolation level of nodes that run process tasks of the pool (default none)."
    )
    health: HealthChange | None = Field(None, description="Health check.")
    scaling: ScalingChange | None = Field(None, description="Scaling rules.")
    defragmentation: DefragmentationChange | None = Field(None, description="Automatic defragmentation.")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        """An option that does not exist is answered with those that do."""
        for name in given if isinstance(given, dict) else ():
            if name not in cls.model_fields:
                raise ValueError(
                    f"there is no option {str(name)[:63]!r}; known are {', '.join(sorted(cls.model_fields))}"
                )
        return given


class PoolRequest(PoolChange):
    """A new pool. A field that is not given has its default."""

    name: Name
    runtimes: Annotated[list[Literal["process", "container"]], Field(min_length=1)] = Field(
        ["process"], description="Runtime of the pool's nodes (default process)."
    )
    simulated: bool = Field(False, description="Simulate the pool's nodes and their tasks.")


class PauseRequest(Request):
    reason: Said | None = None
    """Shown to the owners of pending work."""


class PreemptionView(Answer):
    mode: str
    scope: str
    min_runtime_seconds: int
    hold_seconds: int


class BookingRulesView(Answer):
    lead_seconds: int = 2100
    grace_seconds: int = 300
    notice_seconds: int = 300
    open_ended: str = "until_lead"
    open_ended_notice_seconds: int = 86_400


class FairShareView(Answer):
    half_life_days: int = 7
    lookback_days: int = 28
    slot_weights: dict[str, int] = {}


class BackfillView(Answer):
    depth: int = 1
    order: str = "queue"
    max_bypass_seconds: int = 3600
    expectation: str = "limit"


class HealthView(Answer):
    command: list[str]
    interval_seconds: int
    timeout_seconds: int


class ScalingRulesView(Answer):
    goal: str = "cheapest"
    least: int = 0
    most: int | None = None
    cooldown_seconds: int = 60
    idle_seconds: int = 600
    shrink_cooldown_seconds: int = 300
    shrink: str = "advise"


class DefragmentationRulesView(Answer):
    moves_per_hour: int = 0
    gain: str = "gpu"
    max_lost_seconds: int = 3600
    interactive: bool = False


class AutomaticMovesView(Answer):
    """The budget of automatic moves of a pool, and its newest plan."""

    moves_last_hour: int = 0
    moves_left: int = 0
    """Moves that the budget allows now."""
    plan: UUID | None = None
    status: Literal["EXECUTING", "COMPLETED", "STOPPED"] | None = None
    at: datetime | None = None
    """The time of the plan."""
    planned: int = 0
    """The moves of the plan."""
    arrived: int = 0
    """Moves whose replacement runs on the planned node."""
    gained: float = 0
    """Of the whole plan."""
    bound: float | None = None
    """Proven: no number of moves gains more. None: not computed, for `bound_reason`."""
    bound_reason: str | None = None


class DemandView(Answer):
    """A request that the pool expects, by its newest workloads."""

    request: dict[str, str]
    models: list[str] = []
    """Device models that it accepts; empty for any."""
    percent: float
    """Of the tasks."""


class PoolView(Answer):
    name: str
    simulated: bool
    runtimes: list[str]
    profile: str
    effective_profile: str = ""
    """The profile that applies: another one than `profile` only if that is auto."""
    weights: dict[str, int] | None = None
    scorer_options: dict[str, dict[str, str | int | bool]] = {}
    filters: dict[str, dict[str, str | int | bool]] = {}
    selector: str | None = None
    selector_options: dict[str, str | int | bool] = {}
    binding: str
    hold_seconds: int
    hold_max_seconds: int = 1800
    fragmentation: bool
    preemption: PreemptionView | None = None
    bookings: BookingRulesView = BookingRulesView()
    sequencer: str = "fair_queue"
    fair_share: FairShareView = FairShareView()
    factors: dict[str, int] = {}
    ageing_seconds: int = 0
    head_of_line: str = "backfill"
    backfill: BackfillView = BackfillView()
    on_insufficient: str = "wait"
    pending_timeout_seconds: int = 0
    allowed_types: list[str] = []
    max_tasks_per_node: int | None = None
    default_cpu: str = "1"
    default_memory: str = "1Gi"
    default_time_seconds: int | None = None
    max_time_seconds: int | None = None
    idle_timeout_seconds: int | None = None
    deprioritise: int = 0
    validators: dict[str, list[str]] = {}
    public: bool = True
    privileged: bool = False
    host_paths: list[str] = []
    shared_volumes: str | None = None
    isolation: str = "none"
    health: HealthView | None = None
    scaling: ScalingRulesView = ScalingRulesView()
    defragmentation: DefragmentationRulesView = DefragmentationRulesView()
    paused: bool = False
    paused_reason: str | None = None
    learned_demand: list[DemandView] = []
    """The most frequent requests that the pool expects, where its profile places by them."""
    automatic_moves: AutomaticMovesView | None = None
    """None: the pool has no automatic defragmentation, and had none in the last hour."""
    nodes: int
    version: int = 1


class PoolList(Answer):
    pools: list[PoolView]
