"""A log file of bounded size: what is written last is kept, in a few files that follow each other."""

# ruff: noqa: PTH105, PTH108, PTH110
from __future__ import annotations

import os


class RotatedFile:
    """`path` is the newest, `path.1` the one before it, and so on; each at most `limit` bytes, `count` files in all."""

    def __init__(self, path: str, limit: int, count: int) -> None:
        self.path = path
        self.limit = limit
        self.count = count
        self.descriptor = self._open()
        self.size = os.fstat(self.descriptor).st_size

    def write(self, data: bytes) -> None:
        """Append; on a full disk the output is lost rather than the task."""
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
        """As much of the data as the present file still takes, cut after a line where there is one."""
        room = self.limit - self.size
        if len(data) <= room:
            return data
        cut = data.rfind(b"\n", 0, max(room, 0)) + 1
        if cut == 0 and self.size == 0:
            cut = max(room, 1)
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
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
