"""Paths from tenants: absolute, without `..`, and without separators of container engines."""

from __future__ import annotations

from pathlib import PurePosixPath

from mooring.model.errors import InvalidInput
from mooring.model.names import shown


def check_path(path: str, *, what: str) -> str:
    """Return the path without a trailing slash; refuse `.`, `..`, `//`, control characters, `:`, `,` and `"`."""
    parts = path.rstrip("/").split("/")
    if parts[0] or any(part in ("", ".", "..") for part in parts[1:]):
        raise InvalidInput(
            f"{what} {shown(path[:60])!r} must begin with / and have no '.', '..' or '//' in it", code="invalid-path"
        )
    if not path.isprintable() or any(sign in path for sign in ':,"'):
        # Engines read some of them as the end of a path.
        raise InvalidInput(
            f"{what} {shown(path[:60])!r} has ':', ',', '\"' or a control character in it", code="invalid-path"
        )
    return "/".join(parts) or "/"


def is_within(path: str, folder: str) -> bool:
    """Return whether the path is the folder or inside it; both as `check_path` returns them."""
    return PurePosixPath(path).is_relative_to(folder)
