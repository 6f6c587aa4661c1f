"""The schema of scenario files. Unknown fields are errors, as in workload files."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from mooring.model.policy.defragmentation import MAX_MOVES
from mooring.wire.cluster.defragmentation import GainName
from mooring.wire.cluster.pools import PoolChange
from mooring.wire.fields import MAX_LABELS, LabelName, Name, Quantity, Request, ShortText, SlotName
from mooring.wire.workloads.sessions import Duration

Resources = Annotated[dict[SlotName, Quantity], Field(min_length=1, max_length=32)]
Time = Annotated[str, Field(min_length=1, max_length=40)] | Annotated[int, Field(ge=0, le=1 << 40)]
"""A time since the start of the simulation: seconds, `90m`, `1-12:00:00`."""
FileName = Annotated[str, Field(min_length=1, max_length=4096)]
Priority = Annotated[int, Field(ge=-1000, le=1000)]
Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class _Part(Request):
    # YAML has no sequences other than lists, and writes 1 where 1.0 is wanted.
    model_config = ConfigDict(strict=False, extra="forbid")


class NodesPart(_Part):
    """Nodes from a file, or a number of equal nodes."""

    file: FileName | None = None
    """CSV file: a column per slot, or the node list of the Alibaba GPU trace. Relative to the scenario file."""
    name: Name = "node"
    """Name of the node, or of the nodes before their number."""
    count: Annotated[int, Field(ge=1, le=100_000)] = 1
    pool: Name = "default"
    resources: Resources | None = None
    """Allocatable amounts of each node."""
    gpu_model: ShortText | None = None
    labels: Annotated[dict[LabelName, ShortText], Field(max_length=MAX_LABELS)] = {}

    @model_validator(mode="after")
    def _one_kind(self) -> NodesPart:
        if (self.file is None) == (self.resources is None):
            raise ValueError("nodes need one of file and resources")
        return self


class NumberPart(_Part):
    """A number per row of a CSV file: a column times a factor, or a constant."""

    column: ShortText | None = None
    factor: Annotated[str | int | float, Field()] = 1
    """Factor of the column: 0.000001 for microseconds, 1048576 for MiB."""
    value: Annotated[str | int | float | None, Field()] = None
    """Constant, instead of a column."""

    @model_validator(mode="after")
    def _one_kind(self) -> NumberPart:
        if (self.column is None) == (self.value is None):
            raise ValueError("a number needs one of column and value")
        for number in (self.factor, self.value or 0):
            if len(str(number)) > 40 or abs(_exponent(str(number))) > 40:
                raise ValueError(f"{str(number)[:40]!r} is not a number of reasonable size")
            Fraction(str(number))
        return self


def _exponent(text: str) -> int:
    _, found, exponent = text.lower().partition("e")
    return int(exponent) if found else 0


NumberColumn = ShortText | NumberPart


class ColumnsPart(_Part):
    """The columns of a CSV file. Times are in seconds, amounts in cores, bytes, devices or items, after the factor."""

    submitted: NumberColumn
    ended: NumberColumn | None = None
    """End time; an empty field means that the job does not end within the trace."""
    run: NumberColumn | None = None
    """Run time, instead of `ended`."""
    limit: NumberColumn | None = None
    request: Annotated[dict[SlotName, NumberColumn], Field(min_length=1, max_length=32)]
    """Amount per slot of one task."""
    tasks: NumberColumn | None = None
    priority: NumberColumn | None = None
    deadline: NumberColumn | None = None
    """Time by which the job should have ended."""
    name: ShortText | None = None
    user: ShortText | None = None
    project: ShortText | None = None
    header: Annotated[list[ShortText], Field(max_length=256)] | None = None
    """Names of the columns, if the file has no header."""


class KindPart(_Part):
    """A kind of job of a Poisson workload."""

    name: Name = "job"
    weight: Positive = 1.0
    """Frequency relative to the other kinds."""
    resources: Resources
    """Request of one task."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] = 1
    """More than one task is a gang."""
    run: Duration
    """Mean run time."""
    distribution: Literal["constant", "exponential", "lognormal"] = "exponential"
    spread: Annotated[float, Field(gt=0, le=10)] = 1.0
    """lognormal: standard deviation of the logarithm."""
    limit_factor: Annotated[float, Field(ge=1, le=1000)] | None = None
    """Time limits are 1 to this many run times; not given: no time limit."""
    deadline_factor: Annotated[float, Field(ge=1, le=1000)] | None = None
    """Deadlines are this many run times after the submission; not given: no deadline."""
    users: Annotated[list[Name], Field(min_length=1, max_length=10_000)] | None = None
    project: ShortText = ""
    priority: Priority = 10
    preemptible: bool = True
    gpu_models: Annotated[list[ShortText], Field(max_length=64)] = []


class PoissonPart(_Part):
    """Jobs that arrive independently of each other."""

    jobs_per_hour: Positive
    duration: Duration
    kinds: Annotated[list[KindPart], Field(min_length=1, max_length=100)]


class LublinPart(_Part):
    """Rigid parallel jobs by the model of Lublin and Feitelson."""

    jobs: Annotated[int, Field(ge=1, le=2_000_000)]
    processors: Annotated[int, Field(ge=1, le=1 << 20)]


