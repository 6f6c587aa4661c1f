"""The route of single submissions, the most frequent request, without FastAPI's work per request.

FastAPI resolves the same dependencies by inspection every time, which takes longer than the rest of the request. The
handler here reads what these dependencies would give. It answers only requests that are valid; FastAPI's own handler
gets every other one, so that errors of requests come from one place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

from mooring.api.auth.logins import Login
from mooring.api.middleware.outermost import LOGIN
from mooring.model.tenancy.access import Action, require
from mooring.wire.fields import IdempotencyKey
from mooring.wire.workloads.workloads import WorkloadAccepted, WorkloadRequest

_JSON = "application/json"
_KEY: TypeAdapter[str] = TypeAdapter(IdempotencyKey)


class _Submission(NamedTuple):
    request: WorkloadRequest
    key: str | None


class SubmissionRoute(APIRoute):
    """Calls its endpoint as FastAPI would."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        by_fastapi = super().get_route_handler()
        submit: Callable[..., Coroutine[Any, Any, WorkloadAccepted]] = self.endpoint

        async def handle(request: Request) -> Response:
            # A login that is found here was verified a moment ago, by the outermost middleware.
            login: Login | None = request.scope.get(LOGIN)
            valid = None if login is None else await _valid(request)
            if login is None or valid is None:
                return await by_fastapi(request)
            require(login.principal, Action.SUBMIT)
            response = Response(status_code=202, media_type=_JSON)
            services = request.app.state.services
            accepted = await submit(services, login.principal, valid.request, request, response, valid.key)
            response.body = accepted.model_dump_json().encode()
            response.headers["Content-Length"] = str(len(response.body))
            return response

        return handle


async def _valid(request: Request) -> _Submission | None:
    """Return the submission; None if it is invalid, or if FastAPI might read it differently."""
    if request.headers.get("content-type") != _JSON:
        return None
    key = request.headers.get("idempotency-key")
    try:
        # As FastAPI reads it. The request keeps the bytes of its body.
        body = json.loads(await request.body())
        return _Submission(WorkloadRequest.model_validate(body), None if key is None else _KEY.validate_python(key))
    except (ValidationError, ValueError, RecursionError):
        return None
