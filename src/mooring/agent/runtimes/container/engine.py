"""The container engine of the node: found through its socket, asked and told through few calls."""

from __future__ import annotations

import asyncio
import json
import os
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

from mooring.agent.containers.course import Seen
from mooring.agent.containers.specification import Abilities
from mooring.model.errors import MooringError, Unavailable

NONE = "none"
"""In place of an address: no engine is to be used, whatever answers."""

_LET_GO = "Session is closed"  # what aiohttp says to those who still use a connection that is closed
_UNREACHABLE = 900  # what aiodocker says where nobody answers
_ANSWER_SECONDS = 300.0
_GREETING_SECONDS = 10.0
_PODMAN_WITH_CDI = (4, 7)
_STATUSES: Mapping[str, Literal["created", "ended"]] = {
    **dict.fromkeys(("created", "configured", "initialized"), "created"),
    **dict.fromkeys(("exited", "stopped", "dead", "removing"), "ended"),
}
"""What engines call the states of a container that does not run."""


class EngineGone(Unavailable):
    """Nobody answers at the engine's address, for now."""

    code = "engine-unreachable"


class EngineRefused(MooringError):
    """The engine will not do what it was asked; `status` as of HTTP."""

    code = "start-failed"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Listed:
    """A container as the engine lists it."""

    id: str
    state: str
    labels: Mapping[str, str]


