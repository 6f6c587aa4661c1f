"""The outermost layer of the API: a request id, load shedding before anything else, and an answer for every error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mooring.api.compat.versions import check_client
from mooring.api.middleware.errors import error_answer, refusal
from mooring.api.middleware.flows import (
    address_flow,
    require_possible_credential,
    user_flow,
)
from mooring.api.middleware.load_shedding.bodies import (
    BODY_WITHHELD,
    BodyTooLarge,
    BodyTooSlow,
    has_body,
    read_body,
    streamed_body,
    without_body,
)
from mooring.api.middleware.load_shedding.connections import verify_connection
from mooring.api.middleware.load_shedding.fair_queue import Seat
from mooring.api.middleware.load_shedding.shedding import Flow
from mooring.api.services import Services
from mooring.model.errors import NotAuthenticated, Outdated, TooManyAttempts
from mooring.model.names import shown
from mooring.model.tenancy.tenants import Principal
from mooring.store.core.engine import (
    DISK_FULL,
    is_constraint_conflict,
    is_disk_full,
    is_temporary,
)
from mooring.store.core.ids import new_id
from mooring.wire.fields import MAX_BODY_BYTES

REQUEST_ID = "X-Request-Id"
LOGIN = "mooring.login"
"""The scope's key for the login of a request with a body, which is authenticated before the body is read."""
SEAT = "mooring.seat"
"""The scope's key for the seat of a request: a route that only waits releases it."""

PROBES: Mapping[str, float] = {"/health": 1, "/ready": 1, "/metrics": 10}
"""Paths answered without a seat, with their cost: health checks must work especially under overload."""
_PUBLIC = frozenset({"/api/auth/login", "/api/auth/redeem", "/api/agent/join"})
"""Paths of the API that need no credential; only their bodies are read without one."""
CONSOLE_FILES = "/console/"
"""A page in a browser loads many of these files at once, and does not repeat one that was refused."""
_FULL_RETRY_SECONDS = 30
_COSTS: Mapping[str, float] = {"/openapi.json": 20}
"""Requests that cost more than others of the same rate."""

_PACED = frozenset({401, 429})

_LOGIN_SECONDS = 1.0
"""A login that is older when its request begins is checked again, as that of a connection that stays open."""

Authenticate = Callable[[Scope], Awaitable[None]]
ResolveFlow = Callable[[Scope], Awaitable[Flow]]

log = structlog.get_logger()


class RequestMiddleware:
    """ASGI middleware around everything that speaks HTTP. WebSocket routes admit and authenticate by themselves."""

    def __init__(
        self,
        app: ASGIApp,
        authenticate: Authenticate,
        resolve_flow: ResolveFlow,
        larger_bodies: Mapping[str, int] | None = None,
        streams_body: Callable[[Scope], bool] = lambda _scope: False,
    ) -> None:
        """`authenticate` stores the login in the scope, or raises NotAuthenticated. `resolve_flow` returns the flow
        after a look-up of an unknown keypair. `larger_bodies`: maximum bytes by path. `streams_body`: whether the route
        reads the body itself, as it arrives.
        """
        self._app = app
        self._authenticate = authenticate
        self._resolve_flow = resolve_flow
        self._larger_bodies = larger_bodies or {}
        self._streams_body = streams_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = new_id().hex
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            await _Request(self, scope, receive, send, request_id).answer()


