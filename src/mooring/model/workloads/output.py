"""The notice at the end of output that was cut off, and the position from which its reader continues."""

from __future__ import annotations

from dataclasses import dataclass

CUT_OFF = b"\n[mooring] the output is cut off here: "
"""The server ends a stream with this and the reason if the rest of the output cannot be read."""
_REMEMBERED_BYTES = 4096


@dataclass(frozen=True, slots=True)
class OutputPosition:
    """Number of bytes of a task's output read so far, and the last of them."""

    count: int = 0
    last: bytes = b""

    def after(self, piece: bytes) -> OutputPosition:
        return OutputPosition(self.count + len(piece), (self.last + piece)[-_REMEMBERED_BYTES:])

    def found_in(self, output: bytes, *, from_start: bool) -> int | None:
        """Return the position of the first unread byte in the stored output; None if it is no longer stored.

        `from_start`: reading began with the first byte of the output. The oldest part may have been deleted since.
        """
        if from_start and len(output) >= self.count and output[: self.count].endswith(self.last):
            return self.count
        found = output.rfind(self.last)
        return None if found < 0 else found + len(self.last)
