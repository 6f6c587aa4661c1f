"""A small server that speaks the API over real HTTP on loopback, with a state that a test can set and look at."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID, uuid4

from aiohttp import web
from pydantic import BaseModel, ValidationError

from mooring.agent.access.logs import stamp
from mooring.model.tenancy.accounting import By
from mooring.wire.agents import channels
from mooring.wire.agents.channels import ExecOpening
from mooring.wire.cluster.audit import AuditChange, AuditReport
from mooring.wire.cluster.events import EventList, EventView
from mooring.wire.cluster.health import Health, Ready
from mooring.wire.cluster.nodes import (
    DrainEffect,
    DrainPreview,
    DrainRequest,
    JoinToken,
    JoinTokenRequest,
    NodeList,
    NodeRequest,
    NodeView,
    SlotView,
    TaintsChange,
    TaintView,
)
from mooring.wire.cluster.operations import (
    LeaderView,
    LoopList,
    LoopView,
    PassView,
    ServerList,
    ServerView,
    StartErrors,
)
from mooring.wire.cluster.pools import (
    PauseRequest,
    PoolChange,
    PoolList,
    PoolRequest,
    PoolView,
)
from mooring.wire.cluster.quarantine import QuarantineList
from mooring.wire.cluster.scaling import (
    ScalingView,
    TemplateList,
    TemplateRequest,
    TemplateView,
)
from mooring.wire.cluster.timeline import TimelineView
from mooring.wire.cluster.what_if import WhatIfAnswer
from mooring.wire.problems import ErrorBody
from mooring.wire.tenancy import accounting
from mooring.wire.tenancy.quotas import QuotaView
from mooring.wire.tenancy.shares import OccupancyReport, ShareList
from mooring.wire.tenancy.users import (
    LoginRequest,
    LoginView,
    PasswordChange,
    Token,
    UserChange,
    UserCreated,
    UserRequest,
    UserView,
)
from mooring.wire.versions import CLIENT_HEADER
from mooring.wire.workloads import sessions
from mooring.wire.workloads.batches import BatchAccepted, BatchItem
from mooring.wire.workloads.explanation import Explanation
from mooring.wire.workloads.history import AttemptRow, HistoryList, HistoryRow
from mooring.wire.workloads.tasks import TaskList, TaskView
from mooring.wire.workloads.workload_fields import SessionRequest
from mooring.wire.workloads.workloads import (
    TIMES_NOTED,
    Comparison,
    Difference,
    ScaleRequest,
    WorkloadAccepted,
    WorkloadDetail,
    WorkloadList,
    WorkloadRequest,
    WorkloadView,
)
from tests.client.fake_rollouts import FakeRollouts
from tests.client.fake_secrets import FakeSecrets
from tests.client.fake_timeslots import FakeTimeslots
from tests.client.fake_uploads import FakeUploads, is_content
from tests.client.fake_volumes import FakeVolumes

Step = Callable[["FakeWorkload"], None]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BODY: web.RequestKey[Any] = web.RequestKey("body", object)
USER: web.RequestKey[Any] = web.RequestKey("user", object)
LOGIN_ID = UUID("019b76da-a800-7000-8000-000000000001")
OPEN = ("/api/auth/login", "/health", "/ready", "/metrics")
ENDS = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    token: str | None
    key: str | None = None
    """The idempotency key."""
    client: str | None = None
    """The version that it reports."""


@dataclass
class FakeWorkload:
    """A workload; every long poll takes the next of its steps."""

    view: WorkloadDetail
    steps: list[Step] = field(default_factory=list)
    log: bytes = b""
    log_ends: bool = True
    """False: a follower waits until the workload ends."""
    node_answers: bool = False
    """True: its tasks end as soon as it is cancelled."""
    breaks: int = 0
    """The number of times that the stream of its log breaks off."""
    earlier: dict[str, bytes] = field(default_factory=dict)
    """By the number of an earlier attempt: its log."""
    timed: dict[int, list[tuple[datetime, bytes]]] | None = None
    """By task, the times and lines of its log; None: the server knows no times."""

    def become(self, status: str, **changes: Any) -> None:
        ended = status in ENDS
        tasks = [
            task.model_copy(
                update={
                    "status": status,
                    "ready": status == "RUNNING",
                    "node": task.node or ("node-1" if status == "RUNNING" else None),
                    "started_at": task.started_at or (NOW if status == "RUNNING" or ended else None),
                    "ended_at": NOW if ended else None,
                    "exit_code": changes.get("exit_code"),
                }
            )
            for task in self.view.tasks
        ]
        changes.pop("exit_code", None)
        self.view = self.view.model_copy(
            update={
                "status": status,
                "tasks": tasks,
                "running": len(tasks) if status == "RUNNING" else 0,
                "ready": len(tasks) if status == "RUNNING" else 0,
                "version": self.view.version + 1,
                **changes,
            }
        )


class Refusal(Exception):
    def __init__(self, status: int, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        self.status, self.body = status, ErrorBody(code=code, message=message, details=details or {})


class FakeServer:
    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.url = ""
        self._tls = tls
        self.seen: list[Seen] = []
        self.passwords = {"admin": "correct horse"}
        self.users = {"admin": user_view("admin", role="admin")}
        self.tokens: dict[str, str] = {}
        self.expires_in = 3600
        self._issued = 0
        self.workloads: dict[UUID, FakeWorkload] = {}
        self.nodes = {"node-1": node_view("node-1")}
        self.pools = {
            "default": pool_view("default", profile="balanced"),
            "toy": pool_view("toy", simulated=True, runtimes=["container"], profile="spread", nodes=5),
        }
        self.templates: dict[str, TemplateView] = {}
        self.scaling = ScalingView(requests=[], unmet=[], advice=[])
        self.plan: list[Step] = [running]
        self.prepare: Callable[[FakeWorkload], None] = lambda workload: None
        self.report = AuditReport(clean=True, checked={"nodes": 1}, findings=[])
        self.quotas = QuotaView(quotas=[])
        self.shares = ShareList(pool="default", sequencer="fair_queue", shares=[])
        self.occupancy = OccupancyReport(occupancy=[])
        self.quarantine = QuarantineList(tasks=[])
        self.bookings = FakeTimeslots()
        self.rollouts = FakeRollouts(self)
        self.confidential = FakeSecrets()
        self.volumes = FakeVolumes()
        self.uploads = FakeUploads()
        self.term = 4
        self.servers = [server_view("first", "leader")]
        self.loops: list[LoopView] = []
        self.start_errors: StartErrors | None = None
        self.explanation = explanation()
        self.free_capacity = accounting.FreeCapacity(pools=[], quotas=[])
        self.timeline = TimelineView(starts_at=NOW, step_seconds=60, steps=1, outlooks=[])
        self.what_if: WhatIfAnswer | None = None
        self.undrained: set[str] = set()
        """Nodes that are resumed as soon as they are drained."""
        self.ready = True
        self.refuse: dict[tuple[str, str], Refusal] = {}
        self.refuse_next: dict[tuple[str, str], list[Refusal]] = {}
        """Each once."""
        self.simulated = False
        self.drops = 0
        """Set the number of the next POST requests that are read and never answered."""
        self.commands: list[ExecOpening] = []
        """That were run in tasks, one after the other; all of them end with the exit code 3."""
        self.events: list[EventView] = []
        self.events_per_connection: int | None = None
        """After so many a stream breaks off in the middle of the next."""
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    # --- for tests ---

    def token(self, username: str = "admin") -> str:
        self._issued += 1
        text = f"token-{username}-{self._issued}"
        self.tokens[text] = username
        return text

    def requests(self, method: str, path: str) -> list[Seen]:
        return [seen for seen in self.seen if (seen.method, seen.path) == (method, path)]

    def last(self, method: str, path: str) -> Seen:
        return self.requests(method, path)[-1]

    def add(self, name: str, status: str = "RUNNING", **fields: Any) -> FakeWorkload:
        workload = FakeWorkload(workload_view(name, **fields))
        workload.become(status)
        self.workloads[workload.view.id] = workload
        return workload

    def find(self, ref: str) -> FakeWorkload:
        for workload in self.workloads.values():
            if ref in (workload.view.name, str(workload.view.id)):
                return workload
        raise Refusal(404, "not-found", f"there is no workload {ref!r}", {"noun": "workload", "name": ref})

    # --- running it ---

    def __enter__(self) -> FakeServer:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._run())
        self._loop.close()

    async def _run(self) -> None:
        app = web.Application(middlewares=[self._middleware], client_max_size=64 * 1024**2)
        app.add_routes(self._routes())
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        assert site._server is not None
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
        self._started.set()
        await self._stop.wait()
        await runner.cleanup()

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        header = request.headers.get("Authorization", "")
        token = header.removeprefix("Bearer ") or None
        body = await request.json() if request.can_read_body and not is_content(request) else None
        key = request.headers.get("Idempotency-Key")
        self.seen.append(
            Seen(
                request.method, request.path, dict(request.query), body, token, key, request.headers.get(CLIENT_HEADER)
            )
        )
        if self.drops and request.method == "POST":
            self.drops -= 1
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        request[BODY] = body
        request[USER] = self.tokens.get(token or "")
        try:
            if refusal := self.refuse.get((request.method, request.path)):
                raise refusal
            if once := self.refuse_next.get((request.method, request.path)):
                raise once.pop()
            if request[USER] is None and request.path not in OPEN:
                raise Refusal(401, "not-authenticated", "the token is missing or not valid")
            return await handler(request)
        except Refusal as refusal:
            return _json(refusal.body, refusal.status)
        except ValidationError as problem:
            return _json(ErrorBody(code="invalid-input", message=str(problem)), 422)

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.post("/api/auth/login", self._login),
            web.post("/api/auth/renew", self._renew),
            web.post("/api/auth/password", self._password),
            web.get("/api/auth/me", self._me),
            web.get("/api/logins", self._logins),
            web.delete("/api/logins", self._end_logins),
            web.delete("/api/logins/{id}", self._end_logins),
            web.post("/api/users", self._create_user),
            web.get("/api/users", self._users),
            web.patch("/api/users/{name}", self._change_user),
            web.post("/api/workloads", self._submit),
            web.post("/api/workloads/dry-run", self._dry_run),
            web.post("/api/workloads/batch", self._batch),
            web.get("/api/events", self._events),
            web.get("/api/events/stream", self._stream),
            web.get("/api/workloads", self._list),
            web.get("/api/workloads/{ref}", self._get),
            web.get("/api/workloads/{ref}/explanation", self._explain),
            web.post("/api/workloads/{ref}/comparison", self._compare),
            web.get("/api/workloads/{ref}/history", self._history),
            web.get("/api/workloads/{ref}/logs", self._logs),
            web.get("/api/workloads/{ref}/wait", self._wait),
            web.get("/api/workloads/{ref}/tasks", self._tasks),
            web.post("/api/workloads/{ref}/scale", self._scale),
            web.post("/api/workloads/{ref}/extend", self._extend),
            web.get("/api/tasks/{id}/exec", self._exec),
            web.post("/api/sessions", self._create_session),
            web.get("/api/sessions", self._list),
            web.get("/api/sessions/{ref}", self._get),
            web.delete("/api/sessions/{ref}", self._remove),
            web.delete("/api/workloads/{ref}", self._remove),
            web.delete("/api/workloads/{ref}/tasks", self._cancel_tasks),
            web.get("/api/nodes", self._nodes),
            web.post("/api/nodes", self._add_node),
            web.get("/api/nodes/{name}", self._node),
            web.get("/api/nodes/{name}/drain", self._drain_preview),
            web.post("/api/nodes/{name}/drain", self._drain),
            web.patch("/api/nodes/{name}", self._node),
            web.patch("/api/nodes/{name}/taints", self._taints),
            web.post("/api/nodes/{name}/resume", self._resume),
            web.delete("/api/nodes/{name}", self._remove_node),
            web.get("/api/quarantine", self._quarantine),
            web.post("/api/quarantine/end", self._quarantine),
            web.get("/api/pools", self._pools),
            web.get("/api/usage", self._usage),
            web.get("/api/usage/workloads", self._records),
            web.get("/api/usage/tasks", self._task_use),
            web.get("/api/free", self._free),
            web.get("/api/timeline", self._timeline),
            web.post("/api/what-if", self._what_if),
            web.post("/api/pools", self._create_pool),
            web.get("/api/pools/{name}/templates", self._templates),
            web.put("/api/pools/{name}/templates/{template}", self._put_template),
            web.delete("/api/pools/{name}/templates/{template}", self._remove_template),
            web.get("/api/scaling", self._scaling),
            web.get("/api/pools/{name}", self._pool),
            web.patch("/api/pools/{name}", self._change_pool),
            web.post("/api/pools/{name}/pause", self._pause_pool),
            web.post("/api/pools/{name}/resume", self._resume_pool),
            web.delete("/api/pools/{name}", self._remove_pool),
            web.get("/api/shares", self._shares),
            web.put("/api/shares/{scope}/{tenant}", self._set_weight),
            web.get("/api/occupancy", self._occupancy),
            web.get("/api/quotas", self._quotas),
            web.get("/api/quotas/{scope}/{tenant}", self._quotas),
            web.put("/api/quotas/{scope}/{tenant}", self._quotas),
            web.post("/api/quotas/{scope}/{tenant}/revert", self._quotas),
            web.post("/api/join-tokens", self._join_token),
            web.get("/health", self._health),
            web.get("/ready", self._ready),
            web.get("/metrics", self._metrics),
            web.get("/api/audit", self._audit),
            web.post("/api/audit/repair", self._repair),
            web.get("/api/leader", self._leader),
            web.get("/api/servers", self._servers),
            web.get("/api/loops", self._loops),
            web.post("/api/leader/resign", self._resign),
            web.post("/api/leader/pass", self._pass),
            *self.bookings.routes(),
            *self.rollouts.routes(),
            *self.confidential.routes(),
            *self.volumes.routes(),
            *self.uploads.routes(),
        ]

    # --- routes ---

    async def _login(self, request: web.Request) -> web.Response:
        asked = LoginRequest.model_validate(request[BODY])
        if self.passwords.get(asked.username) != asked.password:
            raise Refusal(401, "wrong-credentials", "the username or the password is wrong")
        return _json(Token(access_token=self.token(asked.username), expires_in=self.expires_in))

    async def _renew(self, request: web.Request) -> web.Response:
        return _json(Token(access_token=self.token(request[USER]), expires_in=self.expires_in))

    async def _password(self, request: web.Request) -> web.Response:
        asked = PasswordChange.model_validate(request[BODY])
        if self.passwords[request[USER]] != asked.old_password:
            raise Refusal(403, "not-allowed", "the old password is wrong")
        self.passwords[request[USER]] = asked.new_password
        self.tokens = {}
        return _json(Token(access_token=self.token(request[USER]), expires_in=self.expires_in))

    async def _logins(self, request: web.Request) -> web.Response:
        named = request.query.get("user", request[USER])
        times = {"created_at": NOW, "last_used_at": NOW, "expires_at": NOW + timedelta(hours=1)}
        found = LoginView(id=LOGIN_ID, user=named, address="192.0.2.7", current=named == request[USER], **times)
        return web.json_response([found.model_dump(mode="json")])

    async def _end_logins(self, request: web.Request) -> web.Response:
        named = request.query.get("user", request[USER])
        self.tokens = {token: user for token, user in self.tokens.items() if user != named}
        return web.Response(status=204)

    async def _me(self, request: web.Request) -> web.Response:
        return _json(self.users[request[USER]])

    async def _create_user(self, request: web.Request) -> web.Response:
        asked = UserRequest.model_validate(request[BODY])
        if asked.username in self.users:
            raise Refusal(409, "conflict", f"there is a user {asked.username!r} already")
        made = user_view(asked.username, role=asked.role, project=asked.project or "default", os_user=asked.os_user)
        self.users[asked.username] = made
        self.passwords[asked.username] = asked.password or "made-up-password"
        shown = None if asked.password else "made-up-password"
        return _json(UserCreated(**made.model_dump(), password=shown), 201)

    async def _users(self, request: web.Request) -> web.Response:
        return web.json_response([user.model_dump(mode="json") for user in self.users.values()])

    async def _change_user(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.users:
            raise Refusal(404, "not-found", f"there is no user {name!r}", {"noun": "user"})
        change = UserChange.model_validate(request[BODY]).model_dump(exclude_unset=True)
        if "password" in change:
            self.passwords[name] = change.pop("password")
        self.users[name] = self.users[name].model_copy(update=change)
        return _json(self.users[name])

    async def _submit(self, request: web.Request) -> web.Response:
        asked = WorkloadRequest.model_validate(request[BODY])
        if any(w.view.name == asked.name for w in self.workloads.values()):
            raise Refusal(409, "name-taken", f"there is a workload {asked.name!r} already")
        view = workload_view(
            asked.name or f"made-up-{len(self.workloads) + 1}",
            kind=asked.kind,
            replicas=asked.replicas,
            image=asked.containers[0].image,
            command=asked.containers[0].command,
            simulated=self.simulated,
        )
        workload = FakeWorkload(view, steps=list(self.plan))
        self.prepare(workload)
        self.workloads[view.id] = workload
        accepted = WorkloadAccepted(
            id=view.id, name=view.name, status="PENDING", pool="default", simulated=view.simulated, message="accepted"
        )
        return _json(accepted, 202)

    async def _batch(self, request: web.Request) -> web.Response:
        names = [one.get("name") for one in request[BODY]["workloads"]]
        taken = ErrorBody(code="name-taken", message="there is one already")
        items = [
            BatchItem(name=name, error=taken)
            if name == "taken"
            else BatchItem(id=uuid4(), name=name, pool="default", simulated=False)
            for name in names
        ]
        refused = names.count("taken")
        return _json(BatchAccepted(accepted=len(names) - refused, refused=refused, workloads=items), 202)

    async def _events(self, request: web.Request) -> web.Response:
        left = self._events_after(request.query.get("since"))
        page = left[: int(request.query.get("limit", 100))]
        last = page[-1].cursor if page else "0-0"
        return _json(EventList(events=page, next=last, more=len(left) > len(page)))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if self.events and request.query.get("since") == "0-0":
            raise Refusal(410, "events-purged", "forgotten")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"retry: 1000\nid: 0-1\n\n: still here\n\n")
        for number, event in enumerate(self._events_after(request.query.get("since"))):
            message = f"id: {event.cursor}\ndata: {event.model_dump_json()}\n\n".encode()
            if number == self.events_per_connection:
                await response.write(message[:20])
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(message)
        await response.write_eof()
        return response

    def _events_after(self, since: str | None) -> list[EventView]:
        known = [event.cursor for event in self.events]
        return self.events[known.index(since) + 1 if since in known else 0 :]

    async def _dry_run(self, request: web.Request) -> web.Response:
        asked = WorkloadRequest.model_validate(request[BODY])
        return _json(self.explanation.model_copy(update={"id": None, "status": None, "name": asked.name or "made-up"}))

    async def _compare(self, request: web.Request) -> web.Response:
        view, asked = self.find(request.match_info["ref"]).view, WorkloadRequest.model_validate(request[BODY])
        differs = Difference(field="replicas", present=str(view.replicas), wanted=str(asked.replicas))
        return _json(
            Comparison(
                id=view.id,
                kind=view.kind,
                status=view.status,
                ended=view.ended_at is not None,
                removed=view.removed,
                differences=[differs] if view.replicas != asked.replicas else [],
            )
        )

    async def _explain(self, request: web.Request) -> web.Response:
        view = self.find(request.match_info["ref"]).view
        return _json(self.explanation.model_copy(update={"id": view.id, "status": view.status, "name": view.name}))

    async def _list(self, request: web.Request) -> web.Response:
        views = [workload.view for workload in self.workloads.values() if not workload.view.removed]
        if status := request.query.get("status"):
            views = [view for view in views if view.status == status]
        if request.query.get("everyone") != "true":
            views = [view for view in views if view.user == request[USER]]
        if request.query.get("all") != "true" or request.query.get("active") == "true":
            views = [view for view in views if view.status not in ENDS]
        limit, offset = int(request.query.get("limit", 50)), int(request.query.get("offset", 0))
        page = [WorkloadView(**view.model_dump()) for view in views[offset : offset + limit]]
        return _json(WorkloadList(workloads=page, total=len(views), limit=limit, offset=offset))

    async def _get(self, request: web.Request) -> web.Response:
        return _json(self.find(request.match_info["ref"]).view)

    async def _history(self, request: web.Request) -> web.Response:
        view = self.find(request.match_info["ref"]).view
        rows = [
            HistoryRow(
                at=NOW, noun="workload", object_id=view.id, old_status="", new_status="PENDING", actor="admin",
                reason="submitted", term=None,
            ),
            HistoryRow(
                at=NOW, noun="task", object_id=view.tasks[0].id, task_index=0, attempt=2, old_status="PENDING",
                new_status="RUNNING", actor="scheduler", reason=None, term=7,
            ),
        ]  # fmt: skip
        tried = AttemptRow(
            phase="start", result="retry", code="image-missing", message="no such image", task_index=0, number=3,
            first_at=NOW, last_at=NOW,
        )  # fmt: skip
        return _json(HistoryList(history=rows, attempts=[tried]))

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        workload = self.find(request.match_info["ref"])
        asks_times = workload.timed is not None and ("timestamps" in request.query or "since" in request.query)
        parameter = f"; {TIMES_NOTED}" if asks_times else ""
        response = web.StreamResponse(headers={"Content-Type": f"text/plain{parameter}"})
        await response.prepare(request)
        earlier = workload.earlier.get(request.query.get("attempt", ""))
        log = workload.log if earlier is None else earlier
        if workload.timed is not None:
            log = workload.log = _timed(workload.timed[int(request.query.get("task", 0))], request.query)
        sent = len(log)
        if tail := request.query.get("tail"):
            log = b"".join(log.splitlines(keepends=True)[-int(tail) :])
        if workload.breaks and request.query.get("follow"):
            workload.breaks -= 1
            await response.write(log[: len(log) // 2])
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(log)
        if request.query.get("follow") and not workload.log_ends:
            await _until(lambda: workload.view.status in ENDS)
        with contextlib.suppress(ConnectionError):
            await response.write(workload.log[sent:] if earlier is None else b"")
            await response.write_eof()
        return response

    async def _wait(self, request: web.Request) -> web.Response:
        workload = self.find(request.match_info["ref"])
        version = int(request.query.get("version", 0))
        if workload.steps and workload.view.version <= version:
            workload.steps.pop(0)(workload)
        await _until(lambda: workload.view.version > version, seconds=float(request.query["timeout"]))
        return _json(workload.view)

    async def _scale(self, request: web.Request) -> web.Response:
        workload = self.find(request.match_info["ref"])
        asked = ScaleRequest.model_validate(request[BODY])
        health = "healthy" if asked.replicas else "scaled-to-zero"
        workload.view = workload.view.model_copy(update={"replicas": asked.replicas, "health": health})
        return _json(WorkloadView(**workload.view.model_dump()), 202)

    async def _tasks(self, request: web.Request) -> web.Response:
        tasks = self.find(request.match_info["ref"]).view.tasks
        limit, offset = int(request.query["limit"]), int(request.query["offset"])
        page = TaskList(tasks=tasks[offset : offset + limit], total=len(tasks), limit=limit, offset=offset)
        return _json(page)

    async def _extend(self, request: web.Request) -> web.Response:
        workload = self.find(request.match_info["ref"])
        asked = sessions.ExtendRequest.model_validate(request[BODY])
        seconds = int(asked.time or (workload.view.time_limit_seconds or 0) + int(asked.by or 0))
        workload.view = workload.view.model_copy(update={"time_limit_seconds": seconds})
        return _json(workload.view)

    async def _exec(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.commands.append(ExecOpening.model_validate_json(await socket.receive_str()))
        await socket.send_bytes(channels.encode(channels.ChannelResult(exit_code=3)))
        await socket.close()
        return socket

    async def _create_session(self, request: web.Request) -> web.Response:
        asked = SessionRequest.model_validate(request[BODY])
        view = workload_view(asked.name or "made-up", type=asked.type, replicas=asked.cluster_size)
        self.workloads[view.id] = FakeWorkload(view)
        accepted = WorkloadAccepted(
            id=view.id, name=view.name, status="PENDING", pool="default", simulated=False, message="accepted"
        )
        return _json(accepted, 202)

    async def _remove(self, request: web.Request) -> web.Response:
        workload = self.find(request.match_info["ref"])
        keep = request.query.get("keep") == "true"
        # Without force it waits for its node.
        ended = request.query.get("force") == "true" or not keep or workload.node_answers
        workload.become("CANCELLED" if ended else "TERMINATING", removed=not keep)
        return _json(WorkloadView(**workload.view.model_dump()), 202)

    async def _cancel_tasks(self, request: web.Request) -> web.Response:
        """Cancel pending tasks of an array, each index given by itself."""
        workload = self.find(request.match_info["ref"])
        cancelled = len(request.query["index"].split(","))
        workload.become("RUNNING", counts={"RUNNING": 1, "CANCELLED": cancelled})
        return _json(WorkloadView(**workload.view.model_dump()), 202)

    async def _quarantine(self, request: web.Request) -> web.Response:
        return _json(self.quarantine)

    async def _nodes(self, request: web.Request) -> web.Response:
        return _json(NodeList(nodes=list(self.nodes.values())))

    async def _add_node(self, request: web.Request) -> web.Response:
        asked = NodeRequest.model_validate(request[BODY])
        self.nodes[asked.name] = node_view(asked.name, simulated=True, region=asked.region)
        return _json(self.nodes[asked.name], 201)

    def _find_node(self, request: web.Request) -> NodeView:
        name = request.match_info["name"]
        if name not in self.nodes:
            raise Refusal(404, "not-found", f"there is no node {name!r}", {"noun": "node"})
        return self.nodes[name]

    async def _drain_preview(self, request: web.Request) -> web.Response:
        """Its tasks are replicas of `web`, of which one fits elsewhere."""
        node = self._find_node(request)
        tasks = [
            DrainEffect(
                task_id=uuid4(),
                workload_id=uuid4(),
                workload="web",
                index=index,
                user="ada",
                status="RUNNING",
                effect="moves",
                target=None if index else "node-2",
            )
            for index in range(node.tasks)
        ]
        return _json(DrainPreview(node=node.name, tasks=tasks, moves=node.tasks, waiting=max(0, node.tasks - 1)))

    async def _node(self, request: web.Request) -> web.Response:
        """As it is; one that is drained has a task less each time."""
        node = self._find_node(request)
        if node.draining and node.drained_at is None:
            left = max(0, node.tasks - 1)
            update = {"tasks": left, "drained_at": None if left else NOW}
            self.nodes[node.name] = node.model_copy(update=update)
        return _json(node)

    async def _drain(self, request: web.Request) -> web.Response:
        node = self._find_node(request)
        asked = DrainRequest.model_validate(request[BODY])
        until = None if asked.timeout_seconds is None else NOW + timedelta(seconds=asked.timeout_seconds)
        drain = {
            "status": "DRAINING",
            "draining": node.name not in self.undrained,
            "drain_reason": asked.reason,
            "drain_until": until,
        }
        self.nodes[node.name] = node.model_copy(update=drain)
        return _json(self.nodes[node.name])

    async def _taints(self, request: web.Request) -> web.Response:
        node = self._find_node(request)
        asked = TaintsChange.model_validate(request[BODY])
        gone = {each.key for each in asked.remove}
        taints = [taint for taint in node.taints if taint.key not in gone]
        taints += [TaintView(**taint.model_dump(), since=NOW) for taint in asked.add]
        self.nodes[node.name] = node.model_copy(update={"taints": taints})
        return _json(self.nodes[node.name])

    async def _resume(self, request: web.Request) -> web.Response:
        node = self._find_node(request)
        self.nodes[node.name] = node.model_copy(update={"status": "READY", "schedulable": True, "draining": False})
        return _json(self.nodes[node.name])

    async def _remove_node(self, request: web.Request) -> web.Response:
        node = self._find_node(request)
        if node.tasks and request.query.get("force") != "true":
            raise Refusal(409, "node-busy", f"{node.tasks} tasks are charged to {node.name}")
        del self.nodes[node.name]
        return web.Response(status=204)

    async def _pools(self, request: web.Request) -> web.Response:
        return _json(PoolList(pools=list(self.pools.values())))

    async def _pool(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.pools:
            raise Refusal(404, "not-found", f"there is no pool {name!r}", {"noun": "pool"})
        return _json(self.pools[name])

    async def _create_pool(self, request: web.Request) -> web.Response:
        asked = PoolRequest.model_validate(request[BODY])
        self.pools[asked.name] = pool_view(asked.name, runtimes=asked.runtimes, sequencer=asked.sequencer or "fifo")
        return _json(self.pools[asked.name], 201)

    async def _change_pool(self, request: web.Request) -> web.Response:
        PoolChange.model_validate(request[BODY])
        return web.Response(status=204)

    async def _templates(self, request: web.Request) -> web.Response:
        return _json(TemplateList(templates=list(self.templates.values())))

    async def _put_template(self, request: web.Request) -> web.Response:
        asked = TemplateRequest.model_validate(request[BODY])
        name = request.match_info["template"]
        self.templates[name] = TemplateView(
            **asked.model_dump(exclude={"resources", "runtimes", "devices"}),
            name=name,
            pool=request.match_info["name"],
            resources={slot: str(amount) for slot, amount in asked.resources.items()},
            runtimes=asked.runtimes or ["process"],
            version=1,
        )
        return _json(self.templates[name])

    async def _remove_template(self, request: web.Request) -> web.Response:
        if self.templates.pop(request.match_info["template"], None) is None:
            raise Refusal(404, "not-found", "there is no such template")
        return web.Response(status=204)

    async def _scaling(self, request: web.Request) -> web.Response:
        return _json(self.scaling)

    async def _pause_pool(self, request: web.Request) -> web.Response:
        reason = PauseRequest.model_validate(request[BODY]).reason
        return await self._set_pool(request, {"paused": True, "paused_reason": reason})

    async def _resume_pool(self, request: web.Request) -> web.Response:
        return await self._set_pool(request, {"paused": False, "paused_reason": None})

    async def _set_pool(self, request: web.Request, values: dict[str, Any]) -> web.Response:
        await self._pool(request)
        name = request.match_info["name"]
        self.pools[name] = self.pools[name].model_copy(update=values)
        return web.Response(status=204)

    async def _remove_pool(self, request: web.Request) -> web.Response:
        await self._pool(request)
        del self.pools[request.match_info["name"]]
        return web.Response(status=204)

    async def _usage(self, request: web.Request) -> web.Response:
        line = accounting.UsageLine(name="lab/vision", slot="cpu", amount_seconds=5_400_000, hours="1.500", unit="1")
        line = line.model_copy(update={"measured_hours": "0.250"})
        memory = accounting.UsageLine(name="lab/vision", slot="memory", amount_seconds=1, hours="0.000", unit="Gi")
        by = By(request.query["by"])
        return _json(accounting.UsageReport(by=by, since=NOW.date(), until=NOW.date(), usage=[line, memory]))

    async def _task_use(self, request: web.Request) -> web.Response:
        measured = task_use(0, cpu_millicores=1300, memory_bytes=3 << 29, memory_asked_bytes=2 << 30, age_seconds=3.0)
        measured = measured.model_copy(update={"read_per_second": 4096, "written_per_second": 0})
        return _json(accounting.TaskUseList(tasks=[measured, task_use(1)], total=2))

    async def _records(self, request: web.Request) -> web.Response:
        return _json(accounting.WorkloadRecordList(workloads=[workload_record("job")]))

    async def _free(self, request: web.Request) -> web.Response:
        return _json(self.free_capacity)

    async def _what_if(self, request: web.Request) -> web.Response:
        assert self.what_if is not None
        return _json(self.what_if)

    async def _timeline(self, request: web.Request) -> web.Response:
        return _json(self.timeline)

    async def _join_token(self, request: web.Request) -> web.Response:
        asked = JoinTokenRequest.model_validate(request[BODY])
        return _json(JoinToken(token="join-1", name=asked.name, pool=asked.pool, expires_at=NOW), 201)

    async def _health(self, request: web.Request) -> web.Response:
        health = Health(status="ok", role="all", version="9.9", last_pass_at=None, last_pass_ms=None, passes=0)
        return _json(health)

    async def _ready(self, request: web.Request) -> web.Response:
        checks = {"database": "ok" if self.ready else "does not answer"}
        return _json(Ready(ready=self.ready, checks=checks), 200 if self.ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text="mooring_passes_total 3\n")

    async def _shares(self, request: web.Request) -> web.Response:
        return _json(self.shares)

    async def _set_weight(self, request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _occupancy(self, request: web.Request) -> web.Response:
        return _json(self.occupancy)

    async def _quotas(self, request: web.Request) -> web.Response:
        return _json(self.quotas)

    async def _audit(self, request: web.Request) -> web.Response:
        return _json(self.report)

    async def _repair(self, request: web.Request) -> web.Response:
        before = self.report
        changes = [
            AuditChange(table="node_resources", row=finding.subject, column="used", before="3", after="2", why="sum")
            for finding in before.findings
        ]
        if request.query.get("dry_run") == "true":
            return _json(before.model_copy(update={"changes": changes}))
        self.report = AuditReport(clean=True, checked=before.checked, findings=[])
        return _json(self.report.model_copy(update={"repaired": len(changes), "changes": changes}))

    async def _leader(self, request: web.Request) -> web.Response:
        leader, *others = self.servers
        standbys = [server for server in others if server.standing == "standby"]
        return _json(
            LeaderView(
                name=leader.name,
                term=self.term,
                since=NOW,
                coordination="database",
                url=leader.url,
                silent=False,
                standbys=standbys,
            )
        )

    async def _servers(self, request: web.Request) -> web.Response:
        return _json(ServerList(servers=self.servers))

    async def _loops(self, request: web.Request) -> web.Response:
        return _json(LoopList(loops=self.loops, start_errors=self.start_errors))

    async def _resign(self, request: web.Request) -> web.Response:
        if len(self.servers) == 1:
            raise Refusal(409, "no-standby", "no other server stands by to lead")
        self.term += 1
        self.servers.append(self.servers.pop(0))
        return web.Response(status=204)

    async def _pass(self, request: web.Request) -> web.Response:
        return _json(PassView(placed=1, impossible=0, waiting=2, seconds=0.25))


def running(workload: FakeWorkload) -> None:
    workload.become("RUNNING")


def succeeded(workload: FakeWorkload) -> None:
    workload.become("SUCCEEDED", exit_code=0)


def failed(exit_code: int | None, **changes: Any) -> Step:
    return lambda workload: workload.become("FAILED", exit_code=exit_code, **changes)


def waits(code: str, message: str, **more: Any) -> Step:
    reason = {"code": code, "message": message, "by": "fit", "cure": "release", "details": {}, **more}
    return lambda workload: workload.become("PENDING", reason=reason)


def workload_view(name: str, **fields: Any) -> WorkloadDetail:
    replicas = fields.get("replicas", 1)
    values: dict[str, Any] = {
        "id": uuid4(),
        "name": name,
        "kind": "session",
        "type": "batch",
        "status": "PENDING",
        "simulated": False,
        "pool": "default",
        "project": "default",
        "user": "admin",
        "image": None,
        "command": ["true"],
        "replicas": replicas,
        "running": 0,
        "resources": {"cpu": "1", "memory": "1Gi"},
        "region": None,
        "priority": 10,
        "labels": {},
        "reason": None,
        "created_at": NOW,
        "started_at": None,
        "ended_at": None,
        "removed": False,
        "version": 1,
        "tasks": [task_view(index) for index in range(replicas)],
        **fields,
    }
    return WorkloadDetail(**values)


def task_use(index: int, **fields: Any) -> accounting.TaskUse:
    """A task that asked for eight cores and was not measured, unless the fields say so."""
    unknown = dict.fromkeys(accounting.TaskUse.model_fields)
    known = {"task_id": uuid4(), "workload_id": uuid4(), "workload": "web", "index": index, "user": "ada"}
    place = {"project": "vision", "pool": "default", "node": f"n{index + 1}", "cpu_asked_millicores": 8000}
    return accounting.TaskUse(**{**unknown, "devices": {}, **known, **place, **fields})


def workload_record(name: str) -> accounting.WorkloadRecord:
    return accounting.WorkloadRecord(
        id=UUID(int=1),
        name=name,
        kind="session",
        type="batch",
        domain="lab",
        project="vision",
        user="ada",
        access_key="key",
        pool="default",
        priority=10,
        tasks=2,
        attempts=3,
        requested={"cpu": "1"},
        peak={"cpu": "2"},
        nodes=["n1", "n2"],
        status="FAILED",
        reason={"code": "exit", "message": "ended with 1"},
        created_at=NOW,
        started_at=NOW,
        ended_at=NOW,
        wait_seconds=90,
        run_seconds=7200,
    )


def explanation(**fields: Any) -> Explanation:
    """Of a workload that one of three nodes could take."""
    values: dict[str, Any] = {
        "id": None,
        "name": "",
        "status": None,
        "pool": "default",
        "simulated": False,
        "outcome": "placed",
        "summary": "1 of 3 nodes: 1 lacks 2 cpu (best has 1), 1 not ready",
        "reason": None,
        "nodes": 3,
        "candidates": 1,
        "removed": [removed("resources", "1 lacks 2 cpu (best has 1)"), removed("ready", "1 not ready")],
        "weights": {"resources": 40, "load": 30},
        "winner": {"node": "node-1", "score": 0.875, "scores": {"resources": 0.75, "load": 1.0}},
        "runner_up": None,
        "nearest_misses": [{"node": "node-2", "rejections": [removed("resources", "1 lacks 2 cpu (best has 1)")]}],
        "placed_on": [],
        "tasks": [{"index": 0, "node": "node-1", "status": "PLACED", "score": 0.875, "ports": [2000]}],
        **fields,
    }
    return Explanation.model_validate(values)


def removed(by: str, words: str) -> dict[str, Any]:
    return {"by": by, "nodes": 1, "code": by, "words": words, "cure": "release", "details": {}}


def task_view(index: int, **fields: Any) -> TaskView:
    values: dict[str, Any] = {
        "id": uuid4(),
        "index": index,
        "attempt": 1,
        "current": True,
        "status": "PENDING",
        "node": None,
        "score": 0.5,
        "exit_code": None,
        "restarts": 0,
        "reason": None,
        "created_at": NOW,
        "started_at": None,
        "ended_at": None,
        **fields,
    }
    return TaskView(**values)


def pool_view(name: str, **other: Any) -> PoolView:
    usual: dict[str, Any] = {"simulated": False, "runtimes": ["process"], "profile": "locality", "nodes": 1}
    return PoolView(name=name, binding="optimistic", hold_seconds=60, fragmentation=False, **(usual | other))


def server_view(name: str, standing: Literal["leader", "standby", "api", "silent"]) -> ServerView:
    return ServerView(
        name=name,
        role="api" if standing == "api" else "all",
        standing=standing,
        url=f"http://{name}:8000",
        version="1.2",
        started_at=NOW,
        last_seen_at=NOW,
    )


def node_view(name: str, **fields: Any) -> NodeView:
    slot = SlotView(capacity="8", allocatable="8", held="0", reserved="0", used="2", free="6")
    values: dict[str, Any] = {
        "id": uuid4(),
        "name": name,
        "pool": "default",
        "status": "READY",
        "schedulable": True,
        "reason": None,
        "simulated": False,
        "region": None,
        "architecture": "x86_64",
        "runtimes": ["process"],
        "labels": {},
        "slots": {"cpu": slot},
        "enforces": {},
        "tasks": 0,
        "cpu_percent": 10.0,
        "memory_percent": 20.0,
        "last_seen_at": NOW,
        "owner": None,
        **fields,
    }
    return NodeView(**values)


def user_view(name: str, **fields: Any) -> UserView:
    values: dict[str, Any] = {
        "id": uuid4(),
        "username": name,
        "role": "user",
        "active": True,
        "domain": "default",
        "project": "default",
        "os_user": None,
        "created_at": NOW,
        **fields,
    }
    return UserView(**values)


def _timed(lines: list[tuple[datetime, bytes]], query: Mapping[str, str]) -> bytes:
    since = datetime.fromisoformat(query.get("since", "1970-01-01T00:00:00+00:00"))
    shown = [(stamp(at.timestamp()) if "timestamps" in query else b"", line) for at, line in lines if at >= since]
    return b"".join(part for marked in shown for part in marked)


async def _until(condition: Callable[[], bool], *, seconds: float = 30) -> None:
    # Tests change the state from their own thread, so it is looked at again and again.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.02)


def _json(body: BaseModel, status: int = 200) -> web.Response:
    return web.Response(text=body.model_dump_json(), status=status, content_type="application/json")


def event_view(number: int, **more: Any) -> EventView:
    fields: dict[str, Any] = {
        "cursor": f"7-{number}", "revision": number, "noun": "workload", "id": UUID(int=number), "version": 1,
        "kind": "PENDING", "at": NOW, "workload": f"w{number}",
    }  # fmt: skip
    return EventView(**{**fields, **more})
