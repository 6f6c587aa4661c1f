"""The agent protocol: one outgoing WebSocket per agent, JSON text frames, each one of the tagged messages below.

The agent says hello. The server welcomes it, then sends the whole desired state of the node whenever it changes. The
agent reports the state of its tasks. Anything may be sent twice: a repeated order or report changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from mooring.wire.agents.desired_tasks import DesiredTask, RemovedVolume

PROTOCOL = 3
OLDEST_PROTOCOL = 1
"""The oldest agent protocol that a server supports."""
WELCOMED_SINCE = 2
"""Agents of an older protocol expect no welcome, and choose their own heartbeat interval."""
CHANNELS_SINCE = 3
"""Agents of an older protocol have no channels into tasks."""

SECRETS_SINCE = 3
"""Agents of an older protocol would start a task without its secrets."""

NODE_HEADER = "Mooring-Node"
"""The header in which an agent names its node: a server that does not know it must not end its tasks."""


class DeviceFact(msgspec.Struct, frozen=True, kw_only=True):
    """One device of the machine, in base units of its slot."""

    index: int
    model: str | None = None
    memory: int | None = None
    capacity: int = 1000


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The inventory of the machine. Amounts in base units (millicores, bytes, thousandths of a device)."""

    hostname: str
    architecture: str
    capacity: dict[str, int]
    runtimes: list[str]
    boot_id: str
    agent_version: str
    enforces: dict[str, str] = {}
    """By slot, the enforcement of limits (`cgroup`, `rlimit`, `none`)."""
    devices: dict[str, list[DeviceFact]] = {}
    """By slot, its devices."""
    licence: str | None = None
    machine_image: str | None = None
    machine_image_version: str = ""
    """The machine's image and its licence, as configured by its operator."""
    address: str | None = None
    """The address for other nodes: configured by the operator, or the source of the agent's connection."""
    isolation: str = "none"
    """Level of `model.isolation` that process tasks get here."""
    isolation_reason: str = ""
    """The reason why it is not higher."""
    multi_tenant: bool = False
    """True: tasks of each tenant run as their own OS user. False: only the owner's tasks may run here."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """POST /api/agent/join: exchanges a one-time token for a credential of this node."""

    token: str
    name: str
    facts: Facts


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True):
    node_id: UUID
    name: str
    pool: str
    credential: str


class LastExit(msgspec.Struct, frozen=True, kw_only=True):
    """The last end of a container of a living task, which is restarted."""

    code: str
    reason: str
    exit_code: int | None = None
    retry_at: float | None = None
    """Unix time of the restart; None: it has been restarted."""


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one task on the node. `gone`: nothing of it is left here, its capacity is free."""

    task_id: UUID
    status: Literal["PREPARED", "PREPARING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]
    gone: bool = False
    exit_code: int | None = None
    restarts: int = 0
    crashes: int = 0
    """Ends of its containers soon after their start, in a row, up to now."""
    last_exit: LastExit | None = None
    """Of a task that has not ended: the last end of one of its containers."""
    reason: str = ""
    code: str = ""
    """The code of the reason, such as `start-failed`, `out-of-memory`, `killed`."""
    heard: int = 0
    """Of a task in preparation: bytes or steps of its image pull so far. It makes progress while this grows."""
    ready: bool = True
    """Its readiness probes succeed, or it has none."""
    digests: dict[str, str] = {}
    """By container, the digest of its image at its start."""
    address: str | None = None
    """Its address for peers, if the container engine assigns one."""


class LivingTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that has not ended on the node, whichever server started it."""

    task_id: UUID
    workload_name: str = ""


# server -> agent


class HealthProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A health check that runs periodically on every node of a pool, without a shell; exit code 0: healthy."""

    command: list[str]
    interval_seconds: float
    timeout_seconds: float


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """The answer to hello, sent again whenever it changes."""

    protocol: int
    server_version: str
    heartbeat_seconds: float
    """The interval of heartbeats."""
    measure_seconds: float | None = None
    """The interval of measurements; None: the server predates them."""
    health: HealthProgram | None = None


class Desired(msgspec.Struct, frozen=True, kw_only=True, tag="desired"):
    """The complete desired state of the node.

    A task that lives there and is not listed is a stray: the agent reports it, and ends it when `end` names it.
    """

    term: int
    tasks: list[DesiredTask]
    end: list[UUID] = []
    removed_volumes: list[RemovedVolume] = []
    """Repeated until the agent confirms that they are gone."""


class Received(msgspec.Struct, frozen=True, kw_only=True, tag="received"):
    """The report with this number is durable."""

    number: int


class LogRequest(msgspec.Struct, frozen=True, kw_only=True, tag="log-request"):
    """Send the output of a task: the last `tail` lines (None: all that is kept), then, with `follow`, until it ends.

    Older agents ignore `since` and `timestamps`, and do not set `LogChunk.times`.
    """

    request_id: UUID
    task_id: UUID
    container: str = "main"
    tail: int | None = None
    follow: bool = False
    since: float | None = None
    """Only lines that arrived from this time on, in seconds since 1970."""
    timestamps: bool = False
    """Each line begins with the time at which it arrived."""


class LogCancel(msgspec.Struct, frozen=True, kw_only=True, tag="log-cancel"):
    request_id: UUID


class Exec(msgspec.Struct, frozen=True, kw_only=True, tag="exec"):
    """Run a command in a container of the task."""

    command: list[str]
    terminal: bool = False
    rows: int = 24
    columns: int = 80


class Attach(msgspec.Struct, frozen=True, kw_only=True, tag="attach"):
    """Attach to the input and output of the container."""

    replay: bool = False
    """Send the latest output before the attachment first."""
    output: bool = True
    """False: only pass input."""


class Dial(msgspec.Struct, frozen=True, kw_only=True, tag="dial"):
    """Connect to this port of the task."""

    port: int


class FetchFiles(msgspec.Struct, frozen=True, kw_only=True, tag="fetch-files"):
    """A file or folder of the container, as tar."""

    path: str


class StoreFiles(msgspec.Struct, frozen=True, kw_only=True, tag="store-files"):
    """Extract the tar archive that follows into this folder of the container."""

    path: str


Purpose = Exec | Attach | Dial | FetchFiles | StoreFiles


class ChannelOpen(msgspec.Struct, frozen=True, kw_only=True, tag="channel-open"):
    """A channel: bytes in both directions between an authorised user and a task, until either side ends it."""

    channel_id: UUID
    task_id: UUID
    container: str | None = None
    """None: the first."""
    purpose: Purpose


class ChannelResize(msgspec.Struct, frozen=True, kw_only=True, tag="channel-resize"):
    """The new size of the terminal at the other end."""

    channel_id: UUID
    rows: int
    columns: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The server rejects this agent (credential revoked, node removed, protocol too old) and closes the connection."""

    code: str
    message: str


# agent -> server


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    protocol: int
    facts: Facts
    tasks: list[LivingTask] = []
    """All living tasks of the node, so that the server finds those that it does not know."""


class BackgroundTaskState(msgspec.Struct, frozen=True, kw_only=True):
    """A background task of the agent that has failed at least once."""

    name: str
    status: Literal["running", "restarting", "failing"]
    failures: int
    started_at: datetime | None = None
    error: str | None = None
    """The last failure."""
    failed_at: datetime | None = None


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat"):
    cpu_percent: float
    memory_percent: float
    disk_percent: float
    problem: str | None = None
    """Set while the node accepts no new tasks, for example because of a nearly full disk."""
    stopping: bool = False
    """The agent shuts down in an orderly way."""
    background: list[BackgroundTaskState] = []
    """Background tasks that have failed, including those that recovered."""
    occupied_ports: list[tuple[str, int]] = []
    """Protocol and number of ports in use by anything but the node's own tasks, at most MAX_REPORTED_PORTS."""


class Report(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    number: int
    tasks: list[TaskReport]


class Strays(msgspec.Struct, frozen=True, kw_only=True, tag="strays"):
    """The living tasks of the node that are not listed: all of them, whenever the set changes."""

    tasks: list[LivingTask]


class VolumesGone(msgspec.Struct, frozen=True, kw_only=True, tag="volumes-gone"):
    """These volumes have been deleted from the node."""

    volumes: list[UUID]


class LogChunk(msgspec.Struct, frozen=True, kw_only=True, tag="log-chunk"):
    request_id: UUID
    data: bytes = b""
    end: bool = False
    error: str | None = None
    code: str = ""
    """Of the error; older agents send none."""
    times: bool = False
    """The agent has applied `since` and `timestamps`."""


class Images(msgspec.Struct, frozen=True, kw_only=True, tag="images"):
    """The images on the node with their sizes in bytes: all of them, whenever the set changes."""

    images: dict[str, int]


class TaskMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """Measured use of a task: CPU as the average since the last measurement, the rest at this moment."""

    task_id: UUID
    cpu_millicores: int
    memory_bytes: int
    read_bytes: int = 0
    written_bytes: int = 0
    """Since its start, as are the bytes received and sent."""
    received_bytes: int = 0
    sent_bytes: int = 0
    gpu_millidevices: int | None = None
    """Of its devices, as busy as they were, in thousandths of a device; None: not measured."""
    gpu_memory_bytes: int | None = None


class Measures(msgspec.Struct, frozen=True, kw_only=True, tag="measures"):
    at: float
    """In seconds since 1970."""
    tasks: list[TaskMeasure]


# both ways


class ChannelData(msgspec.Struct, frozen=True, kw_only=True, tag="channel-data"):
    """Bytes, at most as many as the window of the other side allows; empty: the end of this direction."""

    channel_id: UUID
    data: bytes
    error: bool = False
    """Of a command without a terminal: its standard error."""


class ChannelWindow(msgspec.Struct, frozen=True, kw_only=True, tag="channel-window"):
    """Allow this many more bytes; a channel begins with CHANNEL_WINDOW in both directions.

    The agent's first one says that the task is reached, and may allow no further bytes.
    """

    channel_id: UUID
    bytes: int


class ChannelEnd(msgspec.Struct, frozen=True, kw_only=True, tag="channel-end"):
    """The end of the channel in both directions."""

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
