"""Checks of requested containers, and their translation into the template of tasks."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from mooring.model.errors import InvalidInput
from mooring.model.resources.quantity import INT64_MAX
from mooring.model.resources.slots import Amounts, parse_amounts, slot_type
from mooring.model.resources.task_resources import check_resources, requests_of
from mooring.model.workloads.containers import (
    Container,
    Mount,
    Probe,
    Pull,
    Restart,
    TaskTemplate,
    Volume,
    VolumeKind,
)
from mooring.model.workloads.paths import check_path, is_within
from mooring.model.workloads.workload import Kind
from mooring.wire.workloads.containers import (
    ContainerRequest,
    InitContainerRequest,
    MountRequest,
    ProbeRequest,
    TaskTemplateRequest,
    VolumeRequest,
)

_RESERVED_PREFIX = "MOORING_"
_RESERVED_FOLDERS = ("/proc", "/sys", "/dev", "/run/secrets", "/run/mooring")
"""Reserved in every container for the engine and the agent."""
_CONTAINERS_ONLY = (
    "limits",
    "pull",
    "ports",
    "mounts",
    "secrets",
    "readiness",
    "liveness",
    "user",
    "read_only",
    "capabilities",
    "privileged",
    "shared_memory",
)
"""Fields without effect on a process of the node itself."""


def template_of(request: TaskTemplateRequest, kind: Kind, replicas: int) -> TaskTemplate:
    """Return the template of every task; raise InvalidInput for an invalid request."""
    _check_containers(request)
    volumes = _volumes(request.volumes)
    default = Restart.ALWAYS if kind is Kind.DEPLOYMENT else Restart.NEVER
    template = TaskTemplate(
        containers=tuple(map(_container, request.containers)),
        restart=Restart(request.restart) if request.restart else default,
        max_restarts=request.max_restarts,
        stop_grace_seconds=request.stop_grace_seconds,
        architecture=request.architecture,
        init_containers=tuple(map(_container, request.init_containers)),
        volumes=volumes,
    )
    _check_mounts(template)
    check_resources(template)
    _check_total(template, replicas)
    return template


def with_default_requests(
    template: TaskTemplate, default: Amounts, served: Set[str] | None, replicas: int
) -> TaskTemplate:
    """Return the template with the default request for each slot that no container of the task mentions.

    The first container gets it. A request or limit of 0 counts as mentioned. `served` are the slots that the pool's
    nodes have: a default that none of them could satisfy is left out; None: not known, because it has no nodes.
    """
    mentioned = {slot for container in template.all_containers for slot in container.slots}
    added = {
        slot: amount
        for slot, amount in default.items()
        if amount and slot not in mentioned and (served is None or slot in served)
    }
    if not added:
        return template
    first, *others = template.containers
    shared = first.shared_memory or 0
    if shared > added.get("memory", shared):
        written = slot_type("memory").format
        raise InvalidInput(
            f"container {first.name!r}: shared memory counts as memory, and {written(shared)} exceeds the pool's"
            f" default request of {written(added['memory'])}; request as much memory",
            code="invalid-request",
        )
    result = replace(template, containers=(replace(first, slots={**first.slots, **added}), *others))
    _check_total(result, replicas)
    return result


def _check_total(template: TaskTemplate, replicas: int) -> None:
    for slot, amount in requests_of(template).items():
        if amount * replicas > INT64_MAX:
            raise InvalidInput(f"{slot}: {replicas} tasks of this size are too much", code="quantity-too-large")


def _check_containers(request: TaskTemplateRequest) -> None:
    if len({container.image is None for container in request.all_containers}) > 1:
        raise InvalidInput("either all containers of a task have an image, or none", code="mixed-runtimes")
    if _doubled([container.name for container in request.all_containers]):
        raise InvalidInput("two containers of a task have the same name", code="doubled-name")
    if doubled := _doubled([port for container in request.all_containers for port in container.ports]):
        raise InvalidInput(f"port {doubled[0]} is used twice in one task", code="doubled-port")
    if request.containers[0].image is None:
        _check_processes(request)
    for container in request.all_containers:
        _check_environment(container)
        for probe, what in ((container.readiness, "readiness"), (container.liveness, "liveness")):
            if probe is not None:
                _check_probe(probe, f"{what} of container {container.name!r}")
        if container.liveness is not None and container.liveness.successes != 1:
            raise InvalidInput(
                f"liveness of container {container.name!r}: one success is enough, so leave out successes",
                code="invalid-probe",
            )
    for container in request.init_containers:
        _check_init_container(container)


def _check_processes(request: TaskTemplateRequest) -> None:
    """Refuse fields that only containers have for tasks without an image, instead of ignoring them."""
    for what in ("init_containers", "volumes"):
        if getattr(request, what):
            raise InvalidInput(f"{what} need an image, and this task has none", code="containers-only")
    for container in request.containers:
        if not container.command and container.script is None:
            raise InvalidInput(
                f"container {container.name!r} has neither an image nor a command", code="nothing-to-run"
            )
        usual = type(container).model_construct()
        useless = [name for name in _CONTAINERS_ONLY if getattr(container, name) not in (None, getattr(usual, name))]
        if useless:
            raise InvalidInput(
                f"container {container.name!r} has no image, so it runs as a process of its node, which cannot have"
                f" {', '.join(useless)}: give an image, or leave them out",
                code="containers-only",
                details={"container": container.name, "fields": useless},
            )


def _check_environment(container: ContainerRequest) -> None:
    taken = sorted(name for name in container.environment if name.startswith(_RESERVED_PREFIX))
    if taken:
        raise InvalidInput(
            f"environment names that begin with {_RESERVED_PREFIX} are reserved for Mooring: {', '.join(taken)}",
            code="reserved-environment",
        )


def _check_probe(probe: ProbeRequest, what: str) -> None:
    if bool(probe.command) == (probe.port is not None):
        raise InvalidInput(f"{what}: give either a command or a port (with a path for HTTP)", code="invalid-probe")
    if probe.path is not None and probe.port is None:
        raise InvalidInput(f"{what}: a path needs a port", code="invalid-probe")
    if probe.timeout_seconds > probe.interval_seconds:
        raise InvalidInput(
            f"{what}: the timeout, {probe.timeout_seconds} s, exceeds the interval, {probe.interval_seconds} s;"
            " it must not be longer",
            code="invalid-probe",
        )


def _check_init_container(container: InitContainerRequest) -> None:
    if container.sidecar:
        return
    useless = [name for name in ("ports", "readiness", "liveness", "terminal", "stdin") if getattr(container, name)]
    if useless:
        raise InvalidInput(
            f"init container {container.name!r} ends before the task starts, so it cannot have {', '.join(useless)}:"
            " leave them out, or make it a sidecar",
            code="invalid-init-container",
        )


def _container(asked: ContainerRequest) -> Container:
    what = f"container {asked.name!r}"
    limits = parse_amounts(asked.limits)
    slots = {**limits, **parse_amounts(asked.resources)}
    shared_memory = None if asked.shared_memory is None else slot_type("memory").parse(asked.shared_memory)
    memory = limits.get("memory", slots.get("memory"))
    if shared_memory and memory is not None and shared_memory > memory:
        raise InvalidInput(f"{what}: shared memory counts as memory and cannot exceed it", code="invalid-request")
    folder = asked.working_folder
    if folder is not None and asked.image is not None:
        folder = check_path(folder, what=f"{what}: the working folder")
    return Container(
        name=asked.name,
        image=asked.image,
        command=tuple(asked.command),
        environment=asked.environment,
        working_folder=folder,
        slots=slots,
        limits=limits,
        sidecar=isinstance(asked, InitContainerRequest) and asked.sidecar,
        pull=Pull(asked.pull),
        ports=tuple(asked.ports),
        mounts=tuple(_mount(mount, what) for mount in asked.mounts),
        secrets=asked.secrets,
        readiness=_probe(asked.readiness),
        liveness=_probe(asked.liveness),
        user=asked.user,
        read_only=asked.read_only,
        capabilities=tuple(sorted(set(asked.capabilities))),
        privileged=asked.privileged,
        shared_memory=shared_memory,
        terminal=asked.terminal,
        script=asked.script,
        stdin=asked.stdin,
        terminal_rows=asked.terminal_rows,
        terminal_columns=asked.terminal_columns,
    )


def _probe(asked: ProbeRequest | None) -> Probe | None:
    if asked is None:
        return None
    return Probe(**(asked.model_dump() | {"command": tuple(asked.command)}))


def _mount(asked: MountRequest, what: str) -> Mount:
    path = check_path(asked.path, what=f"{what}: the mount")
    for reserved in _RESERVED_FOLDERS:
        if is_within(path, reserved) or is_within(reserved, path):
            raise InvalidInput(f"{what}: cannot mount at {path}, because {reserved} is reserved", code="invalid-mount")
    return Mount(asked.volume, path, asked.read_only)


def _volumes(asked: Sequence[VolumeRequest]) -> tuple[Volume, ...]:
    if _doubled([volume.name for volume in asked]):
        raise InvalidInput("two volumes of a task have the same name", code="doubled-name")
    volumes = []
    for volume in asked:
        if (volume.kind == "host") != (volume.path is not None):
            raise InvalidInput(
                f"volume {volume.name!r}: a host volume needs a path, and other volumes have none",
                code="invalid-volume",
            )
        path = None if volume.path is None else check_path(volume.path, what=f"volume {volume.name!r}: the path")
        volumes.append(Volume(volume.name, VolumeKind(volume.kind), path))
    return tuple(volumes)


def _check_mounts(template: TaskTemplate) -> None:
    known, mounted = {volume.name for volume in template.volumes}, set()
    for container in template.all_containers:
        if doubled := _doubled([mount.path for mount in container.mounts]):
            raise InvalidInput(f"container {container.name!r} has two mounts at {doubled[0]}", code="invalid-mount")
        mounted |= {mount.volume for mount in container.mounts}
    if unknown := sorted(mounted - known):
        raise InvalidInput(
            f"{unknown[0]!r} is mounted but is not a volume of the task: {', '.join(sorted(known)) or 'none'}",
            code="unknown-volume",
        )
    if unused := sorted(known - mounted):
        raise InvalidInput(f"volume {unused[0]!r} is not mounted by any container", code="invalid-volume")


def _doubled(values: Sequence[object]) -> list[object]:
    return [value for number, value in enumerate(values) if value in values[:number]]
