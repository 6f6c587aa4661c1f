"""What is wrong with a request, said field by field. Values are never quoted: one of them may be a password."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from mooring.model.errors import InvalidInput
from mooring.model.names import NAME_PATTERN, shown
from mooring.wire.fields import ENVIRONMENT_PATTERN, FILE_PATTERN, FOLDER_PATTERN, IMAGE_PATTERN

_MAX_SHOWN_ERRORS = 20
_MAX_SHOWN_NAME = 64
_WORDS = {
    "extra_forbidden": "there is no such field",
    "missing": "this is needed",
    "model_attributes_type": "write fields and their values here",
    "model_type": "write fields and their values here",
    "dict_type": "write names and their values here",
    "list_type": "write a list here",
}
"""What pydantic says with its own words, in those of the person who wrote the request."""
_SHAPES = {
    f"^{NAME_PATTERN}$": "write 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends",
    FOLDER_PATTERN: "write a path that begins with /",
    IMAGE_PATTERN: "write the name of an image, such as nginx:1.27 or ghcr.io/shop/web:1",
    ENVIRONMENT_PATTERN: "write a name of letters, digits and '_' that does not begin with a digit",
    FILE_PATTERN: "write the name of a file, of letters, digits, '_', '.' and '-'",
}
_OTHER_SHAPE = "there are characters in it that cannot be here"


def invalid(errors: Sequence[tuple[str, str]]) -> InvalidInput:
    """One or more fields (name, what is wrong with it)."""
    name, problem = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return InvalidInput(
        f"{name}: {problem}{more}",
        details={"errors": [{"field": field, "message": message} for field, message in errors[:_MAX_SHOWN_ERRORS]]},
    )


def refused(error: ValidationError) -> InvalidInput:
    """A request that its own schema refuses."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return invalid([(place(one["loc"]) or "request", sentence(one)) for one in found])


def place(location: Sequence[int | str]) -> str:
    """`containers.0.name`."""
    # A name that is wrong itself is told as what it names.
    return ".".join(_short(str(part)) for part in location if part != "[key]")


def sentence(error: Mapping[str, Any]) -> str:
    kind, message = error["type"], str(error["msg"])
    if kind == "string_pattern_mismatch":
        return next((words for pattern, words in _SHAPES.items() if f"'{pattern}'" in message), _OTHER_SHAPE)
    return _WORDS.get(kind) or message[:1].lower() + message[1:]


def _short(name: str) -> str:
    return shown(name if len(name) <= _MAX_SHOWN_NAME else name[: _MAX_SHOWN_NAME - 3] + "...")
