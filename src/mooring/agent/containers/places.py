"""Where on the node the volumes, the secrets and the records of a task of containers are."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from mooring.agent import folders
from mooring.agent.volumes import VolumeFolders
from mooring.model.errors import MooringError
from mooring.wire.agent import ContainerSpec, DesiredTask, Secret, VolumeSpec


@dataclass(frozen=True, slots=True)
class Places:
    """All below `root` is closed to everybody but the agent; the engine mounts what a container is to see."""

    root: Path
    node_id: UUID
    volumes: VolumeFolders

    @property
    def tasks(self) -> Path:
        return self.root / "containers"

    def task(self, task_id: UUID) -> Path:
        return self.tasks / str(task_id)

    def record(self, task_id: UUID) -> Path:
        return self.task(task_id) / "task.json"

    def output(self, task_id: UUID, container: str) -> Path:
        return self.task(task_id) / f"output-{container}.log"

    def known(self) -> Iterator[UUID]:
        for folder in self.tasks.iterdir():
            try:
                yield UUID(folder.name)
            except ValueError:
                continue

    def make_volumes(self, task: DesiredTask) -> dict[str, Path]:
        """The folders of the task's volumes by their names; those that are the agent's to make are made."""
        return {volume.name: self._volume(task, volume) for volume in task.volumes}

    def _volume(self, task: DesiredTask, volume: VolumeSpec) -> Path:
        if volume.kind != "scratch":
            return self.volumes.make(task.owner.project_id, volume)
        folder = self.task(task.task_id) / "scratch" / volume.name
        _closed(self.task(task.task_id))
        folder.mkdir(parents=True, exist_ok=True)
        # Any user of any image may write there; who may not see it cannot come here.
        folder.chmod(0o777)
        return folder

    def write_secrets(self, task: DesiredTask) -> None:
        """The secrets of each container as files in memory."""
        values = {secret.name: secret for secret in task.secrets}
        for container in (*task.init_containers, *task.containers):
            if container.secrets:
                self._write(task.task_id, container, values)

    def _write(self, task_id: UUID, container: ContainerSpec, values: dict[str, Secret]) -> None:
        folder = self.secrets(task_id, container.name)
        _closed(folder.parent.parent)
        folder.mkdir(parents=True, exist_ok=True)
        # Any user of the image may read there, whatever the agent's umask; who may not see it cannot come here.
        folder.chmod(0o755)
        for file, name in container.secrets.items():
            if name not in values:
                raise MooringError(f"the secret {name!r} did not come with the task", code="secret-missing")
            (folder / file).write_bytes(values[name].value)
            (folder / file).chmod(0o444)

    def secrets(self, task_id: UUID, container: str) -> Path:
        return _memory_folder(self.node_id) / task_id.hex / container

    def remove_private(self, task_id: UUID) -> None:
        """What only its containers needed: secrets and scratch volumes."""
        for memory in _memory_folders(self.node_id):
            shutil.rmtree(memory / task_id.hex, ignore_errors=True)
        folders.remove(self.task(task_id) / "scratch")


def make(root: Path, node_id: UUID, volumes: VolumeFolders) -> Places:
    places = Places(root, node_id, volumes)
    _closed(places.tasks)
    return places


def _closed(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _memory_folder(node_id: UUID) -> Path:
    found = next(_memory_folders(node_id), None)
    if found is None:
        raise MooringError("this node has no folder in memory for secrets", code="secrets-refused")
    return found


def _memory_folders(node_id: UUID) -> Iterator[Path]:
    """Folders of this agent on file systems that live in memory."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    in_memory = {line.split()[4] for line in mounts if line.partition(" - ")[2].startswith("tmpfs ")}
    candidates = ("/run", os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm")
    for candidate in candidates:
        if candidate in in_memory and os.access(candidate, os.W_OK):
            yield Path(candidate) / f"mooring-{node_id}"
