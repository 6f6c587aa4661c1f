"""Where an agent keeps things: its credential, a folder per task for the supervisor, a work folder per task."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from mooring.agent.identity import Identity


@dataclass(frozen=True, slots=True)
class Folders:
    """`tasks/` is for the agent alone; work folders belong to the tasks' users, who can reach theirs and list none."""

    root: Path
    work_root: Path

    @property
    def tasks(self) -> Path:
        return self.root / "tasks"

    @property
    def notify(self) -> Path:
        """A pipe with a name, into which supervisors write the id of a task that changed."""
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

    def create_work(self, task_id: UUID, identity: Identity) -> Path:
        """The task's own folder, with a place for temporary files in it."""
        folder = self.work_root / str(task_id)
        # Until the last step the folder is the agent's, so that nobody can put a link in the way.
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "tmp").mkdir(mode=0o700, exist_ok=True)
        if identity.uid is not None:
            os.chown(folder / "tmp", identity.uid, identity.gid, follow_symlinks=False)
            os.chown(folder, identity.uid, identity.gid, follow_symlinks=False)
        return folder


def prepare(root: Path, node_id: UUID, shared_work_root: Path, *, agent_uid: int) -> Folders:
    """Make the folders. A root agent whose own folder tenants cannot walk through keeps work folders elsewhere."""
    create_root(root)
    work_root = root / "work"
    if agent_uid == 0 and not reachable(root):
        _make_passable(shared_work_root)
        work_root = shared_work_root / str(node_id)
    work_root.mkdir(mode=0o711, exist_ok=True)
    work_root.chmod(0o711)
    (root / "tasks").mkdir(mode=0o700, exist_ok=True)
    return Folders(root, work_root)


def create_root(root: Path) -> None:
    if not root.exists():  # one that is there keeps the rights that its owner gave it
        _make_passable(root)


def _make_passable(folder: Path) -> None:
    """A folder that everybody may walk through, whatever the process takes away from new files."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)


def reachable(folder: Path) -> bool:
    """Whether everybody may walk through the folder and all above it."""
    folder = folder.resolve()
    return all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.parents))


def size_bytes(folder: Path) -> int:
    """What a folder takes on the disk, links not followed."""
    total = 0
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
        except OSError:  # gone meanwhile, or a path too long to be named
            continue
    return total


def remove(folder: Path) -> None:
    # `rm` rather than shutil: a tenant may have nested folders deeper than Python's recursion goes.
    subprocess.run(["rm", "-rf", "--", str(folder)], stdin=subprocess.DEVNULL, capture_output=True, check=False)
