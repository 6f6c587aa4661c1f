"""Containers of tasks in requests, and their volumes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from mooring.model.workloads.containers import Capability
from mooring.wire.fields import (
    FILE_PATTERN,
    FOLDER_PATTERN,
    MAX_COMMAND,
    MAX_CONTAINERS,
    MAX_ENVIRONMENT,
    MAX_VOLUMES,
    EnvironmentName,
    Image,
    Name,
    Quantity,
    Request,
    Script,
    ShortText,
    SlotName,
    Text,
)

_MANY = 32
_PERSON = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
_MAX_WAIT_SECONDS = 3600

Port = Annotated[int, Field(ge=1, le=65535)]
FolderPath = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=FOLDER_PATTERN)]
SecretFile = Annotated[str, StringConstraints(pattern=FILE_PATTERN)]
ContainerUser = Annotated[str, StringConstraints(pattern=f"^{_PERSON}(:{_PERSON})?$")]
UrlPath = Annotated[str, StringConstraints(max_length=1024, pattern=r"^/[!-~]*$")]
Amounts = Annotated[dict[SlotName, Quantity], Field(max_length=32)]
Seconds = Annotated[int, Field(ge=1, le=_MAX_WAIT_SECONDS)]
Times = Annotated[int, Field(ge=1, le=1000)]
Lines = Annotated[int, Field(ge=1, le=65535)]


class ProbeRequest(Request):
    """A probe: a command in the container, `path` and `port` by HTTP, or just a `port` by TCP."""

    command: Annotated[list[Text], Field(max_length=MAX_COMMAND)] = []
    path: UrlPath | None = None
    """Path of an HTTP request to the task itself; a status from 200 to 399 is a success."""
    port: Port | None = None
    delay_seconds: Annotated[int, Field(ge=0, le=_MAX_WAIT_SECONDS)] = 0
    """Time from the start of the container to the first probe."""
    interval_seconds: Seconds = 10
    timeout_seconds: Seconds = 1
    failures: Times = 3
    """Consecutive failures after which the container counts as failed."""
    successes: Times = 1
    """Consecutive successes after which the container counts as healthy again."""


class MountRequest(Request):
    volume: Name
    path: FolderPath
    """The path in the container."""
    read_only: bool = False


class VolumeRequest(Request):
    name: Name
    """The name; that of a named volume is its name in the project."""
    kind: Literal["named", "host", "scratch"] = "scratch"
    """A volume of the project, a folder of the node where its pool allows that, or an empty one that goes with the
    task."""
    path: FolderPath | None = None
    """Of a host volume: the folder on the node."""


class ContainerFields(Request):
    """All that can be said of a container, except for its name."""

    image: Image | None = None
    """None: a process on the node itself."""
    command: Annotated[list[Text], Field(max_length=MAX_COMMAND)] = []
    """None: the image's command."""
    script: Script | None = None
    """A script that runs instead of the image's entrypoint, by the interpreter of its first line (`#!`) or by `sh`. The
    first word of `command` is its name, the others are its arguments."""
    environment: Annotated[dict[EnvironmentName, Text], Field(max_length=MAX_ENVIRONMENT)] = {}
    working_folder: ShortText | None = None
    resources: Amounts = {}
    """Amounts by slot: {"cpu": "500m", "memory": "2Gi", "gpu": 1}."""
    limits: Amounts = {}
    """The limit per slot, if it exceeds the request; a slot with a limit only is requested in the same amount."""
    pull: Literal["always", "if-not-present", "never"] = "if-not-present"
    ports: Annotated[list[Port], Field(max_length=_MANY)] = []
    """The ports it listens on; the node ports that a task requests (`placement.ports`) map to them in this order."""
    mounts: Annotated[list[MountRequest], Field(max_length=_MANY)] = []
    secrets: Annotated[dict[SecretFile, Name], Field(max_length=_MANY)] = {}
    """Secrets of the project by the name of their file in /run/secrets."""
    readiness: ProbeRequest | None = None
    """Until it succeeds, and while it fails, the task receives no traffic."""
    liveness: ProbeRequest | None = None
    """If it fails, the container is killed and, if its restart policy says so, restarted."""
    user: ContainerUser | None = None
    """`uid`, `uid:gid` or a user name of the image. None: the image's user."""
    read_only: bool = False
    """Make the root file system read-only."""
    capabilities: list[Capability] = []
    """Capabilities to keep; all others are dropped."""
    privileged: bool = False
    """Allowed only if its pool permits it."""
    shared_memory: Quantity | None = None
    """Bytes of /dev/shm: 1Gi."""
    terminal: bool = False
    """It has a terminal and an input, which `mooring attach` reaches."""
    stdin: bool = False
    """Its standard input stays open, and `mooring attach` reaches it. A terminal has an input without this."""
    terminal_rows: Lines = 24
    terminal_columns: Lines = 80
    """The size of the terminal at the start; it follows the window of an attached user."""


class ContainerRequest(ContainerFields):
    name: Name = "main"


class InitContainerRequest(ContainerRequest):
    name: Name
    sidecar: bool = False
    """It keeps running alongside those that follow; otherwise they wait for its end."""


class TemplateFields(Request):
    """The template of every task, except for its containers."""

    init_containers: Annotated[list[InitContainerRequest], Field(max_length=MAX_CONTAINERS)] = []
    """They run one after the other, each to its end, before the containers start."""
    volumes: Annotated[list[VolumeRequest], Field(max_length=MAX_VOLUMES)] = []
    """The volumes that the containers mount."""
    restart: Literal["never", "on-failure", "always"] | None = None
    """None: never for a session, always for a deployment."""
    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 5
    stop_grace_seconds: Annotated[int, Field(ge=0, le=3600)] = 10
    architecture: ShortText | None = None


class TaskTemplateRequest(TemplateFields):
    """The template of every task."""

    containers: Annotated[list[ContainerRequest], Field(min_length=1, max_length=MAX_CONTAINERS)]

    @property
    def all_containers(self) -> list[ContainerRequest]:
        """In the order of their start."""
        return [*self.init_containers, *self.containers]
