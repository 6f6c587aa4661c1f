"""The agent protocol: one outgoing WebSocket per agent, JSON text frames, each one of the tagged messages below.

The agent says hello, the server welcomes it, then sends the whole desired state of the node whenever it changes; the
agent reports what became of its tasks. Anything may be sent twice: a repeated order or report changes nothing.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec

PROTOCOL = 3
OLDEST_PROTOCOL = 1
"""Of agents that a server still works with."""
WELCOMED_SINCE = 2
"""Agents of an older protocol expect no welcome, and send heartbeats at a pace of their own."""
CHANNELS_SINCE = 3
"""Agents of an older protocol know no way into their tasks."""

SECRETS_SINCE = 3
"""Agents of an older protocol would start a task without its secrets."""

NODE_HEADER = "Mooring-Node"
"""In which an agent names its node: a server that never heard of it has no reason to end its tasks."""


class DeviceFact(msgspec.Struct, frozen=True, kw_only=True):
    """One device of the machine, in base units of its slot."""

    index: int
    model: str | None = None
    memory: int | None = None
    capacity: int = 1000


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine has. Amounts in base units (millicores, bytes, thousandths of a device)."""

    hostname: str
    architecture: str
    capacity: dict[str, int]
    runtimes: list[str]
    boot_id: str
    agent_version: str
    enforces: dict[str, str] = {}
    """Per slot: how a limit is kept (`cgroup`, `rlimit`, `none`)."""
    devices: dict[str, list[DeviceFact]] = {}
    """Per slot the single devices behind it."""
    licence: str | None = None
    machine_image: str | None = None
    machine_image_version: str = ""
    """What the machine was made from, and the licence that it has, as its operator says."""
    address: str | None = None
    """Where other nodes reach it: as its operator says, or where the agent's own connection comes from."""
    multi_tenant: bool = False
    """True: tasks of any tenant run under their own OS user. False: only the owner's tasks may come here."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """POST /api/agent/join: a one-time token against a credential for this node."""

    token: str
    name: str
    facts: Facts


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True):
    node_id: UUID
    name: str
    pool: str
    credential: str


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


class VolumeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that containers of the task mount."""

    name: str
    kind: Literal["named", "host", "scratch", "shared"] = "scratch"
    path: str | None = None
    """Of a host volume: the folder on the node. Of one that all nodes share: the folder that has those of the pool."""
    volume_id: UUID | None = None
    """Of one that is the project's."""


class RemovedVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume of a project of which nothing is to be left on the node."""

    volume_id: UUID
    project_id: UUID
    path: str | None = None
    """Of one that all nodes share: the folder that has those of the pool."""


class RegistryLogin(msgspec.Struct, frozen=True, kw_only=True):
    """How the task's project logs in to a registry. Never written to disk, never logged."""

    registry: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"RegistryLogin(registry={self.registry!r})"


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """What a secret of the project says. On the node it is in memory only, never logged."""

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
    """Its own where both are in one network, else that of its node; None while there is none that leads there."""
    ports: list[int] = []
    """What is its own of that address, in the order of its ports."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose task it is, as far as the node must know."""

    user_id: UUID
    project_id: UUID
    project_number: int
    """Small and unique: picks the uid of the project from the agent's reserved range."""
    os_user: str | None = None
    """The OS user that an admin mapped to the tenant."""


