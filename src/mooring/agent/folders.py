"""Folders of an agent: its credential, a supervisor folder per task, and a work folder per task."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import structlog

from mooring.agent.files.safe_files import Folder, UnsafePath, make_trusted
from mooring.agent.runtimes.process.identity import Identity

log = structlog.get_logger(__name__)

_REMOVALS = 3
_STAGED = "staged-"


@dataclass(frozen=True, slots=True)
class Folders:
    """The agent's folders. `tasks/` is private. A work folder belongs to its task's user, who cannot list others."""

    root: Path
    work_root: Path

    @property
    def tasks(self) -> Path:
        return self.root / "tasks"

    @property
    def notify(self) -> Path:
        """The named pipe into which supervisors write the id of a changed task."""
        return self.root / "notify"

    def task(self, task_id: UUID) -> Path:
        return self.tasks / str(task_id)

    def log(self, task_id: UUID, index: int) -> Path:
        return self.task(task_id) / f"output-{index}.log"

    def acknowledged(self, task_id: UUID) -> Path:
        return self.task(task_id) / "acknowledged"

    def known(self) -> Iterator[UUID]:
        for folder in self.tasks.iterdir():
            try:
                yield UUID(folder.name)
            except ValueError:
                continue

    def create_work(self, task_id: UUID, identity: Identity, files: Mapping[str, bytes] | None = None) -> Path:
        """Create the task's work folder with a folder for temporary files, replacing that of an interrupted start.

        The files that were staged for the task are in it. `files`: content by name, which the task's user can read.
        """
        name = str(task_id)
        with Folder.open(self.work_root) as root:
            # Another task of the same user may have written to the old one.
            root.remove(name)
            with contextlib.suppress(FileNotFoundError):
                root.move(_STAGED + name, name)
            # The folder stays private to the agent until the last step, so that nobody can plant a link.
            with root.make(name) as work, work.make("tmp") as temporary:
                for file, content in (files or {}).items():
                    work.write(file, content, 0o555)
                if identity.uid is not None:
                    temporary.give(identity.uid, identity.gid)
                    work.give(identity.uid, identity.gid)
                return work.path

    def stage(self, task_id: UUID) -> Folder:
        """Open a new folder, private to the agent, that becomes the task's work folder at its start."""
        name = _STAGED + str(task_id)
        with Folder.open(self.work_root) as root:
            root.remove(name)
            return root.make(name)

    def staged(self) -> Iterator[UUID]:
        """Return the tasks that have files here but were not started."""
        for folder in self.work_root.glob(f"{_STAGED}*"):
            with contextlib.suppress(ValueError):
                yield UUID(folder.name.removeprefix(_STAGED))

    def remove_staged(self, task_id: UUID) -> None:
        remove(self.work_root / f"{_STAGED}{task_id}")


def prepare(root: Path, node_id: UUID, shared_work_root: Path, *, agent_uid: int) -> Folders:
    """Create the folders. If tenants cannot traverse a root agent's folder, its work folders are elsewhere."""
    create_root(root)
    above, name = root.resolve(), "work"
    if agent_uid == 0 and not reachable(root):
        create_root(shared_work_root)
        above, name = shared_work_root.resolve(), str(node_id)
    with Folder.open(above) as parent, parent.make(name, 0o711) as work:
        work_root = work.path
    with Folder.open(root.resolve()) as folder, folder.make("tasks"):
        return Folders(folder.path, work_root)


def create_root(root: Path) -> None:
    """Create a folder that all users can traverse. A root agent raises UnsafePath if another user could replace it.

    An existing one keeps its mode.
    """
    make_trusted(root, 0o711)


def reachable(folder: Path) -> bool:
    """Return whether all users can traverse the folder and its parents."""
    folder = folder.resolve()
    return all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.parents))


def size_bytes(folder: Path) -> int:
    """Return the disk space of a folder whose parents are the agent's; links are not followed."""
    try:
        with Folder.open(folder) as found:
            return found.size_bytes()
    except (UnsafePath, OSError):
        return 0


def remove(folder: Path) -> None:
    """Remove a folder whose parents are the agent's. After a few failed attempts the rest is logged and left."""
    problem: Exception | None = None
    for _ in range(_REMOVALS):
        try:
            with Folder.open(folder.parent) as parent:
                parent.remove(folder.name)
        except FileNotFoundError:
            return
        except (UnsafePath, OSError) as error:  # another task of the same user writes there concurrently
            problem = error
        else:
            return
    log.warning("folder not removed", folder=str(folder), reason=str(problem))
