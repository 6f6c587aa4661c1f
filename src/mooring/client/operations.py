"""Every operation of the API, once: a function that says what is sent and what comes back. The clients send it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pydantic import BaseModel

from mooring.model.accounting import By
from mooring.model.errors import InvalidInput
from mooring.wire import accounting, api
from mooring.wire import sessions as sessions_wire
from mooring.wire.explanation import Explanation

T = TypeVar("T")

WaitFor = Literal["ended", "running", "changed"]
LONG_POLL_SECONDS = 25.0
# The server says something at least every 15 seconds.
_SILENT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One request and the type of its answer: a schema, `str` for text as it came, or None for nothing."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
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


# --- auth ---------------------------------------------------------------------------------------------------------


def log_in(username: str, password: str) -> Operation[api.Token]:
    body = api.LoginRequest(username=username, password=password)
    return Operation("POST", "/api/auth/login", api.Token, body=body, authenticated=False)


def renew() -> Operation[api.Token]:
    """A fresh token for the one that is sent."""
    return Operation("POST", "/api/auth/renew", api.Token)


def change_password(old_password: str, new_password: str) -> Operation[api.Token]:
    """Ends every token of the user; the answer is a new one."""
    body = api.PasswordChange(old_password=old_password, new_password=new_password)
    return Operation("POST", "/api/auth/password", api.Token, body=body)


def me() -> Operation[api.UserView]:
    """Who the token belongs to."""
    return Operation("GET", "/api/auth/me", api.UserView)


def create_user(request: api.UserRequest) -> Operation[api.UserCreated]:
    return Operation("POST", "/api/users", api.UserCreated, body=request)


def users() -> Operation[list[api.UserView]]:
    return Operation("GET", "/api/users", list[api.UserView])


def change_user(username: str, change: api.UserChange) -> Operation[api.UserView]:
    return Operation("PATCH", f"/api/users/{_segment(username)}", api.UserView, body=change)


# --- workloads ----------------------------------------------------------------------------------------------------


def submit(request: api.WorkloadRequest, *, key: str | None = None) -> Operation[api.WorkloadAccepted]:
    """Ask for a workload; it is accepted at once and placed soon after. Every call has a key of its own."""
    return Operation("POST", "/api/workloads", api.WorkloadAccepted, body=request, key=key or uuid4().hex)


def submit_batch(requests: Sequence[api.WorkloadRequest], *, key: str | None = None) -> Operation[api.BatchAccepted]:
    """Ask for up to 1,000 workloads at once; the answer says of each whether it was accepted."""
    body = api.BatchRequest(workloads=list(requests))
    return Operation("POST", "/api/workloads/batch", api.BatchAccepted, body=body, key=key or uuid4().hex)


def dry_run(request: api.WorkloadRequest) -> Operation[Explanation]:
    """What would become of a workload now; nothing is submitted."""
    return Operation("POST", "/api/workloads/dry-run", Explanation, body=request)


def workloads(
    *,
    status: str | None = None,
    kind: str | None = None,
    name: str | None = None,
    all: bool = False,
    everyone: bool = False,
    limit: int | None = None,
    offset: int | None = None,
    sort: str | None = None,
) -> Operation[api.WorkloadList]:
    """One's own workloads; with `all` those that ended longer ago, too; with `everyone` those of all users."""
    query = _query(
        status=status,
        kind=kind,
        name=name,
        all=all or None,
        everyone=everyone or None,
        limit=limit,
        offset=offset,
        sort=sort,
    )
    return Operation("GET", "/api/workloads", api.WorkloadList, query=query)


def workload(ref: str) -> Operation[api.WorkloadDetail]:
    """One workload by id or name, with its tasks."""
    return Operation("GET", _workload_path(ref), api.WorkloadDetail)


def explanation(ref: str) -> Operation[Explanation]:
    """Why a workload waits, or how its nodes compare with the others."""
    return Operation("GET", _workload_path(ref, "explanation"), Explanation)


def history(ref: str) -> Operation[api.HistoryList]:
    return Operation("GET", _workload_path(ref, "history"), api.HistoryList)


