"""Access to containers: additional commands, standard input and output, ports, and files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import aiohttp
from aiodocker.execs import Exec as EngineExec
from aiodocker.stream import Stream

from mooring.agent.access.commands import CommandNotStarted, DataOnly
from mooring.agent.access.port_connections import PortConnection
from mooring.agent.runtimes.container.engine import (
    Engine,
    EngineRefused,
    EngineUnavailable,
    translated,
)
from mooring.agent.runtimes.container.namespaces import connect
from mooring.agent.runtimes.container.state_machine import ContainerState
from mooring.agent.runtimes.contract import TaskChannel
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.wire.agents.agent_protocol import Attach, Dial, Exec, FetchFiles, Purpose, StoreFiles
from mooring.wire.agents.desired_tasks import ContainerSpec

_POLL_SECONDS = 0.05
_SILENT_SECONDS = 1.0
_HANG_UP_SECONDS = 2.0
_NOT_FOUND = 127
_TERMINAL = {"TERM": "xterm-256color"}
_MARK = "MOORING_COMMAND"
_ENDLESS = aiohttp.ClientTimeout(sock_connect=10.0)
_RESIZE_SECONDS = 0.3


class CommandRegistry(Protocol):
    """Registry of running commands, by the marks in their environment, so that none is left after a crash."""

    def command_started(self, command: str) -> None: ...

    def command_detached(self, command: str, *, ended: bool) -> None:
        """Note that the user has disconnected; not `ended`: it may continue, since the engine does not answer."""


async def reach(
    engine: Engine,
    name: str,
    seen: ContainerState,
    container: ContainerSpec,
    ports: Sequence[int],
    purpose: Purpose,
    commands: CommandRegistry,
) -> TaskChannel:
    """Open a channel into a running container; `name`: its name in the engine, `ports`: its container ports."""
    match purpose:
        case Exec():
            return await ContainerCommand.run(engine, name, seen.pid, purpose, commands)
        case Attach():
            return await Attached.to(engine, name, container, purpose)
        case Dial():
            port = purpose.port or (ports[0] if ports else 0)
            if not port:
                raise InvalidInput("the task declares no ports; name the port")
            return await PortConnection.by(connect(seen, port), port)
        case FetchFiles():
            return await FileDownload.of(engine, name, purpose.path)
        case StoreFiles():
            # By a process inside the container, which has only the permissions of the container's user.
            command = Exec(command=["tar", "-x", "-f", "-", "-C", _absolute(purpose.path)])
            return FileUpload(await ContainerCommand.run(engine, name, seen.pid, command, commands))


async def end_disconnected(command: str, container_pids: Sequence[int]) -> None:
    """Kill a command that nobody is connected with any more, and what it has begun, in the containers of these first
    processes. It is recognised by its mark: an engine that was killed may not know of it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HANG_UP_SECONDS):
            while left := await asyncio.to_thread(_marked, command, container_pids):
                for pid in left:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(_POLL_SECONDS)


def _marked(command: str, container_pids: Sequence[int]) -> list[int]:
    files = {_files_of(pid) for pid in container_pids if pid > 1} - {_files_of("self")}
    mark = f"{_MARK}={command}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _files_of(folder.name) in files and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def _files_of(pid: int | str) -> Path | None:
    """Return the mount namespace of a process, which identifies its container; None if it has ended."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").readlink()
    except OSError:
        return None


class _Streamed:
    """Input and output over a hijacked connection to the engine."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def read(self) -> tuple[bytes, bool] | None:
        with translated():
            message = await self._stream.read_out()
        return None if message is None else (message.data, message.stream == 2)

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError, RuntimeError, aiohttp.ClientError):
            if data:
                await self._stream.write_in(data)
            else:
                self._end_input()

    async def close(self) -> None:
        with contextlib.suppress(OSError, AssertionError):
            await self._stream.close()

    def _end_input(self) -> None:
        response = self._stream._resp
        transport = response.connection.transport if response is not None and response.connection is not None else None
        if transport is not None and transport.can_write_eof():
            transport.write_eof()


