"""Validation errors, field by field. Values are never quoted: one of them may be a password."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from mooring.model.errors import InvalidInput
from mooring.model.names import NAME_PATTERN, shown
from mooring.wire.fields import ENVIRONMENT_PATTERN, FILE_PATTERN, FOLDER_PATTERN, IMAGE_PATTERN, Answer


class ErrorBody(Answer):
    """The body of every error response."""

    code: str
    message: str
    details: dict[str, Any] = {}


MAX_SHOWN_ERRORS = 20
_MAX_SHOWN_NAME = 64
_WORDS = {
    "extra_forbidden": "there is no such field",
    "missing": "this is needed",
    "model_attributes_type": "write fields and their values here",
    "model_type": "write fields and their values here",
    "dict_type": "write names and their values here",
    "list_type": "write a list here",
}
"""Replacements for messages of pydantic that are not written for the author of a request."""
_SHAPES = {
    f"^{NAME_PATTERN}$": "write 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends",
    FOLDER_PATTERN: "write a path that begins with /",
    IMAGE_PATTERN: "write the name of an image, such as nginx:1.27 or ghcr.io/shop/web:1",
    ENVIRONMENT_PATTERN: "write a name of letters, digits and '_' that does not begin with a digit",
    FILE_PATTERN: "write the name of a file, of letters, digits, '_', '.' and '-'",
}
_OTHER_SHAPE = "it contains characters that are not allowed here"


def invalid(errors: Sequence[tuple[str, str]], *, of: int | None = None) -> InvalidInput:
    """Return the error for fields (name and problem); `of` is the total if these are only the first."""
    name, problem = errors[0]
    total = len(errors) if of is None else of
    more = f" (and {total - 1} more)" if total > 1 else ""
    return InvalidInput(
        f"{name}: {problem}{more}",
        details={"errors": [{"field": field, "message": message} for field, message in errors[:MAX_SHOWN_ERRORS]]},
    )


def refused(error: ValidationError, *, most: int = MAX_SHOWN_ERRORS) -> InvalidInput:
    """Return the error for a request that violates its schema, with the first `most` problems."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return invalid([(field_path(one["loc"]) or "request", sentence(one)) for one in found[:most]], of=len(found))


def field_path(location: Sequence[int | str]) -> str:
    """`containers.0.name`."""
    # An invalid key is reported at the object that contains it.
    return ".".join(_short(str(part)) for part in location if part != "[key]")


def sentence(error: Mapping[str, Any]) -> str:
    kind, message = error["type"], str(error["msg"])
    if kind == "string_pattern_mismatch":
        return next((words for pattern, words in _SHAPES.items() if f"'{pattern}'" in message), _OTHER_SHAPE)
    return _WORDS.get(kind) or message[:1].lower() + message[1:]


def _short(name: str) -> str:
    return shown(name if len(name) <= _MAX_SHOWN_NAME else name[: _MAX_SHOWN_NAME - 3] + "...")