class _Request:
    def __init__(
        self, middleware: RequestMiddleware, scope: Scope, receive: Receive, send: Send, request_id: str
    ) -> None:
        self._middleware = middleware
        self._services: Services = scope["app"].state.services
        self._scope = scope
        self._receive = receive
        self._send = send
        self._id = request_id
        self._started = False
        self._flow = address_flow(scope)
        """Of the address until the credential is verified."""
        self._reservation = self._services.load.reservation(self._flow)

    async def answer(self) -> None:
        try:
            await self._shed_and_run()
            return
        except (NotAuthenticated, Outdated, TooManyAttempts) as error:
            answer = refusal(error)
        except BodyTooLarge as error:
            message = f"a body may have at most {error.max_bytes} bytes"
            answer = error_answer(413, "body-too-large", message, headers={"Connection": "close"})
        except BodyTooSlow as error:
            message = f"the body did not arrive in time: {error.received_bytes} bytes in {error.seconds:.0f} seconds"
            answer = error_answer(408, "body-too-slow", message, headers={"Connection": "close"})
        except Exception as error:
            failed = self._failure(error)
            if failed is None:
                raise  # the server cuts the connection, so that half a response is not taken for a whole one
            answer = failed
        finally:
            self._release()
        await answer(self._scope, self._receive, self._send_with_headers)

    async def _shed_and_run(self) -> None:
        scope, load, path = self._scope, self._services.load, self._scope["path"]
        check_client(Headers(scope=scope))
        if path in PROBES:
            # By address and separately from everything else, whatever the credential.
            load.rates.probe(address_flow(scope).key, PROBES[path])
            await self._middleware._app(scope, without_body(self._receive), self._send_with_headers)
            return
        # Until a keypair is looked up, its request would be charged to its address.
        self._flow = await self._middleware._resolve_flow(scope)
        self._reservation = load.reservation(self._flow)
        load.charge(self._flow, _COSTS.get(path, 1))
        self._verify_connection()
        reads = scope["method"] == "GET"
        # A request that would be refused is refused before its body is read.
        patient = path.startswith(CONSOLE_FILES)
        load.level(self._flow, reads=reads).check(self._flow.key, patient=patient)
        if self._flow.user_id is None and _needs_login(path):
            # Without the way through the routes, which costs far more than this.
            require_possible_credential(self._services, scope)
        await self._authenticate_before_body()
        began = asyncio.get_running_loop().time()
        receive = await self._body()
        if receive is None:
            return
        # After the body: a client that sends slowly holds no seat.
        scope[SEAT] = await load.level(self._flow, reads=reads).seat(self._flow.key, patient=patient)
        if asyncio.get_running_loop().time() - began > _LOGIN_SECONDS:
            scope.pop(LOGIN, None)
        await self._middleware._app(scope, receive, self._send_with_headers)

    async def _authenticate_before_body(self) -> None:
        """A signature says nothing of revocation: no body is read for a credential that the database does not accept.

        The route uses the login that is found here, so that a request is still looked up once.
        """
        if self._flow.user_id is None or self._scope["path"] in _PUBLIC or not has_body(self._scope):
            return
        seat = await self._services.load.level(self._flow, reads=True).seat(self._flow.key)
        try:
            await self._middleware._authenticate(self._scope)
        finally:
            seat.release()

    def _verify_connection(self) -> None:
        if self._flow.user_id is not None:
            verify_connection(self._scope, self._flow)

    async def _body(self) -> Receive | None:
        """A `receive` that gives the body; None where the client has gone."""
        path = self._scope["path"]
        if self._flow.user_id is None and path not in _PUBLIC:
            # The response of the route, if any, does not answer this body.
            self._scope[BODY_WITHHELD] = has_body(self._scope)
            return without_body(self._receive)
        seconds = self._services.load.limits.body_seconds
        if self._middleware._streams_body(self._scope):
            return streamed_body(self._receive, seconds)
        max_bytes = self._middleware._larger_bodies.get(path, MAX_BODY_BYTES)
        return await read_body(self._scope, self._receive, max_bytes, seconds, self._reservation)

    async def _send_with_headers(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            # A client that reads slowly, or a stream that stays for hours, holds no seat.
            release_seat(self._scope)
            if message["status"] in _PACED:
                await self._services.load.pace_refusal(self._flow)
            headers = MutableHeaders(scope=message)
            headers[REQUEST_ID] = self._id
            headers["X-Content-Type-Options"] = "nosniff"
        await self._send(message)

    def _release(self) -> None:
        self._reservation.release()
        release_seat(self._scope)

    def _failure(self, error: Exception) -> Response | None:
        """The answer for an unexpected error; None where a response has begun already."""
        method, path = self._scope["method"], shown(self._scope["path"][:200])
        if not self._started and is_temporary(error):
            log.warning("The database does not answer", method=method, path=path, error=repr(error))
            return error_answer(503, "unavailable", "the database does not answer; try again soon")
        if not self._started and is_disk_full(error):
            log.error("The disk is full", method=method, path=path, error=repr(error))
            message = f"{DISK_FULL}; nothing was written. An admin has to free space there; then try again"
            return error_answer(503, "disk-full", message, headers={"Retry-After": str(_FULL_RETRY_SECONDS)})
        if not self._started and is_constraint_conflict(error):
            log.warning("A request conflicted with another", method=method, path=path, error=repr(error))
            message = "another request took or removed the object at the same moment; read it again and retry"
            return error_answer(409, "overtaken", message)
        log.exception("A request failed", method=method, path=path)
        if self._started:
            return None
        return error_answer(
            500,
            "internal-error",
            f"internal server error; the log has it under request {self._id}",
            {"request_id": self._id},
        )


def _needs_login(path: str) -> bool:
    """Return whether only users can be answered; agents show the credential of their node instead of a login."""
    return path.startswith("/api/") and path not in _PUBLIC and not path.startswith("/api/agent/")


async def become_writer(services: Services, scope: Scope, principal: Principal) -> None:
    """Exchange the seat of a request that only waits for its commit: others begin, and share its transaction."""
    seat: Seat | None = scope.get(SEAT)
    if seat is not None:
        scope[SEAT] = await services.load.writers.seat(user_flow(principal.user_id).key)
        seat.release()


def release_seat(scope: Scope) -> None:
    """Let others begin: the request only waits for something that may take long."""
    seat: Seat | None = scope.get(SEAT)
    if seat is not None:
        seat.release()
