"""An operation of the API: a request and the type of its answer, independent of the client that sends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from urllib.parse import quote

from mooring.model.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One request and the type of its answer: a schema, `str` for plain text, or None for no content."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    answer: type[T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: BaseModel | None = None
    json: bytes | None = None
    """A body that is JSON already."""
    authenticated: bool = True
    also_answers: frozenset[int] = frozenset()
    """Error statuses whose body is the answer."""
    holds_seconds: float = 0.0
    """The time that the server may hold the request before it answers."""
    key: str | None = None
    """The idempotency key: a request sent twice takes effect once."""

    @property
    def repeatable(self) -> bool:
        return self.method == "GET" or self.key is not None

    @property
    def content(self) -> bytes | None:
        """The body as JSON. Unset fields are left out: the server knows the defaults, and a change stays partial."""
        return self.json if self.body is None else self.body.model_dump_json(exclude_unset=True).encode()


@dataclass(frozen=True, slots=True)
class Stream:
    """An operation whose answer is a stream of bytes."""

    path: str
    query: Mapping[str, str]
    silent_seconds: float | None = None
    """The connection is considered dead after this time without a byte; None: never."""
    parameter: str | None = None
    """A parameter that the content type of the answer must have; servers without the feature leave it out."""

    def check(self, content_type: str) -> None:
        """Raise Conflict if the server does not have a feature that was asked for."""
        if self.parameter is not None and self.parameter not in content_type:
            raise Conflict(
                "the server is too old for times of output: upgrade it, or leave out since and timestamps",
                code="server-outdated",
            )


@dataclass(frozen=True, slots=True)
class Upload:
    """An operation that sends a stream of bytes and returns no content."""

    path: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChannelRequest:
    """An operation that opens a channel into a task."""

    path: str
    opening: BaseModel


def segment(text: str) -> str:
    """Return a name or id quoted as one segment of a path."""
    # An empty segment, or one of dots only, would name another path.
    if not text.strip("."):
        raise InvalidInput(f"{text!r} is not a name or an id", code="invalid-name")
    return quote(text, safe="")


def given(**values: Any) -> dict[str, str]:
    """Return a query of the values that are not None."""
    return {name: _written(value) for name, value in values.items() if value is not None}


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
