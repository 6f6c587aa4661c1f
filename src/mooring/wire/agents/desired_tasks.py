"""Desired tasks, with everything that the agent of a node needs to prepare, start and stop them."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec


class ProbeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """As `model.containers.Probe`."""

    command: list[str] = []
    path: str | None = None
    port: int | None = None
    delay_seconds: int = 0
    interval_seconds: int = 10
    timeout_seconds: int = 1
    failures: int = 3
    successes: int = 1


class MountSpec(msgspec.Struct, frozen=True, kw_only=True):
    volume: str
    path: str
    read_only: bool = False


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """As `model.containers.Container`."""

    name: str
    image: str | None = None
    command: list[str] = []
    environment: dict[str, str] = {}
    working_folder: str | None = None
    slots: dict[str, int] = {}
    limits: dict[str, int] = {}
    sidecar: bool = False
    pull: Literal["always", "if-not-present", "never"] = "if-not-present"
    ports: list[int] = []
    mounts: list[MountSpec] = []
    secrets: dict[str, str] = {}
    """Files in /run/secrets, and the name of the secret that each holds."""
    readiness: ProbeSpec | None = None
    liveness: ProbeSpec | None = None
    user: str | None = None
    read_only: bool = False
    capabilities: list[str] = []
    privileged: bool = False
    shared_memory: int | None = None
    terminal: bool = False
    script: str | None = None
    stdin: bool = False
    terminal_rows: int = 24
    terminal_columns: int = 80


class VolumeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that containers of the task mount."""

    name: str
    kind: Literal["named", "host", "scratch", "shared"] = "scratch"
    path: str | None = None
    """Of a host volume: the folder on the node. Of a shared one: the folder with the pool's shared volumes."""
    volume_id: UUID | None = None
    """The project of a named volume."""


class LocalFolderSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of the submitter that the task works in, if the node has this very folder and the task its owner."""

    folder: str
    uid: int
    boot_id: str
    device: int
    inode: int


class RemovedVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume of a project to delete from the node."""

    volume_id: UUID
    project_id: UUID
    path: str | None = None
    """Of a shared volume: the folder with the pool's shared volumes."""


class RegistryLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A registry login of the task's project. Never written to disk, never logged."""

    registry: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"RegistryLogin(registry={self.registry!r})"


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a project secret. On the node it is in memory only, never logged."""

    name: str
    value: bytes

    def __repr__(self) -> str:
        return f"Secret(name={self.name!r})"


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another task of the same session, or the task itself."""

    index: int
    name: str
    """`main`, `sub1`, `sub2`."""
    address: str | None = None
    """Its own address if both are in one network, else that of its node; None while there is none."""
    ports: list[int] = []
    """Its ports at that address, in the order of its container ports."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of the task, with the facts that the node needs."""

    user_id: UUID
    project_id: UUID
    project_number: int
    """Small and unique: picks the uid of the project from the agent's reserved range."""
    os_user: str | None = None
    """The OS user that an admin mapped to the tenant."""


class EndWarning(msgspec.Struct, frozen=True, kw_only=True):
    """The signal sent to the task before its time limit, once per deadline."""

    at: float
    """In seconds since 1970."""
    signal: str
    """Its name without SIG: `USR1`."""


class DesiredTask(msgspec.Struct, frozen=True, kw_only=True):
    task_id: UUID
    workload_id: UUID
    workload_name: str
    index: int
    attempt: int
    action: Literal["prepare", "run", "stop"]
    """`prepare`: prepare its start and report; it may still be placed elsewhere."""
    started: bool = False
    """It was reported as running before: an agent without a record of it must not start it again."""
    owner: Owner
    ports: list[int] = []
    """Ports of the node that are assigned to the task."""
    port_protocols: list[str] = []
    """Their protocols, in the same order; empty: TCP."""
    devices: dict[str, list[tuple[int, int]]] = {}
    """By slot, the devices of the node that are assigned to the task: index and amount."""
    variables: dict[str, str] = {}
    """Environment variables that name its node and project, and describe its position in its workload."""
    containers: list[ContainerSpec]
    init_containers: list[ContainerSpec] = []
    volumes: list[VolumeSpec] = []
    upload_id: UUID | None = None
    """The upload whose files it finds in its working folder."""
    local_folder: LocalFolderSpec | None = None
    logins: list[RegistryLogin] = []
    """For the registries of its images; of tasks that are not started yet."""
    secrets: list[Secret] = []
    """Those that its containers name; of tasks that are not started yet."""
    peers: list[Peer] = []
    """Of a session with several tasks: all of them, itself included, in order; of tasks that are not started yet."""
    quality: Literal["Guaranteed", "Burstable", "BestEffort"] = "Burstable"
    """The quality-of-service class: the order of OOM kills on the node."""
    restart: Literal["never", "on-failure", "always"]
    max_restarts: int
    grace_seconds: int
    warning: EndWarning | None = None
