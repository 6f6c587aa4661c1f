"""What the engine is told about the containers of a task. Pure: the order in, the engine's own words out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import UUID

from mooring.agent.identity import told
from mooring.agent.options import Options
from mooring.model.containers import Capability
from mooring.model.errors import InvalidInput
from mooring.model.paths import check_path
from mooring.model.resources import oom_score
from mooring.wire.agent import ContainerSpec, DesiredTask

NODE, TASK, WORKLOAD = "io.mooring.node", "io.mooring.task", "io.mooring.workload"
CONTAINER, ROLE, TERM = "io.mooring.container", "io.mooring.role", "io.mooring.term"

Role = Literal["init", "sidecar", "main"]

SECRETS = "/run/secrets"

_CAPABILITIES = frozenset(get_args(Capability))
_NANOS_PER_MILLICORE = 1_000_000
_SHARES_PER_CORE, _FEWEST_SHARES = 1024, 2
_VARIABLE = re.compile(r"[^=\0]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What the engine can do, as far as it is told."""

    kind: Literal["docker", "podman"] = "docker"
    version: str = ""
    cgroup_version: int = 2
    cpu: bool = True
    memory: bool = True
    swap: bool = True
    pids: bool = True
    storage: bool = False
    devices: Literal["request", "cdi"] | None = None
    """How it hands over graphics processors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the node has made ready for a task."""

    node_id: UUID
    term: int = 0
    memory_bytes: int = 0
    """Of the whole node."""
    spares: bool = False
    """Containers may be ended later than other processes where memory runs short."""
    image: str | None = None
    """The engine's own name of the container's image; None: as the order calls it."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Of its volumes, by their names in the task."""
    secrets: Path | None = None
    """The folder with the container's secrets, if it has any."""
    network: str = "none"
    """The name of one, or `container:ID` of the container whose network is shared."""


def name_of(task_id: UUID, container: str) -> str:
    return f"mooring-{task_id.hex}-{container}"


def enforces(abilities: Abilities) -> dict[str, str]:
    """Per slot how a limit is kept; devices that it does not name are only told of."""
    return {
        "cpu": "cgroup" if abilities.cpu else "none",
        "memory": "cgroup" if abilities.memory else "none",
        "pids": "cgroup" if abilities.pids else "none",
        "storage": "quota" if abilities.storage else "none",
        **({"gpu": "device"} if abilities.devices else {}),
    }


def check(task: DesiredTask) -> None:
    """InvalidInput where something would mean another thing to the engine than to the person who wrote it."""
    for container in (*task.init_containers, *task.containers):
        if container.image is None:
            raise InvalidInput(f"container {container.name!r} needs an image", code="start-failed")
        for name in container.environment:
            if not _VARIABLE.fullmatch(name):
                raise InvalidInput(f"{name!r} cannot be the name of a variable", code="start-failed")
        for mount in container.mounts:
            if check_path(mount.path, what="mount path") == "/":
                raise InvalidInput("nothing can be mounted in place of a container's root", code="start-failed")
            if mount.volume not in {volume.name for volume in task.volumes}:
                raise InvalidInput(f"the task has no volume {mount.volume!r}", code="start-failed")
        for file in container.secrets:
            if "/" in file:
                raise InvalidInput(f"{file!r} cannot be the name of a file", code="start-failed")
            check_path(f"{SECRETS}/{file}", what="secret")
        refused = {_capability(each) for each in container.capabilities} - _CAPABILITIES
        if refused:
            raise InvalidInput(f"no container gets the capability {', '.join(sorted(refused))}", code="start-failed")
    for volume in task.volumes:
        if volume.path is not None:
            check_path(volume.path, what="volume")


def configuration(
    task: DesiredTask, container: ContainerSpec, role: Role, place: Place, abilities: Abilities, options: Options
) -> dict[str, Any]:
    """The body of the engine's `create`."""
    shared = place.network.startswith("container:")
    config: dict[str, Any] = {
        "Image": place.image or container.image,
        "Env": [f"{name}={value}" for name, value in _environment(task, container, abilities).items()],
        "Labels": {
            NODE: str(place.node_id),
            TASK: str(task.task_id),
            WORKLOAD: str(task.workload_id),
            CONTAINER: container.name,
            ROLE: role,
            TERM: str(place.term),
        },
        "Tty": container.terminal,
        "OpenStdin": container.terminal,
        "HostConfig": _host(task, container, place, abilities, options),
    }
    if container.command:
        config["Cmd"] = list(container.command)
    if container.working_folder is not None:
        config["WorkingDir"] = container.working_folder
    if container.user is not None:
        config["User"] = container.user
    if not shared:
        config["Hostname"] = f"{task.workload_name}-{task.index}"[:63]
    own = [peer.name for peer in task.peers if peer.index == task.index]
    if own and role != "init" and not shared and place.network != "none":
        # By an engine that resolves names, those that were started before it find it, too.
        config["NetworkingConfig"] = {"EndpointsConfig": {place.network: {"Aliases": own}}}
    if role != "init" and (published := _published(task, place)):
        config["ExposedPorts"] = {f"{inside}/tcp": {} for inside in published}
        config["HostConfig"]["PortBindings"] = {
            f"{inside}/tcp": [{"HostPort": str(outside)} for outside in ports] for inside, ports in published.items()
        }
    return config