class EndWarning(msgspec.Struct, frozen=True, kw_only=True):
    """What the task's processes are sent before its time is over, once for each such time."""

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
    """`prepare`: make everything ready to start it, and say so; it may yet go elsewhere."""
    started: bool = False
    """It was reported as running before: whoever has no record of it must not start it a second time."""
    owner: Owner
    ports: list[int] = []
    """Ports of the node that are the task's own."""
    devices: dict[str, list[tuple[int, int]]] = {}
    """Per slot the devices of the node that are the task's own: index and amount."""
    variables: dict[str, str] = {}
    """What it is told about its place in its workload, in its environment."""
    containers: list[ContainerSpec]
    init_containers: list[ContainerSpec] = []
    volumes: list[VolumeSpec] = []
    logins: list[RegistryLogin] = []
    """For the registries of its images; of tasks that are not started yet."""
    secrets: list[Secret] = []
    """Those that its containers name; of tasks that are not started yet."""
    peers: list[Peer] = []
    """Of a session with several tasks: all of them, itself included, in order; of tasks that are not started yet."""
    quality: Literal["Guaranteed", "Burstable", "BestEffort"] = "Burstable"
    """Who is hurt last when the node runs short of memory."""
    restart: Literal["never", "on-failure", "always"]
    max_restarts: int
    grace_seconds: int
    warning: EndWarning | None = None


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one task on the node. `gone`: nothing of it is left here, its capacity is free."""

    task_id: UUID
    status: Literal["PREPARED", "PREPARING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]
    gone: bool = False
    exit_code: int | None = None
    restarts: int = 0
    reason: str = ""
    code: str = ""
    """A stable word for the reason, such as `start-failed`, `out-of-memory`, `killed`."""
    heard: int = 0
    """Of one that is only to be made ready: how much was heard of what it fetches. It gets on while this grows."""
    ready: bool = True
    """Its readiness probes say yes, or it has none."""
    digests: dict[str, str] = {}
    """By container: what its image was when it was started."""
    address: str | None = None
    """Where its peers reach it, if the engine gives it an address."""


class LivingTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that has not ended on the node, whoever asked for it."""

    task_id: UUID
    workload_name: str = ""


# server -> agent


class HealthProgram(msgspec.Struct, frozen=True, kw_only=True):
    """Run now and then on every node of a pool, without a shell; exit code 0: the node may take new tasks."""

    command: list[str]
    interval_seconds: float
    timeout_seconds: float


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """The answer to hello, and again whenever something of it changes."""

    protocol: int
    server_version: str
    heartbeat_seconds: float
    """The pause between two heartbeats."""
    measure_seconds: float | None = None
    """The pause between two measures; None: the server is older than they are."""
    health: HealthProgram | None = None


class Desired(msgspec.Struct, frozen=True, kw_only=True, tag="desired"):
    """Everything that should be on the node, whole.

    What lives there and is not listed is a stray: the agent tells of it, and ends it when `end` names it.
    """

    term: int
    tasks: list[DesiredTask]
    end: list[UUID] = []
    removed_volumes: list[RemovedVolume] = []
    """Until the agent has said that they are gone."""


class Received(msgspec.Struct, frozen=True, kw_only=True, tag="received"):
    """The report with this number is durable."""

    number: int


class LogRequest(msgspec.Struct, frozen=True, kw_only=True, tag="log-request"):
    """Send the output of a task: the last `tail` lines (None: all that is kept), then follow until it ends if asked."""

    request_id: UUID
    task_id: UUID
    container: str = "main"
    tail: int | None = None
    follow: bool = False


class LogCancel(msgspec.Struct, frozen=True, kw_only=True, tag="log-cancel"):
    request_id: UUID


class Exec(msgspec.Struct, frozen=True, kw_only=True, tag="exec"):
    """Run a command in a container of the task, beside what runs there."""

    command: list[str]
    terminal: bool = False
    rows: int = 24
    columns: int = 80


class Attach(msgspec.Struct, frozen=True, kw_only=True, tag="attach"):
    """Be connected with input and output of the container itself."""


class Dial(msgspec.Struct, frozen=True, kw_only=True, tag="dial"):
    """Be connected with what listens on this port of the task."""

    port: int


class FetchFiles(msgspec.Struct, frozen=True, kw_only=True, tag="fetch-files"):
    """A file or folder of the container, as tar."""

    path: str


class StoreFiles(msgspec.Struct, frozen=True, kw_only=True, tag="store-files"):
    """What comes is tar, taken apart in this folder of the container."""

    path: str


Purpose = Exec | Attach | Dial | FetchFiles | StoreFiles


class ChannelOpen(msgspec.Struct, frozen=True, kw_only=True, tag="channel-open"):
    """A way in: bytes in both directions between somebody who may and a task, until either side ends it."""

    channel_id: UUID
    task_id: UUID
    container: str | None = None
    """None: the first."""
    purpose: Purpose


