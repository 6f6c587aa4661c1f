"""Groups of options that several commands share. A command that names a group has all of its options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.input.durations import seconds_at_least
from mooring.cli.input.groups import with_groups as with_groups
from mooring.cli.input.options import (
    AfterAnyOption,
    AfterFailOption,
    AfterOkOption,
    ArchitectureOption,
    ArrayOption,
    CapabilityOption,
    CpuOption,
    EnvironmentOption,
    GpuMemoryOption,
    GpuModelOption,
    GpuOption,
    GroupOption,
    IdleTimeoutOption,
    ImageOption,
    InteractiveOption,
    KeepWaitingOption,
    LabelOption,
    LicenceOption,
    MachineImageOption,
    MemoryOption,
    NoPreemptOption,
    NotPreemptibleOption,
    OnInsufficientOption,
    PoolOption,
    PortOption,
    PortsOption,
    PriorityOption,
    PrivateOption,
    ProjectOption,
    PullOption,
    ReadOnlyOption,
    ReadyHttpOption,
    RegionOption,
    RetriesOption,
    RetryOnOption,
    SecretOption,
    SelectOption,
    SignalOption,
    SingletonOption,
    SlotOption,
    StartAtOption,
    StorageOption,
    TerminalOption,
    TimeOption,
    TolerateOption,
    UserOption,
    VolumeOption,
)

if TYPE_CHECKING:
    from mooring.wire.workloads.containers import VolumeRequest
    from mooring.wire.workloads.rollouts import RolloutRequest


@dataclass(frozen=True, kw_only=True)
class ResourceOptions:
    cpu: CpuOption = None
    memory: MemoryOption = None
    gpu: GpuOption = None
    storage: StorageOption = None
    slot: SlotOption = None

    @property
    def amounts(self) -> dict[str, str] | None:
        from mooring.cli.input.requests import resources

        asked = resources(cpu=self.cpu, memory=self.memory, gpu=self.gpu, storage=self.storage, slots=self.slot)
        return asked or None


@dataclass(frozen=True, kw_only=True)
class ContainerOptions(ResourceOptions):
    """Options of a container. Fields that need more than an option are set in files."""

    image: ImageOption = None
    env: EnvironmentOption = None
    port: PortOption = None
    volume: VolumeOption = None
    secret: SecretOption = None
    pull: PullOption = None
    user: UserOption = None
    read_only: ReadOnlyOption = False
    cap_add: CapabilityOption = None
    ready_http: ReadyHttpOption = None
    interactive: InteractiveOption = False
    terminal: TerminalOption = False

    def fields(self, command: list[str] | None) -> dict[str, Any]:
        """Return the fields of a `ContainerRequest`, None for those that are not given."""
        from mooring.cli.input.containers import check_no_image_after, ready_http, secret_files, volumes_and_mounts
        from mooring.cli.input.requests import environment

        if self.interactive and self.image is None:
            check_no_image_after(command or [])
        _, mounts = volumes_and_mounts(self.volume)
        return {
            "image": self.image,
            "command": command or None,
            "environment": environment(self.env) or None,
            "resources": self.amounts,
            "ports": self.port or None,
            "mounts": mounts or None,
            "secrets": secret_files(self.secret) or None,
            "pull": self.pull,
            "user": self.user,
            "read_only": self.read_only or None,
            "capabilities": [name.upper().removeprefix("CAP_") for name in self.cap_add or ()] or None,
            "readiness": None if self.ready_http is None else ready_http(self.ready_http),
            "terminal": self.terminal or None,
            "stdin": self.interactive or None,
        }

    @property
    def volumes(self) -> list[VolumeRequest] | None:
        """Return the sources of the mounts."""
        from mooring.cli.input.containers import volumes_and_mounts

        return volumes_and_mounts(self.volume)[0] or None


@dataclass(frozen=True, kw_only=True)
class PlacementOptions:
    """Options for placement, project and priority of a workload."""

    gpu_model: GpuModelOption = None
    gpu_memory: GpuMemoryOption = None
    pool: PoolOption = None
    project: ProjectOption = None
    region: RegionOption = None
    arch: ArchitectureOption = None
    label: LabelOption = None
    select: SelectOption = None
    tolerate: TolerateOption = None
    ports: PortsOption = 0
    licence: LicenceOption = None
    machine_image: MachineImageOption = None
    group: GroupOption = None
    on_insufficient: OnInsufficientOption = None
    priority: PriorityOption = None
    no_preempt: NoPreemptOption = False
    not_preemptible: NotPreemptibleOption = False
    private: PrivateOption = False

    def fields(self, *, spread_over: Iterable[str] | None = None) -> dict[str, Any]:
        """Return the fields of a workload request, None for those that are not given."""
        from mooring.cli.input.requests import (
            assignments,
            checked_name,
            group,
            placement,
        )

        return {
            "pool": checked_name(self.pool, what="pool"),
            "project": checked_name(self.project, what="project"),
            "region": self.region,
            "architecture": self.arch,
            "labels": assignments(self.label, option="--label") or None,
            "group": group(self.group),
            "on_insufficient": self.on_insufficient and self.on_insufficient.replace("-", "_"),
            "priority": self.priority,
            "placement": placement(
                select=self.select,
                tolerate=self.tolerate,
                ports=self.ports,
                spread_over=spread_over,
                gpu_models=self.gpu_model,
                gpu_memory=self.gpu_memory,
                licence=self.licence,
                machine_image=self.machine_image,
            ),
            "preempts": False if self.no_preempt else None,
            "preemptible": False if self.not_preemptible else None,
            "private": self.private or None,
        }


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """Options for the earliest start of a workload."""

    start_at: StartAtOption = None
    after_ok: AfterOkOption = None
    after_any: AfterAnyOption = None
    after_fail: AfterFailOption = None
    keep_waiting: KeepWaitingOption = False

    def fields(self) -> dict[str, Any]:
        from mooring.cli.input.requests import build
        from mooring.cli.input.windows import moment_in
        from mooring.wire.workloads.sessions import DependencyRequest

        conditions = {"after-ok": self.after_ok, "after-any": self.after_any, "after-fail": self.after_fail}
        dependencies = [
            build(DependencyRequest, workload=name, condition=condition)
            for condition, names in conditions.items()
            for name in names or ()
        ]
        return {
            "starts_at": None if self.start_at is None else moment_in(self.start_at, None),
            "dependencies": dependencies or None,
            "on_dependency_failure": "wait" if self.keep_waiting else None,
        }


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """Options for time limits and retries."""

    time: TimeOption = None
    idle_timeout: IdleTimeoutOption = None
    signal: SignalOption = None
    singleton: SingletonOption = None
    array: ArrayOption = None
    retries: RetriesOption = None
    retry_on: RetryOnOption = None

    def fields(self) -> dict[str, Any]:
        from mooring.cli.input.requests import checked_name, exit_codes
        from mooring.model.calendar.durations import parse_duration
        from mooring.model.workloads.arrays import parse_array
        from mooring.model.workloads.schedule import parse_notice

        for parse, written in (
            (parse_duration, self.time),
            (parse_duration, self.idle_timeout),
            (parse_notice, self.signal),
            (parse_array, self.array),
        ):
            if written is not None:
                parse(written)
        return {
            "time": self.time,
            "idle_timeout": self.idle_timeout,
            "signal": self.signal,
            "singleton": checked_name(self.singleton, what="singleton"),
            "array": self.array,
            "retries": self.retries,
            "retry_on": None if self.retry_on is None else exit_codes(self.retry_on),
        }


@dataclass(frozen=True, kw_only=True)
class RolloutOptions:
    """Options for rolling updates of a deployment."""

    surge: Annotated[
        str | None, typer.Option(metavar="N|N%", help="Maximum extra replicas during an update (default 1).")
    ] = None
    unavailable: Annotated[
        str | None, typer.Option(metavar="N|N%", help="Maximum unavailable replicas during an update (default 0).")
    ] = None
    steady: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time that a new replica must be ready before it counts as available: 10s."),
    ] = None
    drain: Annotated[
        float | None,
        typer.Option(
            metavar="TIME",
            parser=seconds_at_least(0),
            help="Time from a replica's removal from the endpoints to its stop.",
        ),
    ] = None
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time without progress after which an update stalls: 10m.")
    ] = None

    def request(self) -> RolloutRequest | None:
        """Return the update strategy, or None if no option is given."""
        from mooring.cli.input.requests import build
        from mooring.model.calendar.durations import parse_duration
        from mooring.wire.workloads.rollouts import RolloutRequest

        steady, deadline = (None if said is None else parse_duration(said) for said in (self.steady, self.deadline))
        asked = build(
            RolloutRequest,
            surge=self.surge,
            unavailable=self.unavailable,
            steady_seconds=steady,
            drain_seconds=None if self.drain is None else int(self.drain),
            deadline_seconds=deadline,
        )
        return asked if asked.model_fields_set else None
