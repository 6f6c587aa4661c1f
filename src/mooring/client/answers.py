"""Responses of the server as schemas or errors."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from mooring.client.operations.operation import Operation
from mooring.model.errors import (
    Conflict,
    EventsPurged,
    InvalidInput,
    LeadershipLost,
    MooringError,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Outdated,
    TooManyAttempts,
    Unavailable,
)
from mooring.model.names import shown
from mooring.model.tenancy.admission import AdmissionError
from mooring.wire.problems import ErrorBody, field_path, sentence

T = TypeVar("T")

_BY_CODE: dict[str, type[MooringError]] = {
    error.code: error
    for error in (
        InvalidInput,
        NotFound,
        Conflict,
        EventsPurged,
        NotAuthenticated,
        NotAllowed,
        Outdated,
        TooManyAttempts,
        Unavailable,
        LeadershipLost,
    )
}
# Codes are an open set; the status says which family a code belongs to.
_BY_STATUS: dict[int, type[MooringError]] = {
    400: InvalidInput,
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    405: InvalidInput,
    409: Conflict,
    410: EventsPurged,
    412: AdmissionError,
    413: InvalidInput,
    415: InvalidInput,
    422: InvalidInput,
    426: Outdated,
    429: TooManyAttempts,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}
_MAX_QUOTED = 200


def read_answer(operation: Operation[T], status: int, content: bytes, server: str) -> T:
    """The answer of an operation, or the error that the server sent instead."""
    if not (200 <= status < 300 or status in operation.also_answers):
        raise read_error(status, content, server)
    try:
        answer: T = _decoded(operation.answer, content)
    except ValidationError as problem:
        raise MooringError(
            f"the answer of {server}{operation.path} is not what this version of Mooring expects"
            f" ({_first(problem)}); are the server's and the client's versions the same?",
            code="unexpected-answer",
            details={"status": status},
        ) from problem
    return answer


def read_error(status: int, content: bytes, server: str) -> MooringError:
    """The error in an answer; one that is not in Mooring's shape (from a proxy, say) is quoted."""
    kind = _BY_STATUS.get(status, MooringError)
    try:
        body = ErrorBody.model_validate_json(content)
    except ValidationError:
        text = shown(" ".join(content.decode("utf-8", "replace").split()))[:_MAX_QUOTED]
        message = f"{server} answered {status}" + (f": {text}" if text else "")
        if 300 <= status < 400:
            message = f"{server} answered with a redirect ({status}), which is not followed; give the final address"
        return kind(message, code=None if kind is not MooringError else "unexpected-answer", details={"status": status})
    return _BY_CODE.get(body.code, kind)(body.message, code=body.code, details=body.details)


def unreachable(server: str, problem: Exception) -> Unavailable:
    """No connection, or one that broke."""
    return Unavailable(
        f"no answer from {server} ({_words(problem)}); start a server there with `mooring up`,"
        " or name another with --server or MOORING_SERVER",
        code="unreachable",
        details={"server": server},
    )


def timed_out(server: str, seconds: float) -> Unavailable:
    return Unavailable(
        f"{server} did not answer within {seconds:g} seconds; it may be busy, or a firewall blocks the connection",
        code="unreachable",
        details={"server": server, "timeout_seconds": seconds},
    )


def untrusted(server: str, problem: Exception) -> Unavailable:
    return Unavailable(
        f"the certificate of {server} cannot be trusted ({_words(problem)}); name the authority that signed it with"
        " --ca-file or MOORING_CA_FILE",
        code="certificate-not-trusted",
        details={"server": server},
    )


def invalid_request(problem: ValidationError) -> InvalidInput:
    """Return the error for a request that violates its schema, one line per field."""
    found = problem.errors(include_url=False)
    parts = [f"{field_path(error['loc']) or 'request'}: {sentence(error)}" for error in found]
    return InvalidInput("; ".join(parts), details={"fields": [field_path(error["loc"]) for error in found]})


def _decoded(answer: Any, content: bytes) -> Any:
    if answer is type(None):
        return None
    if answer is str:
        return content.decode("utf-8", "replace")
    return _adapter(answer).validate_json(content)


@cache
def _adapter(answer: Any) -> TypeAdapter[Any]:
    return TypeAdapter(answer)


def _first(problem: ValidationError) -> str:
    error = problem.errors(include_url=False)[0]
    field = field_path(error["loc"])
    return f"{field}: {error['msg']}" if field else str(error["msg"])


def _words(problem: Exception) -> str:
    text = " ".join(str(problem).split())
    return shown(text) or type(problem).__name__
