"""The container engine of the node, found through its socket and used through a few calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import stat
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import aiohttp
from aiodocker import Docker, DockerError
from aiodocker.multiplexed import MultiplexedResult

from mooring.agent.runtimes.container.specification import EngineCapabilities
from mooring.agent.runtimes.container.state_machine import ContainerState
from mooring.model.errors import MooringError, Unavailable

NONE = "none"
"""Value of the engine option that disables containers."""

_LET_GO = "Session is closed"  # message of aiohttp when a closed connection is used
_UNREACHABLE = 900  # status of aiodocker when nothing answers
_ANSWER_SECONDS = 300.0
_GREETING_SECONDS = 10.0
_TRANSIENT = re.compile(
    r"no such process|/proc/\d+/\S*: no such file or directory|container not known|layer not known"
    r"|database is locked|resource temporarily unavailable|interrupted system call|text file busy",
    re.IGNORECASE,
)
"""Reasons, in answers of status 500 and above, that are gone by the next request. Podman before 4.4 answers the first
for every container whose process ends while it is inspected."""
_ATTEMPTS, _AGAIN_SECONDS = 10, 0.2
_PODMAN_WITH_CDI = (4, 7)
_STATUSES: Mapping[str, Literal["created", "ended"]] = {
    **dict.fromkeys(("created", "configured", "initialized"), "created"),
    **dict.fromkeys(("exited", "stopped", "dead", "removing"), "ended"),
}
"""States of a container that is not running."""


class EngineUnavailable(Unavailable):
    """Nothing answers at the engine's address at present."""

    code = "engine-unreachable"


class EngineRefused(MooringError):
    """The engine rejects a request; `status` is the HTTP status."""

    code = "start-failed"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class EngineTransient(EngineRefused):
    """The engine failed because of a concurrent change, such as a process that ended: retry."""


@dataclass(frozen=True, slots=True)
class ListedContainer:
    """A container in the engine's list."""

    id: str
    state: str
    labels: Mapping[str, str]