def wait(
    ref: str,
    wait_for: WaitFor = "ended",
    *,
    version: int | None = None,
    timeout_seconds: float = LONG_POLL_SECONDS,
) -> Operation[api.WorkloadDetail]:
    """The workload as soon as it has ended, runs or differs from `version`, or when the time is over: look at it."""
    query = _query(**{"for": wait_for}, version=version, timeout=max(timeout_seconds, 0.0))
    return Operation(
        "GET", _workload_path(ref, "wait"), api.WorkloadDetail, query=query, holds_seconds=max(timeout_seconds, 0.0)
    )


def scale(ref: str, replicas: int) -> Operation[api.WorkloadView]:
    body = api.ScaleRequest(replicas=replicas)
    return Operation("POST", _workload_path(ref, "scale"), api.WorkloadView, body=body)


def remove(ref: str, *, force: bool = False) -> Operation[api.WorkloadView]:
    """Stop a workload and take it off the list; its history stays. With `force` without waiting for its nodes."""
    return Operation("DELETE", _workload_path(ref), api.WorkloadView, query=_query(force=force or None))


def cancel(ref: str, *, force: bool = False) -> Operation[api.WorkloadView]:
    """Stop a workload and leave it on the list. With `force` without waiting for its nodes."""
    return Operation("DELETE", _workload_path(ref), api.WorkloadView, query=_query(keep=True, force=force or None))


def tasks(
    ref: str, *, status: str | None = None, limit: int | None = None, offset: int | None = None
) -> Operation[api.TaskList]:
    """The newest attempts at a workload's tasks by index, page by page: an array may have very many."""
    query = _query(status=status, limit=limit, offset=offset)
    return Operation("GET", _workload_path(ref, "tasks"), api.TaskList, query=query)


def extend(ref: str, *, time: str | int | None = None, by: str | int | None = None) -> Operation[api.WorkloadDetail]:
    """Change the time limit of a session to `time`, or make it longer `by` so much."""
    given = {name: value for name, value in (("time", time), ("by", by)) if value is not None}
    body = sessions_wire.ExtendRequest(**given)
    return Operation("POST", _workload_path(ref, "extend"), api.WorkloadDetail, body=body)


def logs(ref: str, *, task: int | None = None, tail: int | None = None, follow: bool = False) -> Stream:
    """The output of one task as bytes; with `follow` until the task has ended."""
    return Stream(_workload_path(ref, "logs"), _query(task=task, tail=tail, follow=follow or None))


# --- sessions -----------------------------------------------------------------------------------------------------


def create_session(request: sessions_wire.SessionRequest, *, key: str | None = None) -> Operation[api.WorkloadAccepted]:
    """Ask for a session; it is accepted at once and placed soon after. Every call has a key of its own."""
    return Operation("POST", "/api/sessions", api.WorkloadAccepted, body=request, key=key or uuid4().hex)


def sessions(
    *,
    status: str | None = None,
    type: str | None = None,
    all: bool = False,
    everyone: bool = False,
    limit: int | None = None,
    offset: int | None = None,
) -> Operation[api.WorkloadList]:
    """One's own sessions; with `all` those that ended longer ago, too; with `everyone` those of all users."""
    query = _query(status=status, type=type, all=all or None, everyone=everyone or None, limit=limit, offset=offset)
    return Operation("GET", "/api/sessions", api.WorkloadList, query=query)


def session(ref: str) -> Operation[api.WorkloadDetail]:
    return Operation("GET", f"/api/sessions/{_segment(ref)}", api.WorkloadDetail)


def cancel_session(ref: str, *, force: bool = False) -> Operation[api.WorkloadView]:
    """Stop a session and take it off the list; its history stays. With `force` without waiting for its nodes."""
    return Operation("DELETE", f"/api/sessions/{_segment(ref)}", api.WorkloadView, query=_query(force=force or None))


# --- events -------------------------------------------------------------------------------------------------------


def event_page(
    since: str | None = None, *, limit: int | None = None, expand: bool = False, workload: str | None = None
) -> Operation[api.EventList]:
    """The events after a cursor, or the oldest that are kept."""
    query = _query(since=since, limit=limit, expand=expand or None, workload=workload)
    return Operation("GET", "/api/events", api.EventList, query=query)


