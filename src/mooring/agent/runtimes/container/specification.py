"""The engine's specification of a task's containers. Pure: the order in, the body of the engine's request out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import UUID

from mooring.agent.options import Options
from mooring.agent.runtimes.process.identity import task_environment
from mooring.agent.runtimes.scripts import SCRIPT_NAME, script_command
from mooring.model.errors import InvalidInput
from mooring.model.resources.task_resources import oom_score
from mooring.model.workloads.containers import Capability
from mooring.model.workloads.paths import check_path
from mooring.wire.agents.desired_tasks import ContainerSpec, DesiredTask
from mooring.wire.workloads.uploads import WORKSPACE

NODE, TASK, WORKLOAD = "io.mooring.node", "io.mooring.task", "io.mooring.workload"
CONTAINER, ROLE, TERM = "io.mooring.container", "io.mooring.role", "io.mooring.term"

Role = Literal["init", "sidecar", "main"]

SECRETS, SCRIPTS = "/run/secrets", "/run/mooring"

_CAPABILITIES = frozenset(get_args(Capability))
_NANOS_PER_MILLICORE = 1_000_000
_SHARES_PER_CORE, _FEWEST_SHARES = 1024, 2
_VARIABLE = re.compile(r"[^=\0]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapabilities:
    """Capabilities of the engine."""

    kind: Literal["docker", "podman"] = "docker"
    version: str = ""
    cgroup_version: int = 2
    cpu: bool = True
    memory: bool = True
    swap: bool = True
    pids: bool = True
    storage: bool = False
    devices: Literal["request", "cdi"] | None = None
    """Method of passing GPUs to containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedResources:
    """Resources that the node has prepared for a task."""

    node_id: UUID
    term: int = 0
    memory_bytes: int = 0
    """Memory of the node."""
    spares: bool = False
    """Containers may have a lower OOM score than other processes."""
    image: str | None = None
    """The engine's id of the container's image; None: the name in the order."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Folders of its volumes, by their names in the task."""
    workspace: Path | None = None
    """Folder with the task's uploaded files, if it has any."""
    secrets: Path | None = None
    """Folder with the container's secrets, if it has any."""
    script: Path | None = None
    """Folder with the container's script, if it has one."""
    network: str = "none"
    """Name of a network, or `container:ID` of the container whose network is shared."""


def name_of(task_id: UUID, container: str) -> str:
    return f"mooring-{task_id.hex}-{container}"


def enforces(capabilities: EngineCapabilities) -> dict[str, str]:
    """Return how the limit of each slot is enforced; other devices are only listed in the environment."""
    return {
        "cpu": "cgroup" if capabilities.cpu else "none",
        "memory": "cgroup" if capabilities.memory else "none",
        "pids": "cgroup" if capabilities.pids else "none",
        "storage": "quota" if capabilities.storage else "none",
        **({"gpu": "device"} if capabilities.devices else {}),
    }


def check(task: DesiredTask) -> None:
    """Raise InvalidInput for a value that the engine would interpret differently from the API."""
    for container in (*task.init_containers, *task.containers):
        if container.image is None:
            raise InvalidInput(f"container {container.name!r} needs an image", code="start-failed")
        for name in container.environment:
            if not _VARIABLE.fullmatch(name):
                raise InvalidInput(f"{name!r} is not a valid variable name", code="start-failed")
        for mount in container.mounts:
            if check_path(mount.path, what="mount path") == "/":
                raise InvalidInput("nothing can be mounted over the root of a container", code="start-failed")
            if mount.volume not in {volume.name for volume in task.volumes}:
                raise InvalidInput(f"the task has no volume {mount.volume!r}", code="start-failed")
        for file in container.secrets:
            if "/" in file:
                raise InvalidInput(f"{file!r} is not a valid file name", code="start-failed")
            check_path(f"{SECRETS}/{file}", what="secret")
        refused = {_capability(each) for each in container.capabilities} - _CAPABILITIES
        if refused:
            raise InvalidInput(
                f"containers cannot have the capability {', '.join(sorted(refused))}", code="start-failed"
            )
    for volume in task.volumes:
        if volume.path is not None:
            check_path(volume.path, what="volume")


