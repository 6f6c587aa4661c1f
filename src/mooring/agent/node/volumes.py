"""Volumes on this node: their folders, host folders that tasks may mount, and removal of volumes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import structlog

from mooring.agent.connection.stream import Connection
from mooring.agent.files.safe_files import Folder, UnsafePath
from mooring.model.errors import InvalidInput, MooringError, NotAllowed, Unavailable
from mooring.wire.agents.agent_protocol import VolumesGone
from mooring.wire.agents.desired_tasks import RemovedVolume, VolumeSpec

_log = structlog.get_logger(__name__)
_AGAIN_SECONDS = 30.0
"""Delay before a failed deletion is retried."""


@dataclass(frozen=True, slots=True)
class VolumeFolders:
    """Folders of volumes. Paths consist of ids, never names; the parent folders are private to the agent."""

    root: Path
    allowed: tuple[Path, ...] = ()
    """Host folders that tasks may mount, including their contents."""
    forbidden: tuple[Path, ...] = ()
    """Paths that no task may mount in addition to the agent's folder, such as the engine's socket."""

    def open(self, project_id: UUID, volume: VolumeSpec) -> Folder:
        """Open the folder of a persistent volume, created if missing; MooringError if the node has none."""
        if volume.kind == "host":
            return self._of_node(volume.path)
        if volume.volume_id is None:
            raise InvalidInput(f"the server sent no path for volume {volume.name!r}", code="volume-missing")
        with self._of_project(project_id, volume.path if volume.kind == "shared" else None) as above:
            # Writable for any user of any image; the parents keep everyone else out.
            return above.make_shared(str(volume.volume_id))

    def remove(self, removed: RemovedVolume) -> None:
        with self._of_project(removed.project_id, removed.path) as above:
            try:
                above.remove(str(removed.volume_id))
            except OSError as error:
                raise Unavailable(f"{above.path / str(removed.volume_id)} could not be deleted: {error}") from None

    def _of_project(self, project_id: UUID, shared: str | None) -> Folder:
        """Open the folder of a project's volumes, which must be private to the agent; otherwise NotAllowed."""
        try:
            with (
                Folder.open(self.root.resolve()) if shared is None else self._of_node(shared) as base,
                base.make("volumes") as volumes,
            ):
                return volumes.make(str(project_id))
        except UnsafePath as problem:
            raise NotAllowed(
                f"the volumes of the project cannot be stored on this node: {problem.message}", code="volume-refused"
            ) from None

    def _of_node(self, path: str | None) -> Folder:
        """Open a host folder. With all links resolved it must be inside an allowed folder."""
        try:
            folder = Path(path or "/").resolve()
        except (OSError, RuntimeError):  # circular links, or links changed while they were followed
            raise InvalidInput(f"{path} is not a folder of this node", code="volume-missing") from None
        if not any(folder.is_relative_to(allowed.resolve()) for allowed in self.allowed):
            raise NotAllowed(
                f"this node exposes no folder that contains {path}; its owner exposes folders with"
                " `mooring agent --host-path`",
                code="host-path-refused",
            )
        for own in (each.resolve() for each in (self.root, *self.forbidden)):
            if own.is_relative_to(folder) or folder.is_relative_to(own):
                raise NotAllowed(f"{path} cannot be mounted: it belongs to the agent", code="volume-refused")
        try:
            return Folder.open(folder)
        except (UnsafePath, FileNotFoundError):
            raise InvalidInput(f"{path} is not a folder of this node", code="volume-missing") from None


class VolumeRemovals:
    """Deletes volumes as ordered, in the background since it may take long, and reports those that are gone."""

    def __init__(self, volumes: VolumeFolders) -> None:
        self._volumes = volumes
        self._ordered: tuple[RemovedVolume, ...] = ()
        self._changed = asyncio.Event()

    def order(self, removed: Iterable[RemovedVolume]) -> None:
        """Set the volumes to remove, replacing earlier orders."""
        self._ordered = tuple(removed)
        self._changed.set()

    async def run(self, connection: Connection) -> None:
        """Delete volumes and report on one connection. Orders of an earlier connection must be cleared before."""
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
