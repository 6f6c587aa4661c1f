"""The way into containers: a command beside what runs there, its own input and output, its ports, its files."""

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

from mooring.agent.commands import DataOnly, NotBegun
from mooring.agent.containers.course import Seen
from mooring.agent.containers.engine import Engine, EngineGone, EngineRefused, translated
from mooring.agent.containers.namespaces import connect
from mooring.agent.dialling import Dialled
from mooring.agent.runtime import Reached
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.wire.agent import Attach, ContainerSpec, Dial, Exec, FetchFiles, Purpose, StoreFiles

_LOOK_SECONDS = 0.05
_SILENT_SECONDS = 1.0
_HANG_UP_SECONDS = 2.0
_NOT_FOUND = 127
_TERMINAL = {"TERM": "xterm-256color"}
_MARK = "MOORING_COMMAND"
_ENDLESS = aiohttp.ClientTimeout(sock_connect=10.0)


class Book(Protocol):
    """Where it is kept which commands run, by the marks in their environment, so that none is forgotten."""

    def command_begun(self, command: str) -> None: ...

    def command_left(self, command: str, *, ended: bool) -> None:
        """Nobody is connected with it any more; not `ended`: it may go on, since the engine does not answer."""


async def reach(
    engine: Engine, name: str, seen: Seen, container: ContainerSpec, ports: Sequence[int], purpose: Purpose, book: Book
) -> Reached:
    """A way into a container that runs; `name`: the engine's own of it, `ports`: what the task is asked for by."""
    match purpose:
        case Exec():
            return await InContainer.run(engine, name, seen.pid, purpose, book)
        case Attach():
            return await Attached.to(engine, name, container)
        case Dial():
            port = purpose.port or (ports[0] if ports else 0)
            if not port:
                raise InvalidInput("the task has no ports of which the first could be meant; name one")
            return await Dialled.by(connect(seen, port), port)
        case FetchFiles():
            return await Fetched.of(engine, name, purpose.path)
        case StoreFiles():
            # By a process of the container's own, which can do there no more than the container's user can.
            command = Exec(command=["tar", "-x", "-f", "-", "-C", _absolute(purpose.path)])
            return Stored(await InContainer.run(engine, name, seen.pid, command, book))


async def end_cut_off(command: str, container_pids: Sequence[int]) -> None:
    """Kill a command that nobody is connected with any more, and what it has begun, in the containers of these first
    processes. It is told by its mark: an engine that was killed may not know of it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HANG_UP_SECONDS):
            while left := await asyncio.to_thread(_marked, command, container_pids):
                for pid in left:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(_LOOK_SECONDS)


def _marked(command: str, container_pids: Sequence[int]) -> list[int]:
    inside = {_files_of(pid) for pid in container_pids if pid > 1} - {_files_of("self")}
    mark = f"{_MARK}={command}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _files_of(folder.name) in inside and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def _files_of(pid: int | str) -> Path | None:
    """The name of what a process sees of the file system, which is the container's own; None: it is over."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").readlink()
    except OSError:
        return None


class _Streamed:
    """What goes in and comes out through a connection that the engine has handed over."""

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
    """A container's own input and output. Leaving it leaves the container as it is."""

    def __init__(self, streamed: _Streamed, size: Any) -> None:
        self._streamed = streamed
        self._size = size

    @classmethod
    async def to(cls, engine: Engine, name: str, container: ContainerSpec) -> Attached:
        found = engine.docker.containers.container(name)
        with translated():
            stream = found.attach(stdin=container.terminal, stdout=True, stderr=True, logs=False)
            await stream._init()
        return cls(_Streamed(stream), found.resize if container.terminal else None)

    async def read(self) -> tuple[bytes, bool] | None:
        return await self._streamed.read()

    async def write(self, data: bytes) -> None:
        # Who has nothing more to say does not end the input for those who come next.
        if data and self._size is not None:
            await self._streamed.write(data)

    async def resize(self, rows: int, columns: int) -> None:
        if self._size is not None:
            with contextlib.suppress(EngineRefused), translated():
                await self._size(h=rows, w=columns)

    async def close(self) -> None:
        await self._streamed.close()