def configuration(
    task: DesiredTask,
    container: ContainerSpec,
    role: Role,
    prepared: PreparedResources,
    capabilities: EngineCapabilities,
    options: Options,
) -> dict[str, Any]:
    """Return the body of the engine's `create` request."""
    shared = prepared.network.startswith("container:")
    config: dict[str, Any] = {
        "Image": prepared.image or container.image,
        "Env": [f"{name}={value}" for name, value in _environment(task, container, capabilities).items()],
        "Labels": {
            NODE: str(prepared.node_id),
            TASK: str(task.task_id),
            WORKLOAD: str(task.workload_id),
            CONTAINER: container.name,
            ROLE: role,
            TERM: str(prepared.term),
        },
        "Tty": container.terminal,
        "OpenStdin": container.terminal or container.stdin,
        # Engines pass the end of a user's input on to the container only if it is used once.
        "StdinOnce": container.stdin and not container.terminal,
        "HostConfig": _host(task, container, prepared, capabilities, options),
    }
    if container.terminal and capabilities.kind == "docker":
        config["HostConfig"]["ConsoleSize"] = [container.terminal_rows, container.terminal_columns]
    if container.script is not None:
        config["Entrypoint"] = script_command(container, f"{SCRIPTS}/{SCRIPT_NAME}")
    elif container.command:
        config["Cmd"] = list(container.command)
    if (folder := working_folder(task, container)) is not None:
        config["WorkingDir"] = folder
    if container.user is not None:
        config["User"] = container.user
    if not shared:
        config["Hostname"] = f"{task.workload_name}-{task.index}"[:63]
    own = [peer.name for peer in task.peers if peer.index == task.index]
    if own and role != "init" and not shared and prepared.network != "none":
        # If the engine resolves names, containers that were started earlier find it, too.
        config["NetworkingConfig"] = {"EndpointsConfig": {prepared.network: {"Aliases": own}}}
    if role != "init" and (published := _published(task, prepared)):
        config["ExposedPorts"] = {f"{inside}/tcp": {} for inside in published}
        config["HostConfig"]["PortBindings"] = {
            f"{inside}/tcp": [{"HostPort": str(outside)} for outside in ports] for inside, ports in published.items()
        }
    return config


def working_folder(task: DesiredTask, container: ContainerSpec) -> str | None:
    """Return the container's working folder; None: the image's."""
    return container.working_folder or (WORKSPACE if task.upload_id is not None else None)


def _environment(task: DesiredTask, container: ContainerSpec, capabilities: EngineCapabilities) -> dict[str, str]:
    """Return the device variables. Passed devices are numbered from 0; without any, the image cannot request one."""
    indexes = _gpus(task)
    by_driver = ",".join(indexes) if capabilities.devices != "cdi" else ""
    environment = task_environment(task, container) | {"NVIDIA_VISIBLE_DEVICES": by_driver or "void"}
    if capabilities.devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in range(len(indexes)))
    return environment


def _gpus(task: DesiredTask) -> list[str]:
    """Return the GPUs of the task, by their indexes on the node."""
    return [str(index) for index, _ in task.devices.get("gpu", ())]


def _host(
    task: DesiredTask,
    container: ContainerSpec,
    prepared: PreparedResources,
    capabilities: EngineCapabilities,
    options: Options,
) -> dict[str, Any]:
    return {
        "NetworkMode": prepared.network,
        "ExtraHosts": _peers(task, prepared),
        "IpcMode": "private",
        "RestartPolicy": {"Name": "no"},
        "ReadonlyRootfs": container.read_only,
        "Mounts": _mounts(container, prepared),
        "LogConfig": _log(capabilities, options),
        "OomScoreAdj": _oom_score(task, container, prepared),
        **_rights(container),
        **_limits(container, capabilities, options),
        **_devices(task, capabilities),
    }


