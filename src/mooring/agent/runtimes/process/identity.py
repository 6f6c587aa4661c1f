"""Identity of a process task: its OS user, and its clean environment."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from mooring.model.errors import MooringError
from mooring.wire.agents.desired_tasks import ContainerSpec, DesiredTask, Owner

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class IdentityRefused(MooringError):
    """The task must not run here, since there is no safe user for it."""

    code = "identity-refused"


@dataclass(frozen=True, slots=True)
class Identity:
    """OS user of a task. `uid` None: the agent's user."""

    uid: int | None
    gid: int
    groups: tuple[int, ...]
    user_name: str


def identity_for(owner: Owner, *, agent_uid: int, uid_range: tuple[int, int], forbidden: Set[int]) -> Identity:
    """Return the user for a tenant's task; IdentityRefused if it is root or owns the agent's folder (`forbidden`)."""
    if agent_uid != 0:
        return Identity(None, os.getgid(), (), _name_of(agent_uid))
    identity = _mapped(owner.os_user) if owner.os_user is not None else _numbered(owner.project_number, uid_range)
    if identity.uid in forbidden:
        raise IdentityRefused(
            f"user {identity.user_name!r} (uid {identity.uid}) owns the agent's folder on this node, or one above it; "
            "map the tenant to another OS user"
        )
    return identity


def _mapped(name: str) -> Identity:
    try:
        account = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise IdentityRefused(
            f"the OS user {name!r} that the tenant is mapped to does not exist on this node"
        ) from None
    if account.pw_uid == 0 or account.pw_gid == 0:
        raise IdentityRefused(f"the OS user {name!r} that the tenant is mapped to is root or in root's group")
    groups = tuple(group for group in os.getgrouplist(name, account.pw_gid) if group != 0)
    return Identity(account.pw_uid, account.pw_gid, groups, name)


def _numbered(project_number: int, uid_range: tuple[int, int]) -> Identity:
    first, last = uid_range
    uid = first + project_number
    if not (0 < first <= uid <= last):
        raise IdentityRefused(
            f"project number {project_number} has no uid on this node: the reserved range is {first} to {last}; "
            "map the tenant to an OS user or widen the range"
        )
    taken = _account(uid) or _group(uid)
    if taken is not None:
        raise IdentityRefused(
            f"uid {uid} of the reserved range belongs to {taken!r} on this node; reserve a range that no account uses"
        )
    return Identity(uid, uid, (), f"mooring-{project_number}")


def _account(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _group(gid: int) -> str | None:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return None


def _name_of(uid: int) -> str:
    return _account(uid) or str(uid)


def visible_devices(task: DesiredTask) -> dict[str, str]:
    """Return the variables that name the task's devices, empty for a driver of which it has none."""
    listed = {slot: ",".join(str(index) for index, _ in shares) for slot, shares in sorted(task.devices.items())}
    shares = {slot: ",".join(str(amount) for _, amount in shares) for slot, shares in sorted(task.devices.items())}
    return {
        "CUDA_VISIBLE_DEVICES": listed.get("gpu", ""),
        "MOORING_DEVICES": ";".join(f"{slot}={indexes}" for slot, indexes in listed.items()),
        "MOORING_DEVICE_SHARES": ";".join(f"{slot}={amounts}" for slot, amounts in shares.items()),
    }


def environment(task: DesiredTask, container: ContainerSpec, identity: Identity, work_folder: Path) -> dict[str, str]:
    """Return a clean environment with the container's variables. Identity and allocation cannot be overridden."""
    return {
        # An agent without root runs tasks of its own user, who expects the same programs as in a shell.
        "PATH": _PATH if identity.uid is not None else os.environ.get("PATH", _PATH),
        "HOME": str(work_folder),
        "TMPDIR": str(work_folder / "tmp"),
        "LANG": "C.UTF-8",
        "SHELL": "/bin/sh",
        "USER": identity.user_name,
        "LOGNAME": identity.user_name,
        **task_environment(task, container),
    }


def task_environment(task: DesiredTask, container: ContainerSpec) -> dict[str, str]:
    """Return the container's environment with the variables that describe the task."""
    return {
        "MOORING_WORKLOAD": task.workload_name,
        "MOORING_WORKLOAD_ID": str(task.workload_id),
        "MOORING_INDEX": str(task.index),
        "MOORING_PORTS": ",".join(map(str, task.ports)),
        "MOORING_ATTEMPT": str(task.attempt),
        **container.environment,
        "MOORING_TASK_ID": str(task.task_id),
        **task.variables,
        **_peers(task),
        **visible_devices(task),
    }


def _peers(task: DesiredTask) -> dict[str, str]:
    """Return the variables that describe the task's peers: names, addresses and ports, in the same order."""
    if not task.peers:
        return {}
    return {
        "MOORING_PEERS": ",".join(peer.name for peer in task.peers),
        "MOORING_PEER_ADDRESSES": ",".join(peer.address or "" for peer in task.peers),
        "MOORING_PEER_PORTS": ";".join(",".join(map(str, peer.ports)) for peer in task.peers),
    }
