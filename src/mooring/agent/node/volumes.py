"""The folders of volumes on this node: where they are, which folders of the node tasks may see, and how volumes go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import structlog

from mooring.agent import folders
from mooring.agent.stream import Connection
from mooring.model.errors import InvalidInput, MooringError, NotAllowed, Unavailable
from mooring.wire.agent import RemovedVolume, VolumesGone, VolumeSpec

_log = structlog.get_logger(__name__)
_AGAIN_SECONDS = 30.0
"""What could not be deleted is tried again after so long."""


@dataclass(frozen=True, slots=True)
class VolumeFolders:
    """Ids make the paths of volumes, never names; the folders above them are closed to everybody but the agent."""

    root: Path
    allowed: tuple[Path, ...] = ()
    """Folders of the node that its owner lets tasks see, with all that is in them."""
    forbidden: tuple[Path, ...] = ()
    """What no task may see beside the agent's own folder, such as the engine's socket."""

    def make(self, project_id: UUID, volume: VolumeSpec) -> Path:
        """The folder of a volume that outlives its task; MooringError where the node has none for it."""
        if volume.kind == "host":
            return self._of_node(volume.path)
        if volume.volume_id is None:
            raise InvalidInput(f"nobody said where volume {volume.name!r} is", code="volume-missing")
        folder = self._of_project(project_id, volume.volume_id, volume.path if volume.kind == "shared" else None)
        folder.parent.parent.mkdir(mode=0o700, exist_ok=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(exist_ok=True)
        # Any user of any image may write there; who may not see it cannot come here.
        folder.chmod(0o777)
        return folder

    def remove(self, removed: RemovedVolume) -> None:
        folder = self._of_project(removed.project_id, removed.volume_id, removed.path)
        folders.remove(folder)
        if folder.exists():
            raise Unavailable(f"{folder} could not be deleted")

    def _of_project(self, project_id: UUID, volume_id: UUID, shared: str | None) -> Path:
        base = self.root.resolve() if shared is None else self._of_node(shared)
        folder = base / "volumes" / str(project_id) / str(volume_id)
        if folder.resolve() != folder:
            raise NotAllowed(f"a link is in the way to volume {volume_id} on this node", code="volume-refused")
        return folder

    def _of_node(self, path: str | None) -> Path:
        """A folder of the node with all links followed: where it really is must be allowed."""
        folder = Path(path or "/").resolve()
        if not any(folder.is_relative_to(allowed.resolve()) for allowed in self.allowed):
            raise NotAllowed(
                f"this node lets no task see {path}; its owner allows folders with `mooring agent --host-path`",
                code="host-path-refused",
            )
        if not folder.is_dir():
            raise InvalidInput(f"{path} is not a folder of this node", code="volume-missing")
        for own in (each.resolve() for each in (self.root, *self.forbidden)):
            if own.is_relative_to(folder) or folder.is_relative_to(own):
                raise NotAllowed(f"{path} is not for tasks: the agent has its own things there", code="volume-refused")
        return folder


class VolumeRemovals:
    """Deletes volumes as ordered, beside everything else since that may take long, and says so when they are gone."""

    def __init__(self, volumes: VolumeFolders) -> None:
        self._volumes = volumes
        self._ordered: tuple[RemovedVolume, ...] = ()
        self._changed = asyncio.Event()

    def order(self, removed: Iterable[RemovedVolume]) -> None:
        """All that are to go, in place of what was ordered before."""
        self._ordered = tuple(removed)
        self._changed.set()

    async def run(self, connection: Connection) -> None:
        """On one connection; what was ordered on another is to be forgotten before, with an order of nothing."""
        while True:
            self._changed.clear()
            gone = await asyncio.to_thread(self._remove, self._ordered)
            if gone:
                with suppress(Unavailable):
                    await connection.send(VolumesGone(volumes=gone))
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_SECONDS if len(gone) < len(self._ordered) else None):
                    await self._changed.wait()

    def _remove(self, ordered: Iterable[RemovedVolume]) -> list[UUID]:
        gone: list[UUID] = []
        for removed in ordered:
            try:
                self._volumes.remove(removed)
            except (MooringError, OSError) as problem:
                _log.warning("volume not deleted", volume=str(removed.volume_id), reason=str(problem))
            else:
                gone.append(removed.volume_id)
        return gone