class ChannelResize(msgspec.Struct, frozen=True, kw_only=True, tag="channel-resize"):
    """The terminal at the other end has this size now."""

    channel_id: UUID
    rows: int
    columns: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The server cannot go on with this agent (credential revoked, node removed, protocol too old); it closes next."""

    code: str
    message: str


# agent -> server


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    protocol: int
    facts: Facts
    tasks: list[LivingTask] = []
    """All that live on the node: the server sees at once which of them it does not know."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat"):
    cpu_percent: float
    memory_percent: float
    disk_percent: float
    problem: str | None = None
    """Set while the node should get nothing new, e.g. a nearly full disk."""
    stopping: bool = False
    """The agent leaves in order."""


class Report(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    number: int
    tasks: list[TaskReport]


class Strays(msgspec.Struct, frozen=True, kw_only=True, tag="strays"):
    """The tasks that live on the node and are not listed: all of them, whenever it is others than before."""

    tasks: list[LivingTask]


class VolumesGone(msgspec.Struct, frozen=True, kw_only=True, tag="volumes-gone"):
    """Nothing is left on the node of volumes that were to be removed."""

    volumes: list[UUID]


class LogChunk(msgspec.Struct, frozen=True, kw_only=True, tag="log-chunk"):
    request_id: UUID
    data: bytes = b""
    end: bool = False
    error: str | None = None


class Images(msgspec.Struct, frozen=True, kw_only=True, tag="images"):
    """The images that are present on the node with their bytes: all of them, whenever it is others than before."""

    images: dict[str, int]


class TaskMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """What a task used: of the processor on average since the last measure, of the rest at this moment."""

    task_id: UUID
    cpu_millicores: int
    memory_bytes: int
    read_bytes: int = 0
    written_bytes: int = 0
    """Since its start, as what it received and sent."""
    received_bytes: int = 0
    sent_bytes: int = 0


class Measures(msgspec.Struct, frozen=True, kw_only=True, tag="measures"):
    at: float
    """In seconds since 1970."""
    tasks: list[TaskMeasure]


# both ways


class ChannelData(msgspec.Struct, frozen=True, kw_only=True, tag="channel-data"):
    """Some bytes; without any: this direction is over. At most as many as the other side has said it takes."""

    channel_id: UUID
    data: bytes
    error: bool = False
    """Of a command without a terminal: its standard error."""


class ChannelWindow(msgspec.Struct, frozen=True, kw_only=True, tag="channel-window"):
    """So many bytes more are taken; a channel begins with CHANNEL_WINDOW in both directions.

    The agent's first says that the task is reached, and may be about no byte more.
    """

    channel_id: UUID
    bytes: int


class ChannelEnd(msgspec.Struct, frozen=True, kw_only=True, tag="channel-end"):
    """It is over in both directions."""

    channel_id: UUID
    exit_code: int | None = None
    """Of a command."""
    code: str | None = None
    """A stable word for the problem, if there was one."""
    message: str = ""


CHANNEL_WINDOW = 256 * 1024

FromServer = (
    Welcome
    | Desired
    | Received
    | LogRequest
    | LogCancel
    | ChannelOpen
    | ChannelResize
    | ChannelData
    | ChannelWindow
    | ChannelEnd
    | Refused
)
FromAgent = (
    Hello
    | Heartbeat
    | Report
    | Strays
    | VolumesGone
    | LogChunk
    | Images
    | Measures
    | ChannelData
    | ChannelWindow
    | ChannelEnd
)

_encoder = msgspec.json.Encoder()
_from_server: msgspec.json.Decoder[FromServer] = msgspec.json.Decoder(FromServer)
_from_agent: msgspec.json.Decoder[FromAgent] = msgspec.json.Decoder(FromAgent)


def encode(message: FromServer | FromAgent) -> str:
    return _encoder.encode(message).decode()


def decode_from_server(text: str | bytes) -> FromServer:
    return _from_server.decode(text)


def decode_from_agent(text: str | bytes) -> FromAgent:
    return _from_agent.decode(text)
