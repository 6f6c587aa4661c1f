"""The files of the built console, each with its media type, its tag and, where that is smaller, its gzip form."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "assets"
INDEX = "index.html"
_MEDIA_TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    body: bytes
    compressed: bytes
    media_type: str
    tag: str
    """A hash of the content, for `ETag`."""
    named_by_content: bool
    """The name contains a hash of the content, so the content under this name never changes."""


@cache
def names() -> frozenset[str]:
    """Return the names that can be read, such as `index.html`. Names of requests are compared with them only."""
    return frozenset(path.name for path in FOLDER.glob("*.*") if path.suffix in _MEDIA_TYPES)


@cache
def read(name: str) -> ConsoleFile:
    """Return one of the files named by `names`."""
    path = FOLDER / name
    body = path.read_bytes()
    return ConsoleFile(
        body,
        gzip.compress(body, 6, mtime=0),
        _MEDIA_TYPES[path.suffix],
        f'"{hashlib.sha256(body).hexdigest()[:20]}"',
        path.suffix in {".css", ".js"},
    )