def _rights(container: ContainerSpec) -> dict[str, Any]:
    if container.privileged:
        return {"Privileged": True}
    return {
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": sorted({_capability(each) for each in container.capabilities}),
        "SecurityOpt": ["no-new-privileges"],
    }


def _capability(name: str) -> str:
    return name.upper().removeprefix("CAP_")


def _limits(container: ContainerSpec, capabilities: EngineCapabilities, options: Options) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    asked, most = container.slots, {**container.slots, **container.limits}
    if capabilities.cpu and most.get("cpu"):
        limits["NanoCpus"] = most["cpu"] * _NANOS_PER_MILLICORE
        limits["CpuShares"] = max(asked.get("cpu", 0) * _SHARES_PER_CORE // 1000, _FEWEST_SHARES)
    if capabilities.memory and most.get("memory"):
        limits["Memory"] = most["memory"]
        if capabilities.swap:
            limits["MemorySwap"] = most["memory"]  # memory plus swap: no swap
    if capabilities.pids:
        limits["PidsLimit"] = options.max_processes
    if container.shared_memory is not None:
        limits["ShmSize"] = container.shared_memory
    if capabilities.storage and most.get("storage"):
        limits["StorageOpt"] = {"size": str(most["storage"])}
    return limits


def _devices(task: DesiredTask, capabilities: EngineCapabilities) -> dict[str, Any]:
    """Return the request for the task's GPUs; other devices are only listed in its environment."""
    indexes = _gpus(task)
    if not indexes or capabilities.devices is None:
        return {}
    if capabilities.devices == "cdi":
        return {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={index}" for index in indexes]}]}
    return {"DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": indexes, "Capabilities": [["gpu"]]}]}


def _mounts(container: ContainerSpec, prepared: PreparedResources) -> list[dict[str, Any]]:
    mounts = [_bind(prepared.folders[each.volume], each.path, each.read_only) for each in container.mounts]
    if prepared.workspace is not None:
        mounts.append(_bind(prepared.workspace, WORKSPACE, False))
    if prepared.secrets is not None:
        mounts.append(_bind(prepared.secrets, SECRETS, True))
    if prepared.script is not None:
        mounts.append(_bind(prepared.script, SCRIPTS, True))
    return mounts


def _bind(source: Path, target: str, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}


def _log(capabilities: EngineCapabilities, options: Options) -> dict[str, Any]:
    """Return the bounded log configuration: Docker rotates several files, Podman truncates its only one."""
    if capabilities.kind == "podman":
        return {"Type": "k8s-file", "Config": {"max-size": str(options.log_bytes * options.log_files)}}
    files = {"max-size": str(options.log_bytes), "max-file": str(options.log_files)}
    return {"Type": "json-file", "Config": files}


def _oom_score(task: DesiredTask, container: ContainerSpec, prepared: PreparedResources) -> int:
    score = oom_score(task.quality, container.slots.get("memory", 0), prepared.memory_bytes)
    return score if prepared.spares else max(score, 0)


def _peers(task: DesiredTask, prepared: PreparedResources) -> list[str]:
    """Return the host names of the task's peers; without its own network a container has no own host names."""
    if prepared.network == "none" or prepared.network.startswith("container:"):
        return []
    return [f"{peer.name}:{peer.address}" for peer in task.peers if peer.address and peer.index != task.index]


def _published(task: DesiredTask, prepared: PreparedResources) -> dict[int, list[int]]:
    """Return the node ports by container port; surplus node ports map to the same number."""
    if prepared.network == "none" or prepared.network.startswith("container:"):
        return {}
    inside = [port for container in task.containers for port in container.ports]
    leads: dict[int, list[int]] = {}
    for number, outside in enumerate(task.ports):
        leads.setdefault(inside[number] if number < len(inside) else outside, []).append(outside)
    return leads
