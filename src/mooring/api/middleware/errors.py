"""The one place that turns errors into HTTP: every answer that is no success has the shape {code, message, details}."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from mooring.api.compat.versions import of_a_newer_client
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
from mooring.model.tenancy.admission import AdmissionError
from mooring.wire.problems import MAX_SHOWN_ERRORS, ErrorBody, field_path, invalid, sentence

_STATUS: Mapping[type[MooringError], int] = {
    NotAuthenticated: 401,
    NotAllowed: 403,
    NotFound: 404,
    Conflict: 409,
    EventsPurged: 410,
    AdmissionError: 412,
    InvalidInput: 422,
    Outdated: 426,
    TooManyAttempts: 429,
    LeadershipLost: 503,
    Unavailable: 503,
}
_WORDS: Mapping[int, str] = {
    400: "Not valid HTTP, or the body is not JSON",
    401: "Not logged in, or the token has expired",
    403: "Only an admin may do this",
    404: "No object with this name or id is visible to you",
    408: "The body did not arrive in time",
    409: "Conflicts with the present state",
    410: "The events after this cursor were deleted; read everything again",
    412: "Rejected by a limit, a rule or a hook; `details` lists all reasons",
    413: "The body is too large",
    422: "The request is invalid",
    426: "The client is too old for this server",
    429: "Too many requests or attempts; `Retry-After` says how long to wait",
    431: "The headers or the URL are too large",
    500: "Internal error; the log has it under the request id",
    503: "A required component does not answer at the moment",
}
_ANY_ROUTE = (400, 408, 413, 426, 429, 431)
"""Refusals before a request reaches its route."""
_READING = frozenset({"GET", "HEAD"})
# By reference to the one answer that has the model: FastAPI builds a validator for every model that it is given.
_ERROR_BODY = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}}}
# What Starlette and FastAPI raise by themselves.
_OWN_CODES: Mapping[int, tuple[str, str]] = {
    400: ("invalid-json", "the body is not valid JSON"),
    404: ("not-found", "there is nothing at this path"),
    405: ("method-not-allowed", "this path does not support this method"),
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route in addition to those that any route may give, for the API's description."""
    answers: dict[int | str, dict[str, Any]] = {500: {"description": _WORDS[500], "model": ErrorBody}}
    answers |= {status: {"description": _WORDS[status], "content": _ERROR_BODY} for status in (*_ANY_ROUTE, *statuses)}
    return answers


def declare_conflicts(routes: Iterable[BaseRoute]) -> None:
    """Declare 409 for operations that write: another request may take or remove their object at the same moment."""
    for route in routes:
        if isinstance(route, APIRoute) and not (route.methods or set()) <= _READING:
            route.responses.setdefault(409, {"description": _WORDS[409], "content": _ERROR_BODY})


def install(app: FastAPI) -> None:
    app.add_exception_handler(MooringError, _mooring_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)


def error_answer(
    status: int,
    code: str,
    message: str,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = {"code": code, "message": message, "details": dict(details or {})}
    # A lone surrogate of a tenant's text cannot be encoded; a question mark stands for it.
    content = json.dumps(body, ensure_ascii=False, default=str).encode("utf-8", "replace")
    return Response(content, status, headers, media_type="application/json")


def status_of(error: MooringError) -> int:
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def refusal(error: MooringError) -> Response:
    """An error of Mooring's own as an answer."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if (seconds := error.details.get("retry_after_seconds")) is not None:
        headers["Retry-After"] = str(seconds)
    return error_answer(status, error.code, error.message, error.details, headers)


async def _mooring_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, MooringError)
    return refusal(error)


async def _validation_error(request: Request, error: Exception) -> Response:
    """Names the fields, never their values: one of them may be a password."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        return error_answer(400, *_OWN_CODES[400])
    shown = [(_location(one["loc"]), sentence(one)) for one in found[:MAX_SHOWN_ERRORS]]
    refused = invalid(shown, of=len(found))
    return refusal(
        InvalidInput(refused.message + of_a_newer_client(request.headers), code=refused.code, details=refused.details)
    )


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    code, message = _OWN_CODES.get(error.status_code, (phrase.lower().replace(" ", "-"), phrase))
    return error_answer(error.status_code, code, message + of_a_newer_client(request.headers), headers=error.headers)


def _location(location: Sequence[int | str]) -> str:
    """`containers.0.name` in a body, `limit` in a query."""
    return field_path(location[1:]) or str(location[0])