def _environment(task: DesiredTask, container: ContainerSpec, abilities: Abilities) -> dict[str, str]:
    """Those handed over are counted from 0 inside. Who has none gets none, whatever its image asks the driver for."""
    indexes = _processors(task)
    by_driver = ",".join(indexes) if abilities.devices != "cdi" else ""
    environment = told(task, container) | {"NVIDIA_VISIBLE_DEVICES": by_driver or "void"}
    if abilities.devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(place) for place in range(len(indexes)))
    return environment


def _processors(task: DesiredTask) -> list[str]:
    """The graphics processors of the task, by the numbers that the node knows them by."""
    return [str(index) for index, _ in task.devices.get("gpu", ())]


def _host(
    task: DesiredTask, container: ContainerSpec, place: Place, abilities: Abilities, options: Options
) -> dict[str, Any]:
    return {
        "NetworkMode": place.network,
        "ExtraHosts": _peers(task, place),
        "IpcMode": "private",
        "RestartPolicy": {"Name": "no"},
        "ReadonlyRootfs": container.read_only,
        "Mounts": _mounts(container, place),
        "LogConfig": _log(abilities, options),
        "OomScoreAdj": _oom_score(task, container, place),
        **_rights(container),
        **_limits(container, abilities, options),
        **_devices(task, abilities),
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


def _limits(container: ContainerSpec, abilities: Abilities, options: Options) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    asked, most = container.slots, {**container.slots, **container.limits}
    if abilities.cpu and most.get("cpu"):
        limits["NanoCpus"] = most["cpu"] * _NANOS_PER_MILLICORE
        limits["CpuShares"] = max(asked.get("cpu", 0) * _SHARES_PER_CORE // 1000, _FEWEST_SHARES)
    if abilities.memory and most.get("memory"):
        limits["Memory"] = most["memory"]
        if abilities.swap:
            limits["MemorySwap"] = most["memory"]  # of both together: no swap
    if abilities.pids:
        limits["PidsLimit"] = options.max_processes
    if container.shared_memory is not None:
        limits["ShmSize"] = container.shared_memory
    if abilities.storage and most.get("storage"):
        limits["StorageOpt"] = {"size": str(most["storage"])}
    return limits


def _devices(task: DesiredTask, abilities: Abilities) -> dict[str, Any]:
    """The task's own graphics processors; other devices are named in its environment alone."""
    indexes = _processors(task)
    if not indexes or abilities.devices is None:
        return {}
    if abilities.devices == "cdi":
        return {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={index}" for index in indexes]}]}
    return {"DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": indexes, "Capabilities": [["gpu"]]}]}


def _mounts(container: ContainerSpec, place: Place) -> list[dict[str, Any]]:
    mounts = [_bind(place.folders[each.volume], each.path, each.read_only) for each in container.mounts]
    if place.secrets is not None:
        mounts.append(_bind(place.secrets, SECRETS, True))
    return mounts


def _bind(source: Path, target: str, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}


def _log(abilities: Abilities, options: Options) -> dict[str, Any]:
    """What a container says, bounded: Docker keeps several files, Podman begins its one anew when it is full."""
    if abilities.kind == "podman":
        return {"Type": "k8s-file", "Config": {"max-size": str(options.log_bytes * options.log_files)}}
    files = {"max-size": str(options.log_bytes), "max-file": str(options.log_files)}
    return {"Type": "json-file", "Config": files}


def _oom_score(task: DesiredTask, container: ContainerSpec, place: Place) -> int:
    score = oom_score(task.quality, container.slots.get("memory", 0), place.memory_bytes)
    return score if place.spares else max(score, 0)


def _peers(task: DesiredTask, place: Place) -> list[str]:
    """The tasks that it works with, by name. Where it has no network of its own it has no names of its own either."""
    if place.network == "none" or place.network.startswith("container:"):
        return []
    return [f"{peer.name}:{peer.address}" for peer in task.peers if peer.address and peer.index != task.index]


def _published(task: DesiredTask, place: Place) -> dict[int, list[int]]:
    """By port of the task the ports of the node that lead there; those that are left keep their number."""
    if place.network == "none" or place.network.startswith("container:"):
        return {}
    inside = [port for container in task.containers for port in container.ports]
    leads: dict[int, list[int]] = {}
    for number, outside in enumerate(task.ports):
        leads.setdefault(inside[number] if number < len(inside) else outside, []).append(outside)
    return leads
