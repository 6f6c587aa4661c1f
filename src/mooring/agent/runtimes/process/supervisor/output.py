"""A log of bounded size, rotated over a few files."""

# ruff: noqa: PTH105, PTH108, PTH110
from __future__ import annotations

import errno
import os
import stat


class RotatedFile:
    """Rotated log: `path` is the newest file, then `path.1`, …; each at most `limit` bytes, `count` files in all."""

    def __init__(self, path: str, limit: int, count: int) -> None:
        self.path = path
        self.limit = limit
        self.count = count
        self.descriptor = self._open()
        self.size = os.fstat(self.descriptor).st_size

    def write(self, data: bytes) -> None:
        """Append data. On a full disk the output is lost, but the task continues."""
        while data:
            part = self._part(data)
            data = data[len(part) :]
            try:
                if part:
                    self.size += os.write(self.descriptor, part)
                if data:
                    self._rotate()
            except OSError:
                return

    def close(self) -> None:
        os.close(self.descriptor)

    def _part(self, data: bytes) -> bytes:
        """Return the part of the data that fits into the current file, cut after a line if possible."""
        free = self.limit - self.size
        if len(data) <= free:
            return data
        cut = data.rfind(b"\n", 0, max(free, 0)) + 1
        if cut == 0 and self.size == 0:
            cut = max(free, 1)
        return data[:cut]

    def _rotate(self) -> None:
        for number in range(self.count - 2, -1, -1):
            older = self.path if number == 0 else f"{self.path}.{number}"
            if os.path.exists(older):
                os.replace(older, f"{self.path}.{number + 1}")
        if self.count == 1:
            os.unlink(self.path)
        fresh = self._open()
        os.close(self.descriptor)
        self.descriptor = fresh
        self.size = 0

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self.path, flags, 0o600)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid():
            return descriptor
        # A hard link by another user would redirect the output into a file of their choice.
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "not a file of the agent's own", self.path)
