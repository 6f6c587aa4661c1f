"""Private images, pulled with a login: on a node only projects that pulled an image themselves may use it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from uuid import UUID

import msgspec

from mooring.agent.runtimes import records
from mooring.agent.runtimes.process.supervisor import record as files
from mooring.model.workloads.images import ImageName


class _PullRecords(msgspec.Struct):
    projects: dict[str, list[str]] = {}
    """By repository and image: the projects that have pulled it."""


class PrivateImages:
    """Access to private images. Stored on disk, so that the next agent enforces it, too. Contains no login."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pulled = records.read(path, _PullRecords) or _PullRecords()

    def hides(self, name: ImageName, image_id: str, project: UUID) -> bool:
        """Return whether the project still has to prove to the registry that it may use the image."""
        return str(project) not in self._pulled.projects.get(_key(name, image_id), [str(project)])

    def knows(self, name: ImageName, image_id: str) -> bool:
        return _key(name, image_id) in self._pulled.projects

    def fetched(self, name: ImageName, image_id: str, project: UUID, *, with_login: bool) -> None:
        """Record that the registry gave the image to the project; an image without a login is public."""
        key = _key(name, image_id)
        before = self._pulled.projects.get(key)
        if not with_login:
            self._pulled.projects.pop(key, None)
        else:
            self._pulled.projects[key] = sorted({*(before or ()), str(project)})
        if self._pulled.projects.get(key) != before:
            self._write()

    def retain_only(self, image_ids: Collection[str]) -> None:
        """Forget all images but these, which are on the node."""
        gone = [key for key in self._pulled.projects if key.rpartition(" ")[2] not in image_ids]
        for key in gone:
            del self._pulled.projects[key]
        if gone:
            self._write()

    def _write(self) -> None:
        files.write(str(self._path), msgspec.to_builtins(self._pulled), durable=True)


def _key(name: ImageName, image_id: str) -> str:
    """Return the key of an image in a repository. All tags share it, so that none bypasses the check."""
    return f"{name.registry}/{name.repository} {image_id}"