def addresses(option: str | None, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Where an engine may answer, in order: what the operator says, or the usual sockets that are there."""
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
    """A connection to an engine that answered."""

    def __init__(self, address: str) -> None:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, sock_connect=_GREETING_SECONDS)
        self.address = address
        self.docker = Docker(url=address, timeout=timeout)
        self.abilities = Abilities()

    async def connect(self) -> None:
        """Ask who it is and what it can do."""
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                with translated():
                    async with self.docker._query("_ping", versioned_api=False) as response:
                        greeting = response.headers
                    self.docker.api_version = f"v{greeting['Api-Version']}"
                    info = await self.docker.system.info()
        except TimeoutError:
            raise EngineGone(f"the engine at {self.address} does not answer") from None
        self.abilities = _abilities(greeting.get("Libpod-API-Version"), info)

    async def close(self) -> None:
        await self.docker.close()

    async def listed(self, label: str) -> list[Listed]:
        """All containers with this label, running or not."""
        with translated():
            found = await self.docker.containers.list(all=True, filters=json.dumps({"label": [label]}))
        return [Listed(each.id, str(each["State"]), dict(each["Labels"] or {})) for each in found]

    async def seen(self, name: str) -> Seen | None:
        """The container of that name or id; None: there is none."""
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
        """Set a container up without its command being run yet; False where the engine knows no such step."""
        if self.abilities.kind != "podman":
            return False
        path = f"v{self.abilities.version}/libpod/containers/{name}/init"
        with translated():
            async with self.docker._query(path, "POST", versioned_api=False):
                return True

    async def start(self, name: str) -> None:
        with translated():
            await self.docker.containers.container(name).start()

    async def signal(self, name: str, signal: str) -> None:
        """Send a signal by its name; one that has ended already needs none, one that somebody has paused goes on."""
        container = self.docker.containers.container(name)
        try:
            with translated():
                await container.kill(signal=signal)
                # Docker has let it go on by now, Podman lets it wait for its signal.
                if (await container.show())["State"].get("Paused"):
                    await container.unpause()
        except EngineRefused as refusal:
            if refusal.status not in (404, 409):
                found = await self.seen(name)
                if found is not None and found.status == "running":
                    raise

    async def execute(self, name: str, command: Sequence[str]) -> int:
        """The exit code of a command in a container that runs; what it says is nobody's business."""
        with translated():
            execution = await self.docker.containers.container(name).exec(list(command), stdout=True, stderr=True)
            async with execution.start(detach=False) as stream:
                while await stream.read_out() is not None:
                    pass
            return int((await execution.inspect())["ExitCode"] or 0)

    async def remove(self, name: str) -> None:
        """With its processes, if it has any, and the volumes that only it has."""
        try:
            with translated():
                await self.docker.containers.container(name).delete(force=True, v=True)
        except EngineRefused as refusal:
            if refusal.status != 404:
                raise

    async def output(
        self, name: str, *, terminal: bool, tail: int | None, follow: bool, since: float | None = None
    ) -> AsyncIterator[bytes]:
        """What it has said, as the engine keeps it; `follow`: then what it says until it ends."""
        asked: dict[str, Any] = {"stdout": True, "stderr": True, "follow": follow}
        if tail is not None:
            asked["tail"] = tail
        if since is not None:
            asked["since"] = f"{since:.9f}"
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
        """The labels of each container with this label that something happens to; ends when the engine does."""
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
        """With these addresses, or some that the engine chooses."""
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
        """Those with this label, by name, with all of their labels."""
        with translated():
            found = await self.docker.networks.list(filters={"label": [label]})
        return [(network["Name"], network["Labels"] or {}) for network in found]

    async def remove_network(self, name: str) -> None:
        """Refused while a container is in it. By its name: of the id Podman does not find who is."""
        try:
            with translated():
                async with self.docker._query(f"networks/{name}", "DELETE"):
                    pass
        except EngineRefused as refusal:
            if refusal.status != 404:
                raise


async def lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Of any length: what engines say has in it what the makers of images wrote."""
    rest = b""
    async for piece in response.content.iter_any():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest


@contextmanager
def translated() -> Iterator[None]:
    """What goes wrong, in the agent's own words."""
    try:
        yield
    except DockerError as error:
        if error.status == _UNREACHABLE:
            raise EngineGone(error.message) from None
        # Podman says so of one that goes while it is looked at.
        gone = error.status == 500 and "no such container" in error.message
        raise EngineRefused(error.message.strip(), 404 if gone else error.status) from None
    except (aiohttp.ClientError, OSError) as error:
        raise EngineGone(f"the connection to the engine broke: {error}") from None
    except RuntimeError as error:
        if str(error) != _LET_GO:
            raise
        raise EngineGone("the connection to the engine was let go") from None


def _abilities(podman: str | None, info: Mapping[str, Any]) -> Abilities:
    """`podman`: the version of one."""
    unified = str(info.get("CgroupVersion", "")) == "2"
    return Abilities(
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
    """How graphics processors are handed over, if they can be."""
    if podman is None:
        return "request" if "nvidia" in (info.get("Runtimes") or {}) else None
    version = tuple(int(part) for part in podman.split(".")[:2] if part.isdigit())
    described = any(any(Path(folder).glob("*nvidia*")) for folder in ("/etc/cdi", "/var/run/cdi"))
    return "cdi" if version >= _PODMAN_WITH_CDI and described else None


def _seen(told: Mapping[str, Any]) -> Seen:
    state, config = told["State"], told.get("Config") or {}
    status: Literal["created", "running", "ended"] = _STATUSES.get(state["Status"], "running")
    networks = (told.get("NetworkSettings") or {}).get("Networks") or {}
    return Seen(
        id=str(told["Id"]),
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
    """The short name of a signal that an image names by its number or its name; that of all others where it is none."""
    if written.isdigit() and int(written) in list(signal.Signals):
        return signal.Signals(int(written)).name.removeprefix("SIG")
    short = written.upper().removeprefix("SIG")
    return short if f"SIG{short}" in signal.Signals.__members__ else "TERM"


def _moment(written: str | None) -> float:
    """Seconds since 1970 of a time with any number of digits after the point; 0: never."""
    if not written or written.startswith("0001"):
        return 0.0
    whole, _, rest = written.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :] if rest else ""
    text = whole if not rest else whole + (zone or "Z")
    return datetime.fromisoformat(text).timestamp() + float(f"0.{digits or 0}")
