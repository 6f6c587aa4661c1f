"""Pools as they travel: their options, and how many nodes they have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from mooring.wire.containers import FolderPath
from mooring.wire.fields import INT32_MAX, Answer, LabelName, Name, Request, Said, ShortText, SlotName

Seconds = Annotated[int, Field(ge=0, le=31_536_000)]
PluginName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
Weights = Annotated[dict[LabelName, Annotated[int, Field(ge=1, le=1_000_000)]], Field(max_length=64)]
TypeName = Literal["interactive", "batch", "inference", "system", "compute"]
MomentName = Literal["enqueue", "scheduling"]


class PreemptionChange(Request):
    """Whether workloads of the pool may make room for themselves, and how; what is not given is the default."""

    enabled: bool = True
    mode: Literal["terminate", "requeue"] = "requeue"
    scope: Literal["user", "project", "domain", "pool", "reclaim"] = "pool"
    min_runtime_seconds: Seconds = 0
    hold_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300


class FairShareChange(Request):
    """Only what is given changes; `slot_weights` are in thousandths."""

    half_life_days: Annotated[int, Field(ge=1, le=365)] | None = None
    lookback_days: Annotated[int, Field(ge=1, le=365)] | None = None
    slot_weights: dict[SlotName, Annotated[int, Field(ge=0, le=1_000_000)]] | None = None


class BookingRulesChange(Request):
    """What the pool's timeslots have where they do not say. Only what is given changes."""

    lead_seconds: Seconds | None = None
    grace_seconds: Seconds | None = None
    notice_seconds: Seconds | None = None


class BackfillChange(Request):
    """How work may go before other work that lacks room. Only what is given changes."""

    depth: Annotated[int, Field(ge=1, le=100)] | None = None
    order: Literal["queue", "shortest"] | None = None
    max_bypass_seconds: Seconds | None = None
    expectation: Literal["limit", "history"] | None = None


class HealthChange(Request):
    """What the agents of the pool run now and then, without a shell; no command: nothing."""

    command: Annotated[list[ShortText], Field(max_length=64)]
    interval_seconds: Annotated[int, Field(ge=1, le=86_400)] = 60
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 10


class ScalingChange(Request):
    """How the pool grows and shrinks. Only what is given changes; `most` 0 lifts the limit."""

    goal: Literal["cheapest", "fewest"] | None = None
    least: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    most: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    cooldown_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None
    idle_seconds: Seconds | None = None
    shrink_cooldown_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None
    shrink: Literal["advise", "drain"] | None = None


class PoolChange(Request):
    """Only what is given changes.

    {} gives weights, factors and validators their defaults back, 0 lifts a limit, "" takes a folder away.
    """

    profile: PluginName | None = None
    weights: Weights | None = None
    binding: Literal["optimistic", "pessimistic", "two_phase"] | None = None
    hold_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None
    hold_max_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = None
    fragmentation: bool | None = None
    preemption: PreemptionChange | None = None
    bookings: BookingRulesChange | None = None
    sequencer: PluginName | None = None
    fair_share: FairShareChange | None = None
    factors: dict[PluginName, Annotated[int, Field(ge=0, le=1_000_000)]] | None = None
    ageing_seconds: Seconds | None = None
    head_of_line: Literal["strict", "skip", "backfill"] | None = None
    backfill: BackfillChange | None = None
    on_insufficient: Literal["wait", "fail", "scale_up"] | None = None
    pending_timeout_seconds: Seconds | None = None
    allowed_types: Annotated[list[TypeName], Field(min_length=1)] | None = None
    max_tasks_per_node: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    default_time_seconds: Seconds | None = None
    max_time_seconds: Seconds | None = None
    idle_timeout_seconds: Seconds | None = None
    deprioritise: Annotated[int, Field(ge=0, le=100)] | None = None
    validators: dict[PluginName, list[MomentName]] | None = None
    public: bool | None = None
    privileged: bool | None = None
    host_paths: Annotated[list[FolderPath], Field(max_length=64)] | None = None
    shared_volumes: FolderPath | Literal[""] | None = None
    health: HealthChange | None = None
    scaling: ScalingChange | None = None

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
    """A new pool: what is not given is the default."""

    name: Name
    runtimes: Annotated[list[Literal["process", "container"]], Field(min_length=1)] = ["process"]
    simulated: bool = False
    """Its nodes and what runs there are pretended."""


class PauseRequest(Request):
    reason: Said | None = None
    """What those who wait are told."""


class PreemptionView(Answer):
    mode: str
    scope: str
    min_runtime_seconds: int
    hold_seconds: int


class BookingRulesView(Answer):
    lead_seconds: int = 2100
    grace_seconds: int = 300
    notice_seconds: int = 300


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


class PoolView(Answer):
    name: str
    simulated: bool
    runtimes: list[str]
    profile: str
    weights: dict[str, int] | None = None
    binding: str
    hold_seconds: int
    hold_max_seconds: int = 1800
    fragmentation: bool
    preemption: PreemptionView | None = None
    bookings: BookingRulesView = BookingRulesView()
    sequencer: str = "fifo"
    fair_share: FairShareView = FairShareView()
    factors: dict[str, int] = {}
    ageing_seconds: int = 0
    head_of_line: str = "backfill"
    backfill: BackfillView = BackfillView()
    on_insufficient: str = "wait"
    pending_timeout_seconds: int = 0
    allowed_types: list[str] = []
    max_tasks_per_node: int | None = None
    default_time_seconds: int | None = None
    max_time_seconds: int | None = None
    idle_timeout_seconds: int | None = None
    deprioritise: int = 0
    validators: dict[str, list[str]] = {}
    public: bool = True
    privileged: bool = False
    host_paths: list[str] = []
    shared_volumes: str | None = None
    health: HealthView | None = None
    scaling: ScalingRulesView = ScalingRulesView()
    paused: bool = False
    paused_reason: str | None = None
    nodes: int
    version: int = 1


class PoolList(Answer):
    pools: list[PoolView]
