"""Folders of the node for a container engine to mount: pinned by a bind mount, so that no link can take their place.

An engine is given a path and resolves it as root, at every start of a container. In a folder that tasks can write, such
as a host folder that another task mounts, the path may lead elsewhere by then: to `/`, through a link. So the agent
opens the folder without following links, and mounts that very folder, by its descriptor, at a path that only root can
change. The engine gets that path.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from mooring.agent.files.safe_files import Folder
from mooring.model.errors import NotAllowed

_PINS = Path("/run")
"""Not in the agent's folder, which an operator may delete together with everything mounted in it."""
_NAME = "mooring-mounts"
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 1 << 18
_DETACH, _NOFOLLOW = 2, 8

_libc = ctypes.CDLL(None, use_errno=True)


class PinnedFolders:
    """The pins of a node. An agent without root needs none: the engine and all tasks run as its own user."""

    def __init__(self, node_id: UUID) -> None:
        self._node_id = node_id
        self._pins = os.geteuid() == 0

    def pin(self, task_id: UUID, volume: str, folder: Folder) -> Path:
        """Return a path that refers to this folder until it is released; the first call for a volume counts."""
        if not self._pins:
            return folder.path
        with self._own() as own, own.make(task_id.hex) as task:
            # Inaccessible, so that an engine that does not see the mount does not use it as the volume.
            target = task.path / volume
            if str(target) not in _mounted():
                with task.make(volume, 0o000):
                    _mount(folder, target)
            return target

    def release(self, task_id: UUID) -> None:
        """Remove the pins of a task, never recursively: the mounted contents do not belong to the agent."""
        if not self._pins or not (self._path / task_id.hex).exists():
            return
        with self._own() as own:
            with own.enter(task_id.hex) as task:
                for name in os.listdir(task.descriptor):  # noqa: PTH208
                    target = task.path / name
                    while str(target) in _mounted() and _libc.umount2(os.fsencode(target), _DETACH | _NOFOLLOW) == 0:
                        pass
                    with contextlib.suppress(OSError):
                        os.rmdir(name, dir_fd=task.descriptor)
            for folder in (own.path / task_id.hex, own.path):
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def clean_up(self, known: Callable[[UUID], bool]) -> None:
        """Remove the pins of unknown tasks."""
        if self._pins and self._path.exists():
            for folder in list(self._path.iterdir()):
                with contextlib.suppress(ValueError):
                    if not known(task_id := UUID(folder.name)):
                        self.release(task_id)

    @property
    def _path(self) -> Path:
        return _PINS / _NAME / str(self._node_id)

    def _own(self) -> Folder:
        with Folder.open(_PINS) as run, run.make(_NAME) as pins:
            return pins.make(str(self._node_id))


def _mount(folder: Folder, target: Path) -> None:
    """Bind-mount an open folder with the mounts below it, without propagation of later changes."""
    source = f"/proc/self/fd/{folder.descriptor}".encode()
    made = _libc.mount(source, os.fsencode(target), None, ctypes.c_ulong(_BIND | _RECURSIVE), None) == 0
    # Private, since removing the pin would otherwise unmount the mounts below the folder itself.
    if not made or _libc.mount(None, os.fsencode(target), None, ctypes.c_ulong(_PRIVATE | _RECURSIVE), None) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise NotAllowed(
            f"{folder.path} cannot be mounted for the engine: {reason}; for folders of its node a root agent needs "
            "CAP_SYS_ADMIN",
            code="volume-refused",
        )


def _mounted() -> frozenset[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return frozenset(line.split()[4].replace("\\040", " ") for line in lines)
