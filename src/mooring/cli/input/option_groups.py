"""Options that several commands share, group by group: a command names a group, and has all of its options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from mooring.cli.options import (
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
    from mooring.wire.containers import VolumeRequest
    from mooring.wire.rollouts import RolloutRequest


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of each group where it has a parameter for the group."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind) and isinstance(kind, type):
            groups[parameter.name] = kind
            parameters += _parameters(kind)
        else:
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _parameters(group: type[Any]) -> Iterable[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    each: Field[Any]
    for each in fields(group):
        yield inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name]
        )


@dataclass(frozen=True, kw_only=True)
class ResourceOptions:
    cpu: CpuOption = None
    memory: MemoryOption = None
    gpu: GpuOption = None
    storage: StorageOption = None
    slot: SlotOption = None

    @property
    def amounts(self) -> dict[str, str] | None:
        from mooring.cli.requests import resources

        asked = resources(cpu=self.cpu, memory=self.memory, gpu=self.gpu, storage=self.storage, slots=self.slot)
        return asked or None


@dataclass(frozen=True, kw_only=True)
class ContainerOptions(ResourceOptions):
    """What can be said of a container in a few words; the rest is for files."""

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
    terminal: TerminalOption = False

    def fields(self, command: list[str] | None) -> dict[str, Any]:
        """Of a `ContainerRequest`; None for what was not said."""
        from mooring.cli.containers import ready_http, secret_files, volumes_and_mounts
        from mooring.cli.requests import environment

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
        }

    @property
    def volumes(self) -> list[VolumeRequest] | None:
        """What its mounts are of."""
        from mooring.cli.containers import volumes_and_mounts

        return volumes_and_mounts(self.volume)[0] or None


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """Where a workload runs, for whom, and before whom."""

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
        """Of any request for a workload; None for what was not said."""
        from mooring.cli.requests import assignments, checked_name, group, placement

        return {
            "pool": checked_name(self.pool, what="pool"),
            "project": checked_name(self.project, what="project"),
            "region": self.region,
            "architecture": self.arch,
            "labels": assignments(self.label, option="--label") or None,
            "group": group(self.group),
            "on_insufficient": self.on_insufficient,
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
    """When a workload may start."""

    start_at: StartAtOption = None
    after_ok: AfterOkOption = None
    after_any: AfterAnyOption = None
    after_fail: AfterFailOption = None
    keep_waiting: KeepWaitingOption = False

    def fields(self) -> dict[str, Any]:
        from mooring.cli.requests import build
        from mooring.cli.windows import moment_in
        from mooring.wire.sessions import DependencyRequest

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
class TermOptions:
    """How long the tasks of a workload may take, and how often they are tried."""

    time: TimeOption = None
    idle_timeout: IdleTimeoutOption = None
    signal: SignalOption = None
    singleton: SingletonOption = None
    array: ArrayOption = None
    retries: RetriesOption = None
    retry_on: RetryOnOption = None

    def fields(self) -> dict[str, Any]:
        from mooring.cli.requests import checked_name, exit_codes
        from mooring.model.arrays import parse_array
        from mooring.model.durations import parse_duration
        from mooring.model.terms import parse_notice

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
    """How the replicas of a deployment are replaced."""

    surge: Annotated[
        str | None, typer.Option(metavar="N|N%", help="So many replicas more than wanted there may be in an update.")
    ] = None
    unavailable: Annotated[
        str | None, typer.Option(metavar="N|N%", help="So many fewer than wanted may be ready in an update.")
    ] = None
    steady: Annotated[
        str | None, typer.Option(metavar="TIME", help="A new replica counts when it was ready for so long: 10s.")
    ] = None
    drain: Annotated[
        int | None, typer.Option(metavar="SECONDS", min=0, help="Between leaving the endpoints and being stopped.")
    ] = None
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="An update stops when nothing got better for so long: 10m.")
    ] = None

    def request(self) -> RolloutRequest | None:
        """None if nothing was said."""
        from mooring.cli.requests import build
        from mooring.model.durations import parse_duration
        from mooring.wire.rollouts import RolloutRequest

        steady, deadline = (None if said is None else parse_duration(said) for said in (self.steady, self.deadline))
        asked = build(
            RolloutRequest,
            surge=self.surge,
            unavailable=self.unavailable,
            steady_seconds=steady,
            drain_seconds=self.drain,
            deadline_seconds=deadline,
        )
        return asked if asked.model_fields_set else None
