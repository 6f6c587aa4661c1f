"""What a task is made from: containers with what they need, volumes between them, and how their health is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from mooring.model.slots import Amounts

Capability = Literal[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
]
"""What a container may keep of root's powers: those that Docker gives to all."""


class Restart(StrEnum):
    """What the agent does with a process that ended by itself."""

    NEVER = "never"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


class Pull(StrEnum):
    """When an image is fetched."""

    ALWAYS = "always"
    IF_NOT_PRESENT = "if-not-present"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Probe:
    """A question about a container's health: a command in it, or its own address by HTTP, or just by TCP."""

    command: tuple[str, ...] = ()
    path: str | None = None
    """Of an HTTP request; 200 to 399 is well."""
    port: int | None = None
    delay_seconds: int = 0
    """After its start, before the first question."""
    interval_seconds: int = 10
    timeout_seconds: int = 1
    failures: int = 3
    """So many in a row, and it is not well any more."""
    successes: int = 1
    """So many in a row, and it is well again."""


class VolumeKind(StrEnum):
    NAMED = "named"
    """The project's volume of that name, which outlives the task."""
    HOST = "host"
    """A folder of the node, where an admin allows it."""
    SCRATCH = "scratch"
    """Empty at first, shared by the containers of the task, gone with it."""


@dataclass(frozen=True, slots=True)
class Volume:
    name: str
    kind: VolumeKind = VolumeKind.SCRATCH
    path: str | None = None
    """Of a host volume: the folder on the node."""


@dataclass(frozen=True, slots=True)
class Mount:
    volume: str
    path: str
    """Where in the container."""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Container:
    """One process or container of a task. Without an image it is a process on the node itself."""

    name: str = "main"
    image: str | None = None
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    working_folder: str | None = None
    slots: Amounts = field(default_factory=dict)
    """What it asks for."""
    limits: Amounts = field(default_factory=dict)
    sidecar: bool = False
    """An init container that keeps running beside those that follow."""
    pull: Pull = Pull.IF_NOT_PRESENT
    ports: tuple[int, ...] = ()
    """What it listens on, the most important first; the task's ports of its node lead there in this order."""
    mounts: tuple[Mount, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Names of secrets of its project by the file, in /run/secrets, that it finds each in."""
    readiness: Probe | None = None
    """Until it succeeds, and while it fails, nobody is sent to the task."""
    liveness: Probe | None = None
    """Where it fails the container is killed and, if its restart policy says so, started again."""
    user: str | None = None
    """`uid`, `uid:gid` or a name that its image knows; None: as the image says."""
    read_only: bool = False
    """Its root file system is."""
    capabilities: tuple[str, ...] = ()
    """Those that it keeps, without CAP_; all others are dropped."""
    privileged: bool = False
    shared_memory: int | None = None
    """Bytes of /dev/shm; None: as the engine does."""
    terminal: bool = False
    """It has a terminal and an input, which `attach` reaches."""


@dataclass(frozen=True, slots=True)
class TaskTemplate:
    """What every task of a workload is made from."""

    containers: tuple[Container, ...]
    restart: Restart = Restart.NEVER
    max_restarts: int = 5
    stop_grace_seconds: int = 10
    architecture: str | None = None
    init_containers: tuple[Container, ...] = ()
    """They run to their end one after the other before the containers start, except for sidecars."""
    overhead: Amounts = field(default_factory=dict)
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    """Of the task as a whole: processor, memory and hugepages in place of what the containers add up to."""

    volumes: tuple[Volume, ...] = ()

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """In the order of their start."""
        return (*self.init_containers, *self.containers)

    @property
    def images(self) -> list[str]:
        return [container.image for container in self.all_containers if container.image is not None]

    @property
    def runtime(self) -> str:
        return "container" if any(c.image is not None for c in self.containers) else "process"
