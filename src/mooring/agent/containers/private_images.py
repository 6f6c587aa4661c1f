"""Images that came with a login: on the node they are there only for the projects that have fetched them themselves."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from uuid import UUID

import msgspec

from mooring.agent import records
from mooring.agent.supervisor import record as files
from mooring.model.images import ImageName


class _Kept(msgspec.Struct):
    projects: dict[str, list[str]] = {}
    """By repository and image: who has fetched it."""


class PrivateImages:
    """Kept on disk, so that the next agent does not give away what this one fetched. No login is in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = records.read(path, _Kept) or _Kept()

    def hides(self, name: ImageName, image_id: str, project: UUID) -> bool:
        """Whether the project has yet to show its registry that it may have the image."""
        return str(project) not in self._kept.projects.get(_key(name, image_id), [str(project)])

    def knows(self, name: ImageName, image_id: str) -> bool:
        return _key(name, image_id) in self._kept.projects

    def fetched(self, name: ImageName, image_id: str, project: UUID, *, with_login: bool) -> None:
        """The registry gave it to the project; what it gives to everybody is no secret."""
        key = _key(name, image_id)
        before = self._kept.projects.get(key)
        if not with_login:
            self._kept.projects.pop(key, None)
        else:
            self._kept.projects[key] = sorted({*(before or ()), str(project)})
        if self._kept.projects.get(key) != before:
            self._write()

    def forget_all_but(self, image_ids: Collection[str]) -> None:
        """These are on the node, and no others."""
        gone = [key for key in self._kept.projects if key.rpartition(" ")[2] not in image_ids]
        for key in gone:
            del self._kept.projects[key]
        if gone:
            self._write()

    def _write(self) -> None:
        files.write(str(self._path), msgspec.to_builtins(self._kept), durable=True)


def _key(name: ImageName, image_id: str) -> str:
    """All names of an image in one repository are one: a tag must not open what another hides."""
    return f"{name.registry}/{name.repository} {image_id}"