def events(since: str | None = None, *, expand: bool = False, workload: str | None = None) -> Stream:
    """Events as server-sent events from a cursor, or from now on."""
    query = _query(since=since, expand=expand or None, workload=workload)
    return Stream("/api/events/stream", query, silent_seconds=_SILENT_SECONDS)


# --- nodes, pools, tokens -----------------------------------------------------------------------------------------


def nodes() -> Operation[api.NodeList]:
    return Operation("GET", "/api/nodes", api.NodeList)


def node(name: str) -> Operation[api.NodeView]:
    return Operation("GET", f"/api/nodes/{_segment(name)}", api.NodeView)


def add_node(request: api.NodeRequest) -> Operation[api.NodeView]:
    """A simulated node; real ones join by `mooring agent`."""
    return Operation("POST", "/api/nodes", api.NodeView, body=request)


def drain_node(name: str) -> Operation[api.NodeView]:
    """Nothing new is placed on it, and what runs there leaves."""
    return Operation("POST", f"/api/nodes/{_segment(name)}/drain", api.NodeView)


def resume_node(name: str) -> Operation[api.NodeView]:
    return Operation("POST", f"/api/nodes/{_segment(name)}/resume", api.NodeView)


def remove_node(name: str, *, force: bool = False) -> Operation[None]:
    """With `force` even while tasks are charged to it."""
    return Operation("DELETE", f"/api/nodes/{_segment(name)}", type(None), query=_query(force=force or None))


def change_pool(name: str, change: api.PoolChange) -> Operation[None]:
    return Operation("PATCH", f"/api/pools/{_segment(name)}", type(None), body=change)


def pools() -> Operation[api.PoolList]:
    return Operation("GET", "/api/pools", api.PoolList)


def create_join_token(request: api.JoinTokenRequest) -> Operation[api.JoinToken]:
    """What one agent needs to join, once."""
    return Operation("POST", "/api/join-tokens", api.JoinToken, body=request)


# --- accounting -----------------------------------------------------------------------------------------------------


def usage(
    by: By = By.PROJECT, *, since: date | None = None, until: date | None = None, pool: str | None = None
) -> Operation[accounting.UsageReport]:
    """What was used on these days, in slot hours."""
    query = _query(by=by, since=since, until=until, pool=pool)
    return Operation("GET", "/api/usage", accounting.UsageReport, query=query)


def workload_records(
    *, since: date | None = None, until: date | None = None, pool: str | None = None, limit: int | None = None
) -> Operation[accounting.WorkloadRecordList]:
    """What is left of workloads that ended on these days, the last first."""
    query = _query(since=since, until=until, pool=pool, limit=limit)
    return Operation("GET", "/api/usage/workloads", accounting.WorkloadRecordList, query=query)


def free(pool: str | None = None) -> Operation[accounting.Room]:
    """The largest requests that would start now."""
    return Operation("GET", "/api/free", accounting.Room, query=_query(pool=pool))


# --- the server itself --------------------------------------------------------------------------------------------


def health() -> Operation[api.Health]:
    return Operation("GET", "/health", api.Health, authenticated=False)


def ready() -> Operation[api.Ready]:
    """Whether the server can work; the answer comes in either case."""
    return Operation("GET", "/ready", api.Ready, authenticated=False, also_answers=frozenset({503}))


def metrics() -> Operation[str]:
    """The server's metrics in Prometheus' text format."""
    return Operation("GET", "/metrics", str, authenticated=False)


def audit() -> Operation[api.AuditReport]:
    """Whether ledger, counters and readable copies agree."""
    return Operation("GET", "/api/audit", api.AuditReport)


def repair() -> Operation[api.AuditReport]:
    """Audit, and set counters and readable copies right from the ledger."""
    return Operation("POST", "/api/audit/repair", api.AuditReport)


def _workload_path(ref: str, *rest: str) -> str:
    return "/".join(("/api/workloads", _segment(ref), *rest))


def _segment(text: str) -> str:
    # Nothing and dots alone would lead to another path.
    if not text.strip("."):
        raise InvalidInput(f"{text!r} is not a name or an id", code="invalid-name")
    return quote(text, safe="")


def _query(**values: Any) -> dict[str, str]:
    return {name: _written(value) for name, value in values.items() if value is not None}


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
