"""Translation of a stored task into the agent protocol, for its node's desired state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address
from typing import Any, Literal
from uuid import UUID

import msgspec

from mooring.model import lifecycle
from mooring.model.lifecycle import TaskStatus
from mooring.model.resources.task_resources import quality_of
from mooring.model.workloads.arrays import Array
from mooring.model.workloads.containers import Container, TaskTemplate
from mooring.model.workloads.workload import Kind
from mooring.store.workloads import templates
from mooring.store.workloads.mounts import Mounted
from mooring.wire.agents.desired_tasks import (
    ContainerSpec,
    DesiredTask,
    EndWarning,
    LocalFolderSpec,
    Owner,
    Peer,
    VolumeSpec,
)

_COMING = frozenset({TaskStatus.SCHEDULED, TaskStatus.PREPARING})
_UNSTARTED = _COMING | {TaskStatus.RESERVED}


def desired_task(row: Any, gang: Sequence[Any] = (), mounted: Iterable[Mounted] = ()) -> DesiredTask:
    """`gang`: all tasks of the session, if it has several that work together.

    `mounted`: the volumes of its project that its workload mounts.
    """
    template = row.template
    status = TaskStatus(row.status)
    only_prepared = status is TaskStatus.RESERVED or _waits_for_others(row, gang)
    run: Literal["prepare", "run"] = "prepare" if only_prepared else "run"
    return DesiredTask(
        task_id=row.id,
        workload_id=row.workload_id,
        workload_name=row.name,
        index=row.task_index,
        attempt=row.attempt,
        action=run if status in lifecycle.ACTIVE else "stop",
        started=status is TaskStatus.RUNNING,
        owner=Owner(
            user_id=row.user_id,
            project_id=row.project_id,
            project_number=row.project_number,
            os_user=row.os_user,
        ),
        ports=[port for _, port in row.ports or ()],
        port_protocols=_protocols(row),
        devices={slot: [(index, amount) for index, amount in shares] for slot, shares in (row.devices or {}).items()},
        variables={
            "MOORING_NODE": row.node,
            "MOORING_PROJECT": row.project,
            **variables_of(row.kind, row.array, row.replicas, row.task_index),
        },
        containers=msgspec.convert(template["containers"], list[ContainerSpec]),
        init_containers=msgspec.convert(template.get("init_containers", []), list[ContainerSpec]),
        volumes=_volumes(template, mounted),
        upload_id=msgspec.convert(template.get("upload"), UUID | None),
        local_folder=msgspec.convert(template.get("local_folder"), LocalFolderSpec | None),
        peers=[_peer(each, row) for each in gang] if status in _UNSTARTED else [],
        quality=_quality(templates.decode(template)),
        restart=template["restart"],
        max_restarts=template["max_restarts"],
        grace_seconds=template["stop_grace_seconds"],
        warning=_warning(row),
    )


def variables_of(kind: str, array: Mapping[str, int] | None, tasks: int, task_index: int) -> dict[str, str]:
    """Return the environment variables for a task's position: its index in an array, or its role in a session."""
    if array is not None:
        index = Array(**array, count=tasks).index(task_index)
        return {"MOORING_ARRAY_INDEX": str(index), "MOORING_ARRAY_COUNT": str(tasks)}
    if kind != Kind.SESSION:
        return {}
    return {"MOORING_TASK_ROLE": "sub" if task_index else "main", "MOORING_CLUSTER_SIZE": str(tasks)}


def _waits_for_others(row: Any, gang: Sequence[Any]) -> bool:
    """Main starts last: until the others that have a node run there, it is only made ready."""
    others = (TaskStatus(each.status) for each in gang if each.task_index > 0)
    return row.task_index == 0 and row.status == TaskStatus.SCHEDULED and any(other in _COMING for other in others)


def _protocols(row: Any) -> list[str]:
    """Return the protocols of the task's ports; an empty list stands for TCP alone."""
    protocols = [protocol for protocol, _ in row.ports or ()]
    return protocols if set(protocols) - {"TCP"} else []


def _peer(other: Any, own: Any) -> Peer:
    ports = [port for _, port in other.ports or ()]
    address = other.node_address
    if address is not None and _is_loopback(address) and own.template["containers"][0].get("image"):
        # Inside a container that would be the container itself.
        address = None
    if other.address is not None and other.node_id == own.node_id:
        # Within one network of the engine it is reached as itself, and its ports are those that it listens on.
        listens = [port for container in own.template["containers"] for port in container.get("ports", ())]
        address, ports = other.address, [*listens[: len(ports)], *ports[len(listens) :]] if ports else listens
    name = f"sub{other.task_index}" if other.task_index else "main"
    return Peer(index=other.task_index, name=name, address=address, ports=ports)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _volumes(template: Mapping[str, Any], mounted: Iterable[Mounted]) -> list[VolumeSpec]:
    by_name = {volume.name: volume for volume in mounted}
    return [_volume(each, by_name) for each in msgspec.convert(template.get("volumes", []), list[VolumeSpec])]


def _volume(said: VolumeSpec, by_name: Mapping[str, Mounted]) -> VolumeSpec:
    volume = by_name.get(said.name)
    if said.kind != "named" or volume is None:
        return said
    if not volume.shared:
        return msgspec.structs.replace(said, volume_id=volume.volume_id)
    return msgspec.structs.replace(said, kind="shared", volume_id=volume.volume_id, path=volume.folder)


def _quality(template: TaskTemplate) -> Literal["Guaranteed", "Burstable", "BestEffort"]:
    """Return the quality of service; a container's request stands for a limit that it does not set."""

    def held(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(replace(each, limits={**each.slots, **each.limits}) for each in containers)

    return quality_of(
        replace(template, containers=held(template.containers), init_containers=held(template.init_containers))
    ).value


def _warning(row: Any) -> EndWarning | None:
    if row.warning_signal is None or (row.deadline_at is None and row.idle_warned_at is None):
        return None
    at = row.idle_warned_at or row.deadline_at - timedelta(seconds=row.warning_seconds or 0)
    return EndWarning(at=at.timestamp(), signal=row.warning_signal)
