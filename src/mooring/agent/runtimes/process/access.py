"""The way into process tasks: a command beside them, their ports, the files of their folder."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from mooring.agent.commands import Command, DataOnly, spawn
from mooring.agent.dialling import Dialled
from mooring.agent.records import SpecRecord
from mooring.agent.runtime import Reached
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.wire.agent import Attach, Dial, Exec, FetchFiles, Purpose, StoreFiles

_ENTER = Path(__file__).parent / "supervisor" / "enter.py"


@dataclass(frozen=True, slots=True)
class Inside:
    """A process task as it is reached."""

    folder: Path
    """The agent's own of the task, with its records."""
    spec: SpecRecord
    running: bool

    async def reach(self, container: str | None, purpose: Purpose) -> Reached:
        index = self._index(container)
        match purpose:
            case FetchFiles():
                return FilesMoved(self._enter(index, "fetch", [self._path(purpose.path)]))
            case _ if not self.running:
                raise Conflict("the task does not run", code="not-running")
            case StoreFiles():
                return FilesMoved(self._enter(index, "store", [self._path(purpose.path)]))
            case Exec():
                return self._run(index, purpose)
            case Dial():
                port = self._port(purpose.port)
                return await Dialled.by(asyncio.open_connection("127.0.0.1", port), port)
            case Attach():
                raise Conflict(
                    "a process has no input that one could be connected with; read its output with `mooring logs`, "
                    "or run a command beside it with `mooring exec`",
                    code="not-attachable",
                )

    def _run(self, index: int, purpose: Exec) -> Command:
        if not purpose.command or any("\0" in word for word in purpose.command):
            raise InvalidInput("a command is one word or more")
        if not purpose.terminal:
            return self._enter(index, "run", purpose.command)
        return self._enter(index, "terminal", purpose.command, size=(purpose.rows, purpose.columns))

    def _enter(self, index: int, purpose: str, words: list[str], size: tuple[int, int] | None = None) -> Command:
        def arguments(failure: int) -> list[str]:
            own = [str(self.folder), str(index), str(os.getpid()), str(failure), purpose]
            return [sys.executable, "-I", "-S", str(_ENTER), *own, *words]

        return spawn(arguments, size)

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
            f"port {asked} is not the task's own; " + (f"it has {listed}" if own else "it was given none (--ports)"),
            code="foreign-port",
        )

    def _path(self, path: str) -> str:
        """Relative to the task's folder, in whose terms a path is meant."""
        if not path.startswith("/"):
            return path
        try:
            return str(Path(path).relative_to(self.spec.work_folder))
        except ValueError:
            raise InvalidInput(
                f"{path!r} is not in the task's own folder {self.spec.work_folder}", code="invalid-path"
            ) from None


class FilesMoved(DataOnly):
    """Tar that comes out or goes in; what the process at the other end complains about is the reason of the failure."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._complaint = b""

    async def read(self) -> tuple[bytes, bool] | None:
        while (piece := await self._command.read()) is not None:
            if not piece[1]:
                return piece
            self._complaint += piece[0]
        if await self._command.exit_code():
            reason = self._complaint.decode("utf-8", "replace") or "the files cannot be read or written"
            raise InvalidInput(reason, code="files-refused")
        return None

    async def write(self, data: bytes) -> None:
        await self._command.write(data)

    async def close(self) -> None:
        await self._command.close()
