"""Paths of a container task on the node: volumes, secrets and records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from mooring.agent import folders
from mooring.agent.files.pinned_folders import PinnedFolders
from mooring.agent.files.safe_files import Folder
from mooring.agent.files.unpacking import Ownership
from mooring.agent.node.volumes import VolumeFolders
from mooring.agent.runtimes.container.memory_folder import MemoryFolder
from mooring.agent.runtimes.contract import Unpack
from mooring.agent.runtimes.scripts import SCRIPT_NAME
from mooring.model.errors import MooringError
from mooring.wire.agents.desired_tasks import ContainerSpec, DesiredTask, Secret, VolumeSpec


@dataclass(frozen=True, slots=True)
class TaskPaths:
    """Paths of container tasks. Everything below `root` is private to the agent; the engine mounts parts of it."""

    root: Path
    memory: MemoryFolder
    volumes: VolumeFolders
    pinned: PinnedFolders

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
        """Return the folders of the task's volumes by name; scratch volumes are created."""
        return {volume.name: self._volume(task, volume) for volume in task.volumes}

    def _volume(self, task: DesiredTask, volume: VolumeSpec) -> Path:
        if volume.kind != "scratch":
            with self.volumes.open(task.owner.project_id, volume) as opened:
                return opened.path if volume.kind == "named" else self.pinned.pin(task.task_id, volume.name, opened)
        with (
            Folder.open(self.tasks) as tasks,
            tasks.make(str(task.task_id)) as own,
            own.make("scratch") as above,
            # Writable for any user of any image; the parents keep everyone else out.
            above.make_shared(volume.name) as folder,
        ):
            return folder.path

    def workspace(self, task_id: UUID) -> Path:
        """Return the folder with the task's uploaded files, which outlives its containers."""
        return self.task(task_id) / "workspace"

    def place_files(self, task: DesiredTask, unpack: Unpack) -> None:
        """Unpack files into the task's workspace, replacing those of an interrupted start."""
        with Folder.open(self.tasks) as tasks, tasks.make(str(task.task_id)) as own:
            own.remove("workspace")
            with own.make("workspace") as folder:
                # Writable for any user of any image; the parents keep everyone else out.
                unpack(folder, Ownership(shared=True))
            with own.make_shared("workspace"):
                pass

    def write_secrets(self, task: DesiredTask) -> None:
        """Write the secrets of each container to a tmpfs, replacing those of an interrupted start."""
        values = {secret.name: secret for secret in task.secrets}
        using = [each for each in (*task.init_containers, *task.containers) if each.secrets]
        if not using:
            return
        with self.memory.open() as base:
            base.remove(task.task_id.hex)
            with base.make(task.task_id.hex) as own:
                for container in using:
                    # Readable for any user of the image, whatever the agent's umask; the parents keep others out.
                    with own.make(container.name, 0o755) as folder:
                        _write(folder, container, values)

    def secrets(self, task_id: UUID, container: str) -> Path:
        with self.memory.open() as base:
            return base.path / task_id.hex / container

    def write_scripts(self, task: DesiredTask) -> None:
        """Write the script of each container that has one, replacing those of an interrupted start."""
        using = [each for each in (*task.init_containers, *task.containers) if each.script is not None]
        if not using:
            return
        with Folder.open(self.tasks) as tasks, tasks.make(str(task.task_id)) as own:
            own.remove("scripts")
            with own.make("scripts") as scripts:
                for container in using:
                    # Readable for any user of the image; the parents keep everyone else out.
                    with scripts.make(container.name, 0o755) as folder:
                        folder.write(SCRIPT_NAME, (container.script or "").encode(), 0o555)

    def script(self, task_id: UUID, container: str) -> Path:
        """Return the folder with the container's script."""
        return self.task(task_id) / "scripts" / container

    def remove_private(self, task_id: UUID) -> None:
        """Remove the task's secrets, scripts, scratch volumes and volume mounts."""
        self.memory.remove(task_id.hex)
        self.pinned.release(task_id)
        for name in ("scratch", "scripts"):
            folders.remove(self.task(task_id) / name)


def make(root: Path, node_id: UUID, volumes: VolumeFolders) -> TaskPaths:
    folders.create_root(root)
    with Folder.open(root.resolve()) as own, own.make("containers"):
        return TaskPaths(own.path, MemoryFolder(node_id), volumes, PinnedFolders(node_id))


def _write(folder: Folder, container: ContainerSpec, values: dict[str, Secret]) -> None:
    for file, name in container.secrets.items():
        if name not in values:
            raise MooringError(f"the secret {name!r} was not sent with the task", code="secret-missing")
        folder.write(file, values[name].value, 0o444)
