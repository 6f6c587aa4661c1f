"""The template of a task: containers with their requests, volumes and probes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal
from uuid import UUID

from mooring.model.resources.slots import Amounts

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
"""The capabilities that a container may keep: Docker's default set."""


class Restart(StrEnum):
    """The restart policy for a process that ended by itself."""

    NEVER = "never"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


class Pull(StrEnum):
    """The image pull policy."""

    ALWAYS = "always"
    IF_NOT_PRESENT = "if-not-present"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of a container's health: a command, an HTTP request or a TCP connection."""

    command: tuple[str, ...] = ()
    path: str | None = None
    """The path of an HTTP request; statuses 200 to 399 are a success."""
    port: int | None = None
    delay_seconds: int = 0
    """The delay of the first probe after the start."""
    interval_seconds: int = 10
    timeout_seconds: int = 1
    failures: int = 3
    """Consecutive failures after which it is unhealthy."""
    successes: int = 1
    """Consecutive successes after which it is healthy again."""


class VolumeKind(StrEnum):
    NAMED = "named"
    """The project's volume of that name, which outlives the task."""
    HOST = "host"
    """A folder of the node, if an admin allows it."""
    SCRATCH = "scratch"
    """Empty at first, shared by the containers of the task, deleted with it."""


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
    """The path in the container."""
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
    """Its request by slot."""
    limits: Amounts = field(default_factory=dict)
    sidecar: bool = False
    """An init container that keeps running."""
    pull: Pull = Pull.IF_NOT_PRESENT
    ports: tuple[int, ...] = ()
    """The ports it listens on, the most important first; the task's node ports map to them in this order."""
    mounts: tuple[Mount, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Names of project secrets by their file in /run/secrets."""
    readiness: Probe | None = None
    """The task receives no traffic until it succeeds, and while it fails."""
    liveness: Probe | None = None
    """If it fails, the container is killed and, if its restart policy says so, restarted."""
    user: str | None = None
    """`uid`, `uid:gid` or a user name of the image; None: the image's default."""
    read_only: bool = False
    """Its root file system is read-only."""
    capabilities: tuple[str, ...] = ()
    """The capabilities that it keeps, without CAP_; all others are dropped."""
    privileged: bool = False
    shared_memory: int | None = None
    """Bytes of /dev/shm; None: the engine's default."""
    terminal: bool = False
    """It has a terminal and an input, to which `attach` connects."""
    script: str | None = None
    """A script that runs as its command; the first word of `command` is the script's name, the others its arguments."""
    stdin: bool = False
    """Its standard input is open, and `attach` connects to it."""
    terminal_rows: int = 24
    terminal_columns: int = 80
    """Size of the terminal at the start."""


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder of the submitter's machine that a task uses directly, with the proof that a node has the same folder."""

    folder: str
    uid: int
    """The submitter's OS user, which has to be the task's."""
    boot_id: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class TaskTemplate:
    """The template of every task of a workload."""

    containers: tuple[Container, ...]
    restart: Restart = Restart.NEVER
    max_restarts: int = 5
    stop_grace_seconds: int = 10
    architecture: str | None = None
    init_containers: tuple[Container, ...] = ()
    """They run to completion one after the other before the containers start, except for sidecars."""
    overhead: Amounts = field(default_factory=dict)
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    """Of the task as a whole: CPU, memory and hugepages instead of the sum of the containers."""

    volumes: tuple[Volume, ...] = ()
    upload: UUID | None = None
    """The uploaded folder whose content each task finds in its working folder."""
    local_folder: LocalFolder | None = None

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
