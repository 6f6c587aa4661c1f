"""Paths as tenants write them: absolute, without steps back, and nothing that an engine would read as two."""

from __future__ import annotations

from pathlib import PurePosixPath

from mooring.model.errors import InvalidInput
from mooring.model.names import shown


def check_path(path: str, *, what: str) -> str:
    """The path without a slash at its end. `.`, `..`, `//`, control characters, `:`, `,` and `"` are refused."""
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
    """Whether the path is the folder or in it; both as `check_path` gives them."""
    return PurePosixPath(path).is_relative_to(folder)
