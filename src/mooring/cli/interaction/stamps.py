"""Output in which each line begins with its time: the times and the output apart."""

from __future__ import annotations


class StampReader:
    """Separates the times of lines from the output itself, which arrives in pieces of any size."""

    def __init__(self) -> None:
        self._rest = b""
        self._begins = True

    def feed(self, piece: bytes) -> list[tuple[bytes, bytes]]:
        """Return the lines of a piece, each after its time and a space. A part that continues a line has no time."""
        found: list[tuple[bytes, bytes]] = []
        self._rest += piece
        while self._rest:
            stamp = b""
            if self._begins:
                space = self._rest.find(b" ") + 1
                if space == 0 or space == len(self._rest):
                    break
                stamp, self._rest = self._rest[:space], self._rest[space:]
            end = self._rest.find(b"\n") + 1 or len(self._rest)
            data, self._rest = self._rest[:end], self._rest[end:]
            self._begins = data.endswith(b"\n")
            found.append((stamp, data))
        return found