class Attached(DataOnly):
    """Standard input and output of a container. Closing the channel does not affect the container."""

    def __init__(self, engine: Engine, name: str, container: ContainerSpec, streamed: _Streamed) -> None:
        self._engine = engine
        self._name = name
        self._container = container
        self._streamed = streamed
        self._sized = False

    @classmethod
    async def to(cls, engine: Engine, name: str, container: ContainerSpec, asked: Attach) -> Attached:
        found = engine.docker.containers.container(name)
        given, shown = container.terminal or container.stdin, asked.output
        with translated():
            stream = found.attach(stdin=given, stdout=shown, stderr=shown, logs=asked.replay and shown)
            await stream._init()
        return cls(engine, name, container, _Streamed(stream))

    async def read(self) -> tuple[bytes, bool] | None:
        return await self._streamed.read()

    async def write(self, data: bytes) -> None:
        # The end of one user's input is not that of the terminal, which others may attach to.
        if self._container.stdin or (self._container.terminal and data):
            await self._streamed.write(data)

    async def resize(self, rows: int, columns: int) -> None:
        if self._container.terminal:
            if not self._sized:
                # A full-screen program draws itself for a new user only when the size changes.
                self._sized = True
                await self._engine.resize(self._name, rows + 1, columns)
                # Podman applies sizes after it has answered, and two at once in any order.
                await asyncio.sleep(_RESIZE_SECONDS)
            await self._engine.resize(self._name, rows, columns)

    async def close(self) -> None:
        await self._streamed.close()


class ContainerCommand:
    """A command in a container. Closing it sends SIGHUP, as closing a terminal does."""

    def __init__(
        self,
        command: EngineExec,
        streamed: _Streamed,
        container_pid: int,
        terminal: bool,
        mark: str,
        commands: CommandRegistry,
    ) -> None:
        self._command = command
        self._streamed = streamed
        self._container_pid = container_pid
        self._terminal = terminal
        self._mark = mark
        self._book = commands
        self._reading: asyncio.Task[tuple[bytes, bool] | None] | None = None

    @classmethod
    async def run(
        cls, engine: Engine, name: str, container_pid: int, asked: Exec, commands: CommandRegistry
    ) -> ContainerCommand:
        found, mark = engine.docker.containers.container(name), uuid4().hex
        environment = {_MARK: mark, **(_TERMINAL if asked.terminal else {})}
        with translated():
            command = await found.exec(asked.command, stdin=True, tty=asked.terminal, environment=environment)
        commands.command_started(mark)
        stream = command.start()
        reached = cls(command, _Streamed(stream), container_pid, asked.terminal, mark, commands)
        try:
            with translated():
                await stream._init()
            if engine.capabilities.kind == "docker":
                await reached._begin()
            await reached.resize(asked.rows, asked.columns)
        except EngineRefused as refusal:
            commands.command_detached(mark, ended=True)
            raise CommandNotStarted(_NOT_FOUND, f"cannot start {asked.command[0]!r}: {refusal.message}") from None
        except BaseException:
            commands.command_detached(mark, ended=False)
            raise
        return reached

    async def _begin(self) -> None:
        """Raise EngineRefused if the command did not start: Docker sends the reason as its output."""
        while not (inspected := await self._inspect()).get("Pid"):
            if inspected.get("ExitCode") is not None:
                reason, _ = await self._streamed.read() or (b"", False)
                await self._streamed.close()
                raise EngineRefused(reason.decode("utf-8", "replace").strip(), 400)
            await asyncio.sleep(_POLL_SECONDS)

    async def read(self) -> tuple[bytes, bool] | None:
        """Return the next output. Docker keeps the connection of an ended command open while input is pending."""
        reading = self._reading = self._reading or asyncio.create_task(self._streamed.read())
        while not (await asyncio.wait({reading}, timeout=_SILENT_SECONDS))[0]:
            if not (await self._inspect()).get("Running") and not reading.done():
                return None
        self._reading = None
        return reading.result()

    async def write(self, data: bytes) -> None:
        if data or not self._terminal:
            await self._streamed.write(data)

    async def resize(self, rows: int, columns: int) -> None:
        if self._terminal:
            with contextlib.suppress(EngineRefused), translated():
                await self._command.resize(h=rows, w=columns)

    async def exit_code(self) -> int | None:
        with translated():
            return await _exit_code(self._command)

    async def close(self) -> None:
        ended = False
        try:
            with contextlib.suppress(EngineRefused, EngineUnavailable), translated():
                await _hang_up(self._command, self._container_pid)
                ended = True
        finally:
            self._book.command_detached(self._mark, ended=ended)
        if self._reading is not None:
            self._reading.cancel()
        await self._streamed.close()

    async def _inspect(self) -> dict[str, Any]:
        with translated():
            return await self._command.inspect()


