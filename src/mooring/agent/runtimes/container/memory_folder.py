"""The agent's folder on a tmpfs, for the secrets of containers."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import structlog

from mooring.agent.files.safe_files import Folder, UnsafePath
from mooring.model.errors import MooringError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryFolder:
    """A folder that only the agent's user can enter, on the first writable tmpfs.

    All users can create names in /dev/shm, and the node's id is not secret: a folder that is not the agent's own, or
    that others can enter, is not used, and another name is chosen.
    """

    node_id: UUID

    def open(self) -> Folder:
        """Open the folder, created if missing; `secrets-refused` if the node has no tmpfs for it."""
        refused: list[str] = []
        for parent in _in_memory():
            with Folder.open(parent) as shared:
                for folder in self._own(shared):
                    return folder
                try:
                    return self._private(shared, self._name)
                except (UnsafePath, OSError) as problem:
                    refused.append(str(problem))
                    log.warning("the name of the folder for secrets is in use", reason=str(problem))
                try:
                    return self._private(shared, f"{self._name}-{secrets.token_hex(8)}")
                except OSError as problem:
                    refused.append(str(problem))
        reason = "; ".join(refused) or "none of /run, XDG_RUNTIME_DIR and /dev/shm is a tmpfs that the agent may write"
        raise MooringError(f"this node has no in-memory folder for secrets: {reason}", code="secrets-refused")

    def remove(self, name: str) -> None:
        """Remove an entry of the folder from every tmpfs that may have it."""
        for parent in _in_memory():
            with Folder.open(parent) as shared:
                for folder in self._own(shared):
                    with folder:
                        try:
                            folder.remove(name)
                        except (UnsafePath, OSError) as problem:
                            log.warning("secrets not removed", folder=str(folder.path), reason=str(problem))

    @property
    def _name(self) -> str:
        return f"mooring-{self.node_id}"

    def _own(self, shared: Folder) -> Iterator[Folder]:
        """Return the existing folders of the agent."""
        for name in sorted(os.listdir(shared.descriptor)):  # noqa: PTH208
            if name == self._name or name.startswith(f"{self._name}-"):
                try:
                    folder = self._private(shared, name)
                except (UnsafePath, OSError):
                    continue
                yield folder

    def _private(self, shared: Folder, name: str) -> Folder:
        return shared.make(name, 0o700)


def _in_memory() -> Iterator[Path]:
    """Return the writable tmpfs file systems."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    in_memory = {line.split()[4] for line in mounts if line.partition(" - ")[2].startswith("tmpfs ")}
    for candidate in ("/run", os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm"):
        if candidate in in_memory and os.access(candidate, os.W_OK):
            yield Path(candidate)
