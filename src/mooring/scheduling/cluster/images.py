"""The container images on the nodes."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.model.workloads.images import comparable


class ImageIndex:
    """The rows that have each image, with its size in bytes. Names are compared in their full form."""

    def __init__(self) -> None:
        self._sizes: dict[str, dict[int, int]] = {}
        self._on_row: dict[int, tuple[str, ...]] = {}

    def __len__(self) -> int:
        """Return the number of images that some node has, or once had."""
        return len(self._sizes)

    def was_seen(self, name: str) -> bool:
        return comparable(name) in self._sizes

    def sizes(self, name: str) -> Mapping[int, int]:
        return self._sizes.get(comparable(name), {})

    def write(self, row: int, images: Mapping[str, int]) -> None:
        """Replace the images of a row."""
        self.clear(row)
        for name, size in images.items():
            self._sizes.setdefault(comparable(name), {})[row] = size
        self._on_row[row] = tuple(images)

    def clear(self, row: int) -> None:
        for name in self._on_row.pop(row, ()):
            self._sizes[comparable(name)].pop(row, None)