class InContainer:
    """A command in a container. Closing it hangs up, as a terminal that is closed would."""

    def __init__(
        self, command: EngineExec, streamed: _Streamed, container_pid: int, terminal: bool, mark: str, book: Book
    ) -> None:
        self._command = command
        self._streamed = streamed
        self._container_pid = container_pid
        self._terminal = terminal
        self._mark = mark
        self._book = book
        self._reading: asyncio.Task[tuple[bytes, bool] | None] | None = None

    @classmethod
    async def run(cls, engine: Engine, name: str, container_pid: int, asked: Exec, book: Book) -> InContainer:
        found, mark = engine.docker.containers.container(name), uuid4().hex
        environment = {_MARK: mark, **(_TERMINAL if asked.terminal else {})}
        with translated():
            command = await found.exec(asked.command, stdin=True, tty=asked.terminal, environment=environment)
        book.command_begun(mark)
        stream = command.start()
        reached = cls(command, _Streamed(stream), container_pid, asked.terminal, mark, book)
        try:
            with translated():
                await stream._init()
            if engine.abilities.kind == "docker":
                await reached._begin()
            await reached.resize(asked.rows, asked.columns)
        except EngineRefused as refusal:
            book.command_left(mark, ended=True)
            raise NotBegun(_NOT_FOUND, f"cannot start {asked.command[0]!r}: {refusal.message}") from None
        except BaseException:
            book.command_left(mark, ended=False)
            raise
        return reached

    async def _begin(self) -> None:
        """EngineRefused if it does not: Docker says why in what would be its output."""
        while not (told := await self._told()).get("Pid"):
            if told.get("ExitCode") is not None:
                reason, _ = await self._streamed.read() or (b"", False)
                await self._streamed.close()
                raise EngineRefused(reason.decode("utf-8", "replace").strip(), 400)
            await asyncio.sleep(_LOOK_SECONDS)

    async def read(self) -> tuple[bytes, bool] | None:
        """What it says next. Docker keeps the connection of one that has ended while input waits for it."""
        reading = self._reading = self._reading or asyncio.create_task(self._streamed.read())
        while not (await asyncio.wait({reading}, timeout=_SILENT_SECONDS))[0]:
            if not (await self._told()).get("Running") and not reading.done():
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
            with contextlib.suppress(EngineRefused, EngineGone), translated():
                await _hang_up(self._command, self._container_pid)
                ended = True
        finally:
            self._book.command_left(self._mark, ended=ended)
        if self._reading is not None:
            self._reading.cancel()
        await self._streamed.close()

    async def _told(self) -> dict[str, Any]:
        with translated():
            return await self._command.inspect()


class Fetched(DataOnly):
    """Files of a container, as the engine packs them."""

    def __init__(self, response: aiohttp.ClientResponse, opened: contextlib.AsyncExitStack) -> None:
        self._pieces: AsyncIterator[bytes] = response.content.iter_any()
        self._opened = opened

    @classmethod
    async def of(cls, engine: Engine, name: str, path: str) -> Fetched:
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


class Stored(DataOnly):
    """Files on their way into a container; what its `tar` complains about is the reason of a failure."""

    def __init__(self, command: InContainer) -> None:
        self._command = command

    async def read(self) -> tuple[bytes, bool] | None:
        complaint = b""
        while (piece := await self._command.read()) is not None:
            complaint = (complaint + piece[0])[:4000]
        if await self._command.exit_code():
            reason = complaint.decode("utf-8", "replace").strip() or "the container has no tar that would unpack it"
            raise InvalidInput(reason, code="files-refused")
        return None

    async def write(self, data: bytes) -> None:
        await self._command.write(data)

    async def close(self) -> None:
        await self._command.close()


def running(seen: Seen | None, container: str) -> Seen:
    if seen is None:
        raise NotFound(f"the task has no container {container!r}", code="unknown-container")
    if seen.status != "running":
        raise Conflict(f"container {container!r} does not run", code="not-running")
    return seen


def _absolute(path: str) -> str:
    if ".." in path.split("/") or "\0" in path:
        raise InvalidInput(f"{path!r} leads out of its folder; write the path without ..", code="invalid-path")
    return path if path.startswith("/") else f"/{path}"


async def _hang_up(command: EngineExec, container_pid: int) -> None:
    """As a terminal that is closed would; what does not care about that is killed."""
    if await _survives(command, container_pid, signal.SIGHUP):
        await _survives(command, container_pid, signal.SIGKILL)


async def _survives(command: EngineExec, container_pid: int, number: signal.Signals) -> bool:
    """Send it a signal, and wait a moment; whether it still runs. The engine itself has no way to end it."""
    told = await command.inspect()
    if not told.get("Running"):
        return False
    with contextlib.suppress(OSError):
        _send(int(told.get("Pid") or 0), container_pid, number)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HANG_UP_SECONDS):
            await _exit_code(command)
            return False
    return True


async def _exit_code(command: EngineExec) -> int:
    while True:
        told = await command.inspect()
        if not told.get("Running"):
            return int(told.get("ExitCode") or 0)
        await asyncio.sleep(_LOOK_SECONDS)


def _send(pid: int, container_pid: int, number: signal.Signals) -> None:
    """Signal a process and those that belong to it, if it is one of the container's: numbers are given anew."""
    if pid <= 1 or container_pid <= 1:
        return
    inside, own = (Path(f"/proc/{each}/ns/mnt").readlink() for each in (pid, "self"))
    if inside != Path(f"/proc/{container_pid}/ns/mnt").readlink() or inside == own:
        return
    if os.getpgid(pid) == pid:
        os.killpg(pid, number)
    else:
        os.kill(pid, number)
