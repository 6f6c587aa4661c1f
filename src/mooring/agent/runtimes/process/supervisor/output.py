"""A log of bounded size, rotated over a few files, and the times at which its bytes arrived.

The times of a file are in a second one, `<file>.times`: entries of 16 bytes, each an offset and a time in nanoseconds,
after a first entry with the inode of the log file. The log itself holds nothing but the output.
"""

# ruff: noqa: PTH105, PTH108, PTH110
from __future__ import annotations

import errno
import os
import stat
import time

TIMES = ".times"
ENTRY_BYTES = 16
_INTERVAL_SECONDS = 0.1
_COARSER_AFTER = 16384
"""The interval between entries doubles after that many entries of a file, which bounds their number."""


class RotatedFile:
    """Rotated log: `path` is the newest file, then `path.1`, …; each at most `limit` bytes, `count` files in all."""

    def __init__(self, path: str, limit: int, count: int) -> None:
        self.path = path
        self.limit = limit
        self.count = count
        self.descriptor = self._open()
        self.size = os.fstat(self.descriptor).st_size
        self.times: int | None = None
        self._noted_at, self._entries, self._interval = float("-inf"), 0, _INTERVAL_SECONDS
        self._open_times()

    def write(self, data: bytes, at: float | None = None) -> None:
        """Append data that arrived at this time, or now. On a full disk it is lost, but the task continues."""
        while data:
            part = self._part(data)
            data = data[len(part) :]
            try:
                if part:
                    self._note_time(time.time() if at is None else at)
                    self.size += os.write(self.descriptor, part)
                if data:
                    self._rotate()
            except OSError:
                return

    def close(self) -> None:
        os.close(self.descriptor)
        self._close_times()

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
            if os.path.exists(older + TIMES):
                os.replace(older + TIMES, f"{self.path}.{number + 1}{TIMES}")
        if self.count == 1:
            os.unlink(self.path)
        self._close_times()
        fresh = self._open()
        os.close(self.descriptor)
        self.descriptor = fresh
        self.size = 0
        self._open_times()

    def _note_time(self, at: float) -> None:
        """Note when the next byte arrived, unless the last note is recent. A note that cannot be written is lost."""
        if self.times is None or 0 <= at - self._noted_at < self._interval:
            return
        try:
            os.write(self.times, entry(self.size, int(at * 1e9)))
        except OSError:
            self._close_times()
            return
        self._noted_at = at
        self._entries += 1
        self._interval = _INTERVAL_SECONDS * 2 ** (self._entries // _COARSER_AFTER)

    def _open_times(self) -> None:
        """Continue the times of the open file, or start over if they belong to another file."""
        self._noted_at, self._entries, self._interval = float("-inf"), 0, _INTERVAL_SECONDS
        try:
            self.times = self._open(TIMES, os.O_RDWR)
            inode, size = os.fstat(self.descriptor).st_ino, os.fstat(self.times).st_size
            if os.pread(self.times, ENTRY_BYTES, 0) == entry(inode, 0):
                self._entries = size // ENTRY_BYTES - 1
                os.ftruncate(self.times, (self._entries + 1) * ENTRY_BYTES)
                self._interval = _INTERVAL_SECONDS * 2 ** (self._entries // _COARSER_AFTER)
            else:
                os.ftruncate(self.times, 0)
                os.write(self.times, entry(inode, 0))
        except OSError:
            self._close_times()

    def _close_times(self) -> None:
        if self.times is not None:
            os.close(self.times)
            self.times = None

    def _open(self, suffix: str = "", access: int = os.O_WRONLY) -> int:
        path = self.path + suffix
        flags = access | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o600)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid():
            return descriptor
        # A hard link by another user would redirect the output into a file of their choice.
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "not a file of the agent", path)


def entry(offset: int, nanoseconds: int) -> bytes:
    return offset.to_bytes(8, "little") + nanoseconds.to_bytes(8, "little")
