"""Access to process tasks: additional commands, ports, and files of their folder."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from mooring.agent.access import network_namespaces
from mooring.agent.access.commands import Command, DataOnly, spawn
from mooring.agent.access.port_connections import Connected, PortConnection
from mooring.agent.runtimes import records
from mooring.agent.runtimes.contract import TaskChannel
from mooring.agent.runtimes.process.attachment import Attachment
from mooring.agent.runtimes.process.supervisor import record
from mooring.agent.runtimes.records import SpecRecord, StateRecord
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.wire.agents.agent_protocol import Attach, Dial, Exec, FetchFiles, Purpose, StoreFiles

_ENTER = Path(__file__).parent / "supervisor" / "enter.py"
_COMPLAINT_BYTES = 4000


@dataclass(frozen=True, slots=True)
class ProcessAccess:
    """A process task that is accessed."""

    folder: Path
    """The agent's folder of the task, with its records."""
    spec: SpecRecord
    running: bool

    async def reach(self, container: str | None, purpose: Purpose) -> TaskChannel:
        index = self._index(container)
        match purpose:
            case FetchFiles():
                return FileTransfer(self._enter(index, "fetch", [self._path(purpose.path)]))
            case _ if not self.running:
                raise Conflict("the task does not run", code="not-running")
            case StoreFiles():
                return FileTransfer(self._enter(index, "store", [self._path(purpose.path)]))
            case Exec():
                return self._run(index, purpose)
            case Dial():
                port = self._port(purpose.port)
                return await PortConnection.by(self._connect(index, port), port)
            case Attach():
                if not self.spec.containers[index].attachable:
                    raise Conflict(
                        "the process was started without an input (-i) or a terminal (-t) to attach to; read its "
                        "output with `mooring logs -f`, or run a command alongside it with `mooring exec`",
                        code="not-attachable",
                    )
                return await Attachment.to(self.folder, index, replay=purpose.replay, output=purpose.output)

    def _run(self, index: int, purpose: Exec) -> Command:
        if not purpose.command or any("\0" in word for word in purpose.command):
            raise InvalidInput("a command is one word or more")
        if not purpose.terminal:
            return self._enter(index, "run", purpose.command)
        return self._enter(index, "terminal", purpose.command, size=(purpose.rows, purpose.columns))

    def _enter(self, index: int, purpose: str, words: list[str], size: tuple[int, int] | None = None) -> Command:
        def arguments(failure: int) -> list[str]:
            own = [str(self.folder), str(index), str(os.getpid()), str(failure), purpose]
            # Only archives need an installed package (on a Python without extraction filters); -S starts faster.
            flags = ["-I"] if purpose in ("fetch", "store") else ["-I", "-S"]
            return [sys.executable, *flags, str(_ENTER), *own, *words]

        return spawn(arguments, size)

    async def _connect(self, index: int, port: int) -> Connected:
        """Connect on the task's loopback: the machine's or its own."""
        if self.spec.network == "host":
            return await asyncio.open_connection("127.0.0.1", port)
        state = records.read(self.folder / record.STATE, StateRecord)
        init = state.inits[index] if state is not None and index < len(state.inits) else None
        if init is None:
            raise ProcessLookupError("its process does not run at the moment")

        def is_current() -> bool:
            return record.start_time(init.pid) == init.start_time

        return await network_namespaces.connect(network_namespaces.socket_of(init.pid, is_current), port)

    def _index(self, container: str | None) -> int:
        names = [known.name for known in self.spec.containers]
        if container is None:
            return 0
        if container not in names:
            known = ", ".join(names)
            raise NotFound(f"the task has no container {container!r}; there are: {known}", code="unknown-container")
        return names.index(container)

    def _port(self, asked: int) -> int:
        own = self.spec.ports
        if asked == 0 and own:
            return own[0][1]
        for name, port in own:
            if asked in (name, port):
                return port
        listed = ", ".join(str(name) for name, _ in own)
        raise Conflict(
            f"port {asked} is not assigned to the task; " + (f"it has {listed}" if own else "it has none (--ports)"),
            code="foreign-port",
        )

    def _path(self, path: str) -> str:
        """Return the path relative to the task's folder."""
        if not path.startswith("/"):
            return path
        try:
            return str(Path(path).relative_to(self.spec.work_folder))
        except ValueError:
            raise InvalidInput(
                f"{path!r} is not in the task's folder {self.spec.work_folder}", code="invalid-path"
            ) from None


class FileTransfer(DataOnly):
    """Transfer of a tar archive; the error output of the process is the reason of a failure."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._complaint = b""

    async def read(self) -> tuple[bytes, bool] | None:
        while (piece := await self._command.read()) is not None:
            if not piece[1]:
                return piece
            self._complaint = (self._complaint + piece[0])[:_COMPLAINT_BYTES]
        if await self._command.exit_code():
            reason = self._complaint.decode("utf-8", "replace") or "the files cannot be read or written"
            raise InvalidInput(reason, code="files-refused")
        return None

    async def write(self, data: bytes) -> None:
        await self._command.write(data)

    async def close(self) -> None:
        await self._command.close()