def addresses(option: str | None, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the addresses to try, in order: the configured one, or the usual sockets that exist."""
    said = option or environment.get("DOCKER_HOST")
    if said == NONE:
        return []
    if said:
        return [said]
    sockets = [Path("/var/run/docker.sock"), Path("/run/podman/podman.sock")]
    if own := environment.get("XDG_RUNTIME_DIR"):
        sockets += [Path(own) / "docker.sock", Path(own) / "podman" / "podman.sock"]
    return [f"unix://{path}" for path in sockets if _is_socket(path)]


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode) and os.access(path, os.R_OK | os.W_OK)
    except OSError:
        return False


class Engine:
    """A connection to an engine."""

    def __init__(self, address: str) -> None:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, sock_connect=_GREETING_SECONDS)
        self.address = address
        self.docker = Docker(url=address, timeout=timeout)
        self.capabilities = EngineCapabilities()

    async def connect(self) -> None:
        """Return the capabilities of the engine."""
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                with translated():
                    async with self.docker._query("_ping", versioned_api=False) as response:
                        greeting = response.headers
                    self.docker.api_version = f"v{greeting['Api-Version']}"
                    info = await self.docker.system.info()
        except TimeoutError:
            raise EngineUnavailable(f"the engine at {self.address} does not answer") from None
        self.capabilities = _capabilities(greeting.get("Libpod-API-Version"), info)

    async def close(self) -> None:
        await self.docker.close()

    async def listed(self, label: str) -> list[ListedContainer]:
        """Return all containers with this label, running or not."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with translated():
                    found = await self.docker.containers.list(all=True, filters=json.dumps({"label": [label]}))
                break
            except EngineTransient:  # one of many containers has just ended; the others are still needed
                if attempt == _ATTEMPTS:
                    raise
                await asyncio.sleep(_AGAIN_SECONDS)
        return [ListedContainer(each.id, str(each["State"]), dict(each["Labels"] or {})) for each in found]

    async def seen(self, name: str) -> ContainerState | None:
        """Return the container of that name or id; None if there is none."""
        try:
            with translated():
                return _seen(await self.docker.containers.container(name).show())
        except EngineRefused as refusal:
            if refusal.status == 404:
                return None
            raise

    async def create(self, name: str, config: Mapping[str, Any]) -> None:
        with translated():
            await self.docker.containers.create(config, name=name)

    async def initialise(self, name: str) -> bool:
        """Initialise a container without running its command yet; return False if the engine has no such call."""
        if self.capabilities.kind != "podman":
            return False
        path = f"v{self.capabilities.version}/libpod/containers/{name}/init"
        with translated():
            async with self.docker._query(path, "POST", versioned_api=False):
                return True

    async def resize(self, name: str, rows: int, columns: int) -> None:
        """Set the size of a container's terminal; an engine that cannot at the moment leaves it as it is."""
        with contextlib.suppress(EngineRefused), translated():
            await self.docker.containers.container(name).resize(h=rows, w=columns)

    async def start(self, name: str) -> None:
        with translated():
            await self.docker.containers.container(name).start()

    async def signal(self, name: str, signal: str) -> None:
        """Send a signal by name. An ended container is ignored, a paused one is resumed."""
        container = self.docker.containers.container(name)
        try:
            with translated():
                await container.kill(signal=signal)
                # Docker resumes it for a signal, Podman does not.
                if (await container.show())["State"].get("Paused"):
                    await container.unpause()
        except EngineRefused as refusal:
            if refusal.status not in (404, 409):
                found = await self.seen(name)
                if found is not None and found.status == "running":
                    raise

    async def execute(self, name: str, command: Sequence[str]) -> int:
        """Return the exit code of a command in a running container; its output is discarded."""
        with translated():
            execution = await self.docker.containers.container(name).exec(list(command), stdout=True, stderr=True)
            async with execution.start(detach=False) as stream:
                while await stream.read_out() is not None:
                    pass
            return int((await execution.inspect())["ExitCode"] or 0)

    async def remove(self, name: str) -> None:
        """Remove a container with its processes and anonymous volumes."""
        try:
            with translated():
                await self.docker.containers.container(name).delete(force=True, v=True)
        except EngineRefused as refusal:
            if refusal.status != 404:
                raise

    async def output(
        self,
        name: str,
        *,
        terminal: bool,
        tail: int | None,
        follow: bool,
        since: float | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[bytes]:
        """Yield the stored output of a container; with `follow`, then new output until it ends.

        With `timestamps` each line begins with its time and a space.
        """
        asked: dict[str, Any] = {"stdout": True, "stderr": True, "follow": follow}
        if tail is not None:
            asked["tail"] = tail
        if since is not None:
            asked["since"] = f"{since:.9f}"
        if timestamps:
            asked["timestamps"] = True
        with translated():
            endless = aiohttp.ClientTimeout(sock_connect=_GREETING_SECONDS)
            async with self.docker._query(f"containers/{name}/logs", params=asked, timeout=endless) as response:
                try:
                    pieces: AsyncIterator[bytes] = MultiplexedResult(response, raw=terminal)  # type: ignore[no-untyped-call]
                    async for data in pieces:
                        yield data
                finally:
                    response.close()

    async def events(self, label: str) -> AsyncIterator[Mapping[str, str]]:
        """Yield the labels of each container with this label that has an event; ends with the engine."""
        filters = json.dumps({"type": ["container"], "label": [label]})
        endless = aiohttp.ClientTimeout(sock_connect=_GREETING_SECONDS)
        with translated():
            async with self.docker._query("events", params={"filters": filters}, timeout=endless) as response:
                try:
                    async for line in lines(response):
                        yield json.loads(line).get("Actor", {}).get("Attributes") or {}
                finally:
                    response.close()

    async def make_network(self, name: str, bridge: str, labels: Mapping[str, str], subnet: str | None = None) -> None:
        """Create a network with this subnet, or one that the engine chooses."""
        config: dict[str, Any] = {
            "Name": name,
            "Driver": "bridge",
            "CheckDuplicate": True,
            "Labels": dict(labels),
            "Options": {"com.docker.network.bridge.name": bridge},
        }
        if subnet is not None:
            config["IPAM"] = {"Driver": "default", "Config": [{"Subnet": subnet}]}
        try:
            with translated():
                await self.docker.networks.create(config)
        except EngineRefused:
            if not await self.has_network(name):
                raise

    async def has_network(self, name: str) -> bool:
        with translated():
            found = await self.docker.networks.list(filters={"name": [name]})
        return any(network["Name"] == name for network in found)

    async def networks(self, label: str) -> list[tuple[str, Mapping[str, str]]]:
        """Return the networks with this label by name, with all of their labels."""
        with translated():
            found = await self.docker.networks.list(filters={"label": [label]})
        return [(network["Name"], network["Labels"] or {}) for network in found]

    async def remove_network(self, name: str) -> None:
        """Remove a network; rejected while a container uses it. By name, since Podman ignores uses of the id."""
        try:
            with translated():
                async with self.docker._query(f"networks/{name}", "DELETE"):
                    pass
        except EngineRefused as refusal:
            if refusal.status != 404:
                raise


async def lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield lines of any length: engines include text of image authors."""
    rest = b""
    async for piece in response.content.iter_any():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest


@contextmanager
def translated() -> Iterator[None]:
    """Translate errors of the engine's client into those of the agent."""
    try:
        yield
    except DockerError as error:
        if error.status == _UNREACHABLE:
            raise EngineUnavailable(error.message) from None
        # Podman's error for a container that is removed during the request.
        gone = error.status == 500 and "no such container" in error.message
        transient = not gone and error.status >= 500 and _TRANSIENT.search(error.message)
        refusal = EngineTransient if transient else EngineRefused
        raise refusal(error.message.strip(), 404 if gone else error.status) from None
    except json.JSONDecodeError:
        raise EngineUnavailable("the response of the engine was incomplete") from None
    except (aiohttp.ClientError, OSError) as error:
        raise EngineUnavailable(f"the connection to the engine broke: {error}") from None
    except RuntimeError as error:
        if str(error) != _LET_GO:
            raise
        raise EngineUnavailable("the connection to the engine was closed") from None


def _capabilities(podman: str | None, info: Mapping[str, Any]) -> EngineCapabilities:
    """Return the engine's capabilities; `podman`: its version."""
    unified = str(info.get("CgroupVersion", "")) == "2"
    return EngineCapabilities(
        kind="podman" if podman else "docker",
        version=podman or str(info.get("ServerVersion", "")),
        cgroup_version=2 if unified else 1,
        cpu=bool(info.get("CpuCfsQuota")) or unified,
        memory=bool(info.get("MemoryLimit")),
        swap=bool(info.get("SwapLimit")),
        pids=bool(info.get("PidsLimit")),
        storage=info.get("Driver") in ("btrfs", "zfs"),
        devices=_devices(podman, info),
    )


def _devices(podman: str | None, info: Mapping[str, Any]) -> Literal["request", "cdi"] | None:
    """Return the method of passing GPUs to containers, if there is one."""
    if podman is None:
        return "request" if "nvidia" in (info.get("Runtimes") or {}) else None
    version = tuple(int(part) for part in podman.split(".")[:2] if part.isdigit())
    described = any(any(Path(folder).glob("*nvidia*")) for folder in ("/etc/cdi", "/var/run/cdi"))
    return "cdi" if version >= _PODMAN_WITH_CDI and described else None


def _seen(inspected: Mapping[str, Any]) -> ContainerState:
    state, config = inspected["State"], inspected.get("Config") or {}
    status: Literal["created", "running", "ended"] = _STATUSES.get(state["Status"], "running")
    networks = (inspected.get("NetworkSettings") or {}).get("Networks") or {}
    return ContainerState(
        id=str(inspected["Id"]),
        status=status,
        exit_code=int(state.get("ExitCode") or 0) if status == "ended" else None,
        out_of_memory=bool(state.get("OOMKilled")),
        started_at=_moment(state.get("StartedAt")),
        ended_at=_moment(state.get("FinishedAt")),
        pid=int(state.get("Pid") or 0),
        address=next((net["IPAddress"] for net in networks.values() if net.get("IPAddress")), None),
        stop_signal=_signal(str(config.get("StopSignal") or "")),
        labels=dict(config.get("Labels") or {}),
    )


def _signal(written: str) -> str:
    """Return the short name of a signal from its number or name; the default signal if it is invalid."""
    if written.isdigit() and int(written) in list(signal.Signals):
        return signal.Signals(int(written)).name.removeprefix("SIG")
    short = written.upper().removeprefix("SIG")
    return short if f"SIG{short}" in signal.Signals.__members__ else "TERM"


def _moment(written: str | None) -> float:
    """Return the Unix time of a timestamp with any number of decimals; 0: never."""
    if not written or written.startswith("0001"):
        return 0.0
    whole, _, rest = written.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :] if rest else ""
    text = whole if not rest else whole + (zone or "Z")
    return datetime.fromisoformat(text).timestamp() + float(f"0.{digits or 0}")