class WorkloadPart(_Part):
    """Jobs of a trace or a generator."""

    trace: FileName | None = None
    """Job log, also .gz. Relative to the scenario file."""
    format: Literal["swf", "sacct", "openb", "pai", "philly", "accounting", "csv"] | None = None
    """Format of the trace (default: recognised by its first line; csv needs `columns`)."""
    columns: ColumnsPart | None = None
    poisson: PoissonPart | None = None
    lublin: LublinPart | None = None
    gangs: bool = False
    """Split jobs of processor logs into tasks of one core each that start together."""
    gpus_per_node: Annotated[int, Field(ge=1, le=256)] = 8
    """philly: jobs with more GPUs are gangs."""
    order: FileName | None = None
    """openb: file of arrival orders; the pods of the line of this seed arrive one after the other and never end."""
    interval: Annotated[int, Field(ge=0, le=86_400)] = 1
    """openb with an order: seconds between two arrivals."""
    first: Annotated[int, Field(ge=1, le=2_000_000)] | None = None
    """Take only this many jobs."""
    start: Time = 0
    """Time of the first submission of the trace or generator."""
    load: Positive = 1.0
    """Factor of the arrival rate: 2 halves the times between submissions."""
    pool: Name | None = None
    """Pool of all jobs (default: as the trace says, or default)."""
    user: ShortText | None = None
    project: ShortText | None = None
    domain: ShortText | None = None
    priority: Priority | None = None
    preemptible: bool | None = None
    booking: Name | None = None
    """All jobs run in this booking."""

    @model_validator(mode="after")
    def _one_kind(self) -> WorkloadPart:
        if sum(each is not None for each in (self.trace, self.poisson, self.lublin)) != 1:
            raise ValueError("a workload needs one of trace, poisson and lublin")
        if (self.format == "csv") != (self.columns is not None):
            raise ValueError("format csv and columns need each other")
        return self


class TenantPart(_Part):
    """The limits and the weight of a tenant. One of user, project and domain names it."""

    user: ShortText | None = None
    project: ShortText | None = None
    domain: ShortText | None = None
    limits: Annotated[dict[SlotName, Quantity], Field(max_length=32)] = {}
    """Maximum of concurrent use per slot; `sessions` counts jobs."""
    guaranteed: Annotated[dict[SlotName, Quantity], Field(max_length=32)] = {}
    """Of a project, for preemption with the scope reclaim."""
    weight: Annotated[int, Field(ge=1, le=100_000)] = 100

    @model_validator(mode="after")
    def _one_level(self) -> TenantPart:
        if sum(each is not None for each in (self.user, self.project, self.domain)) != 1:
            raise ValueError("a tenant needs one of user, project and domain")
        return self


class FaultPart(_Part):
    """Nodes that are lost at a time. Their jobs are requeued and start from the beginning."""

    nodes: Annotated[list[Name], Field(max_length=100_000)] = []
    labels: Annotated[dict[LabelName, ShortText], Field(max_length=MAX_LABELS)] = {}
    """Instead of names: all nodes with these labels, such as those of a rack."""
    at: Time
    back: Time | None = None
    """Time at which they return; not given: never."""


class BookingPart(_Part):
    """Capacity that is reserved for a window; requested when the simulation starts."""

    name: Name
    pool: Name = "default"
    start: Time
    end: Time
    resources: Resources
    """Request of each task that it has capacity for."""
    count: Annotated[int, Field(ge=1, le=100_000)] = 1
    lead: Time = 0
    """Time before its start from which its capacity is reserved."""


class DefragmentationPart(_Part):
    """Moves of running jobs at intervals, as `mooring defrag plan --apply` makes them."""

    pool: Name = "default"
    every: Duration
    moves: Annotated[int, Field(ge=1, le=MAX_MOVES)] = 10
    """Maximum number of moves at a time."""
    gain: GainName = "gpu"
    max_lost: Duration = "1h"
    """Jobs that have run for longer stay: a moved job starts again."""


class ScenarioFile(_Part):
    """A scenario of `mooring simulate`."""

    seed: Annotated[int, Field(ge=0, le=1 << 31)] = 1
    """Seed of the generators, and of the arrival order."""
    until: Time | None = None
    """End of the simulation (default: with the last event)."""
    estimates: Literal["limits", "actual"] = "limits"
    """Run times that the scheduler plans with: time limits, or the actual ones, which no scheduler knows."""
    cluster: Annotated[list[NodesPart], Field(max_length=1000)] = []
    pools: Annotated[dict[Name, PoolChange], Field(max_length=256)] = {}
    """Options of pools, as of `mooring pool create`. A pool that is not named has the defaults."""
    workloads: Annotated[list[WorkloadPart], Field(min_length=1, max_length=100)]
    tenants: Annotated[list[TenantPart], Field(max_length=100_000)] = []
    faults: Annotated[list[FaultPart], Field(max_length=10_000)] = []
    bookings: Annotated[list[BookingPart], Field(max_length=1000)] = []
    defragmentation: Annotated[list[DefragmentationPart], Field(max_length=256)] = []


def schema() -> dict[str, Any]:
    """Return the JSON Schema of scenario files."""
    from mooring.wire.workloads.manifest_schema import described_schema

    return described_schema(ScenarioFile, "Mooring scenario")
