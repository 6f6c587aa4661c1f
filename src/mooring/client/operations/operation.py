"""What an operation of the API is: a request and the type of its answer, apart from who sends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from mooring.model.errors import InvalidInput

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One request and the type of its answer: a schema, `str` for text as it came, or None for nothing."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    answer: type[T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: BaseModel | None = None
    authenticated: bool = True
    also_answers: frozenset[int] = frozenset()
    """Statuses of failure that carry the answer all the same."""
    holds_seconds: float = 0.0
    """How long the server may keep the request before it answers."""
    key: str | None = None
    """The idempotency key: sent twice, it is done once."""

    @property
    def repeatable(self) -> bool:
        return self.method == "GET" or self.key is not None

    @property
    def content(self) -> bytes | None:
        """The body as JSON. What was not set is left out: the server knows the defaults, and a change stays partial."""
        return None if self.body is None else self.body.model_dump_json(exclude_unset=True).encode()


@dataclass(frozen=True, slots=True)
class Stream:
    """An operation whose answer is a stream of bytes."""

    path: str
    query: Mapping[str, str]
    silent_seconds: float | None = None
    """After so long without a byte the connection is taken for dead; None: it may be silent for ever."""


@dataclass(frozen=True, slots=True)
class Upload:
    """An operation that sends a stream of bytes and gets nothing back."""

    path: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Way:
    """An operation that opens a channel into a task."""

    path: str
    opening: BaseModel


def segment(text: str) -> str:
    """A name or id as a part of a path."""
    # Nothing and dots alone would lead to another path.
    if not text.strip("."):
        raise InvalidInput(f"{text!r} is not a name or an id", code="invalid-name")
    return quote(text, safe="")


def given(**values: Any) -> dict[str, str]:
    """A query of what is not None."""
    return {name: _written(value) for name, value in values.items() if value is not None}


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
