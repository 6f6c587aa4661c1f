"""The containers that a request asks for, checked and translated into what every task is made from."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.model.containers import (
    Container,
    Mount,
    Probe,
    Pull,
    Restart,
    TaskTemplate,
    Volume,
    VolumeKind,
)
from mooring.model.errors import InvalidInput
from mooring.model.paths import check_path, is_within
from mooring.model.quantity import INT64_MAX
from mooring.model.resources import check_resources, requests_of
from mooring.model.slots import parse_amounts, slot_type
from mooring.model.workloads import Kind
from mooring.wire.containers import (
    ContainerRequest,
    InitContainerRequest,
    MountRequest,
    ProbeRequest,
    TaskTemplateRequest,
    VolumeRequest,
)

_RESERVED_PREFIX = "MOORING_"
_KEPT_FOLDERS = ("/proc", "/sys", "/dev", "/run/secrets")
"""Of every container: what is there is the engine's and the agent's."""
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
    "terminal",
)
"""What has no effect on a process of the node itself."""


def template_of(request: TaskTemplateRequest, kind: Kind, replicas: int) -> TaskTemplate:
    """InvalidInput for what cannot be meant."""
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
    for slot, amount in requests_of(template).items():
        if amount * replicas > INT64_MAX:
            raise InvalidInput(f"{slot}: {replicas} tasks of this size are too much", code="quantity-too-large")
    return template


def _check_containers(request: TaskTemplateRequest) -> None:
    if len({container.image is None for container in request.all_containers}) > 1:
        raise InvalidInput("the containers of a task all have an image, or none has", code="mixed-runtimes")
    if _doubled([container.name for container in request.all_containers]):
        raise InvalidInput("two containers of a task have the same name", code="doubled-name")
    if doubled := _doubled([port for container in request.all_containers for port in container.ports]):
        raise InvalidInput(f"port {doubled[0]} is named twice in one task", code="doubled-port")
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
    """Tasks without an image: what only containers have is refused rather than left without effect."""
    for what in ("init_containers", "volumes"):
        if getattr(request, what):
            raise InvalidInput(f"{what} need an image: processes of a node have none", code="containers-only")
    for container in request.containers:
        if not container.command:
            raise InvalidInput(
                f"container {container.name!r} has neither an image nor a command", code="nothing-to-run"
            )
        usual = type(container).model_construct()
        useless = [name for name in _CONTAINERS_ONLY if getattr(container, name) not in (None, getattr(usual, name))]
        if useless:
            raise InvalidInput(
                f"container {container.name!r} has no image, so it is a process of its node, which cannot have"
                f" {', '.join(useless)}: name an image, or leave that out",
                code="containers-only",
                details={"container": container.name, "fields": useless},
            )


def _check_environment(container: ContainerRequest) -> None:
    taken = sorted(name for name in container.environment if name.startswith(_RESERVED_PREFIX))
    if taken:
        raise InvalidInput(
            f"environment names that begin with {_RESERVED_PREFIX} are Mooring's own: {', '.join(taken)}",
            code="reserved-environment",
        )


def _check_probe(probe: ProbeRequest, what: str) -> None:
    if bool(probe.command) == (probe.port is not None):
        raise InvalidInput(f"{what}: say either a command or a port, and a path with it for HTTP", code="invalid-probe")
    if probe.path is not None and probe.port is None:
        raise InvalidInput(f"{what}: a path needs a port", code="invalid-probe")
    if probe.timeout_seconds > probe.interval_seconds:
        raise InvalidInput(
            f"{what}: an answer may take {probe.timeout_seconds} s and is asked for every {probe.interval_seconds} s;"
            " it cannot take longer than that",
            code="invalid-probe",
        )


def _check_init_container(container: InitContainerRequest) -> None:
    if container.sidecar:
        return
    useless = [name for name in ("ports", "readiness", "liveness", "terminal") if getattr(container, name)]
    if useless:
        raise InvalidInput(
            f"init container {container.name!r} ends before the task begins, so it cannot have {', '.join(useless)}:"
            " leave that out, or make it a sidecar",
            code="invalid-init-container",
        )


def _container(asked: ContainerRequest) -> Container:
    what = f"container {asked.name!r}"
    limits = parse_amounts(asked.limits)
    slots = {**limits, **parse_amounts(asked.resources)}
    shared_memory = None if asked.shared_memory is None else slot_type("memory").parse(asked.shared_memory)
    memory = limits.get("memory", slots.get("memory"))
    if shared_memory and memory is not None and shared_memory > memory:
        raise InvalidInput(
            f"{what}: its shared memory is part of its memory, and cannot be more than that", code="invalid-request"
        )
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
    )


def _probe(asked: ProbeRequest | None) -> Probe | None:
    if asked is None:
        return None
    return Probe(**(asked.model_dump() | {"command": tuple(asked.command)}))


def _mount(asked: MountRequest, what: str) -> Mount:
    path = check_path(asked.path, what=f"{what}: the mount")
    for kept in _KEPT_FOLDERS:
        if is_within(path, kept) or is_within(kept, path):
            raise InvalidInput(f"{what}: nothing can be mounted at {path}, since {kept} is kept", code="invalid-mount")
    return Mount(asked.volume, path, asked.read_only)


def _volumes(asked: Sequence[VolumeRequest]) -> tuple[Volume, ...]:
    if _doubled([volume.name for volume in asked]):
        raise InvalidInput("two volumes of a task have the same name", code="doubled-name")
    volumes = []
    for volume in asked:
        if (volume.kind == "host") != (volume.path is not None):
            raise InvalidInput(
                f"volume {volume.name!r}: a host volume has a path, and no other has one", code="invalid-volume"
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
            f"{unknown[0]!r} is mounted and is no volume of the task; there are: {', '.join(sorted(known)) or 'none'}",
            code="unknown-volume",
        )
    if unused := sorted(known - mounted):
        raise InvalidInput(f"volume {unused[0]!r} is mounted by no container", code="invalid-volume")


def _doubled(values: Sequence[object]) -> list[object]:
    return [value for place, value in enumerate(values) if value in values[:place]]
