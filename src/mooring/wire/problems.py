"""What is wrong with a request, said field by field. Values are never quoted: one of them may be a password."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from mooring.model.errors import InvalidInput
from mooring.model.names import shown

_MAX_SHOWN_ERRORS = 20
_MAX_SHOWN_NAME = 64


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
    return ".".join(_short(str(part)) for part in location)


def sentence(error: Mapping[str, Any]) -> str:
    message = str(error["msg"])
    return message[:1].lower() + message[1:]


def _short(name: str) -> str:
    return shown(name if len(name) <= _MAX_SHOWN_NAME else name[: _MAX_SHOWN_NAME - 3] + "...")