class FileDownload(DataOnly):
    """Files of a container as a tar archive from the engine."""

    def __init__(self, response: aiohttp.ClientResponse, opened: contextlib.AsyncExitStack) -> None:
        self._pieces: AsyncIterator[bytes] = response.content.iter_any()
        self._opened = opened

    @classmethod
    async def of(cls, engine: Engine, name: str, path: str) -> FileDownload:
        opened = contextlib.AsyncExitStack()
        try:
            with translated():
                asked = engine.docker._query(
                    f"containers/{name}/archive", params={"path": _absolute(path)}, timeout=_ENDLESS
                )
                return cls(await opened.enter_async_context(asked), opened)
        except EngineRefused as refusal:
            if refusal.status == 404:
                raise InvalidInput(f"there is no {path!r}", code="files-refused") from None
            raise

    async def read(self) -> tuple[bytes, bool] | None:
        with translated():
            data = await anext(self._pieces, None)
        return None if data is None else (data, False)

    async def write(self, data: bytes) -> None:
        return None

    async def close(self) -> None:
        await self._opened.aclose()


class FileUpload(DataOnly):
    """Files sent into a container; the error output of its `tar` is the reason of a failure."""

    def __init__(self, command: ContainerCommand) -> None:
        self._command = command

    async def read(self) -> tuple[bytes, bool] | None:
        complaint = b""
        while (piece := await self._command.read()) is not None:
            complaint = (complaint + piece[0])[:4000]
        if await self._command.exit_code():
            reason = complaint.decode("utf-8", "replace").strip() or "the container has no tar program to unpack it"
            raise InvalidInput(reason, code="files-refused")
        return None

    async def write(self, data: bytes) -> None:
        await self._command.write(data)

    async def close(self) -> None:
        await self._command.close()


def running(seen: ContainerState | None, container: str) -> ContainerState:
    if seen is None:
        raise NotFound(f"the task has no container {container!r}", code="unknown-container")
    if seen.status != "running":
        raise Conflict(f"container {container!r} does not run", code="not-running")
    return seen


def _absolute(path: str) -> str:
    if ".." in path.split("/") or "\0" in path:
        raise InvalidInput(f"{path!r} leads out of the folder; write the path without ..", code="invalid-path")
    return path if path.startswith("/") else f"/{path}"


async def _hang_up(command: EngineExec, container_pid: int) -> None:
    """Send SIGHUP, as closing a terminal does, then kill if that has no effect."""
    if await _survives(command, container_pid, signal.SIGHUP):
        await _survives(command, container_pid, signal.SIGKILL)


async def _survives(command: EngineExec, container_pid: int, number: signal.Signals) -> bool:
    """Send a signal, wait briefly, and return whether the command still runs. The engine has no call for this."""
    inspected = await command.inspect()
    if not inspected.get("Running"):
        return False
    with contextlib.suppress(OSError):
        _send(int(inspected.get("Pid") or 0), container_pid, number)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HANG_UP_SECONDS):
            await _exit_code(command)
            return False
    return True


async def _exit_code(command: EngineExec) -> int:
    while True:
        inspected = await command.inspect()
        if not inspected.get("Running"):
            return int(inspected.get("ExitCode") or 0)
        await asyncio.sleep(_POLL_SECONDS)


def _send(pid: int, container_pid: int, number: signal.Signals) -> None:
    """Signal a process and its descendants, if it belongs to the container: pids are reused."""
    if pid <= 1 or container_pid <= 1:
        return
    namespace, own = (Path(f"/proc/{each}/ns/mnt").readlink() for each in (pid, "self"))
    if namespace != Path(f"/proc/{container_pid}/ns/mnt").readlink() or namespace == own:
        return
    if os.getpgid(pid) == pid:
        os.killpg(pid, number)
    else:
        os.kill(pid, number)
