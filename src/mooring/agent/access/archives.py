"""Files of an ended task as tar, read by the agent: nothing can change them any more."""

from __future__ import annotations

import asyncio
import os
import posixpath
import threading
from pathlib import Path

from mooring.agent.access.commands import DataOnly
from mooring.agent.runtimes.process.supervisor import files
from mooring.model.errors import InvalidInput

_PIECE_BYTES = 64 * 1024


def within(root: str, path: str) -> str:
    """Return a path relative to `root`; InvalidInput if it is elsewhere."""
    relative = posixpath.relpath(posixpath.normpath(path), root)
    if relative.split("/")[0] == "..":
        raise InvalidInput(f"after the end of a task only the files remain in {root} are kept", code="files-refused")
    return relative


class FolderArchive(DataOnly):
    """A thread writes the archive into a pipe; links that lead out of the folder are not followed."""

    def __init__(self, root: Path, path: str) -> None:
        self._root = root
        self._path = path
        self._problem = ""
        self._reading, self._writing = os.pipe()
        threading.Thread(target=self._pack, daemon=True).start()

    async def read(self) -> tuple[bytes, bool] | None:
        data = await asyncio.to_thread(os.read, self._reading, _PIECE_BYTES)
        if data:
            return data, False
        if self._problem:
            raise InvalidInput(self._problem, code="files-refused")
        return None

    async def write(self, data: bytes) -> None:
        return None

    async def close(self) -> None:
        if self._reading >= 0:
            os.close(self._reading)
            self._reading = -1

    def _pack(self) -> None:
        try:
            with os.fdopen(self._writing, "wb") as out:
                try:
                    files.fetch(str(self._root), self._path, out)
                except files.Refused as refused:
                    self._problem = str(refused)
        except OSError:  # the reader has closed the pipe
            return
