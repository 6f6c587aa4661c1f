"""Every operation of the API, once: a function that says what is sent and what comes back. The clients send it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import uuid4

from mooring.client.operation import Operation, Stream, given, segment
from mooring.wire import api
from mooring.wire import operations as wire_operations
from mooring.wire import pools as wire_pools
from mooring.wire import sessions as sessions_wire
from mooring.wire.explanation import Explanation
from mooring.wire.quarantine import QuarantineEnd, QuarantineList
from mooring.wire.quotas import QuotaChange, QuotaView
from mooring.wire.tenants import RevertRequest
from mooring.wire.workloads import SessionRequest

WaitFor = Literal["ended", "running", "changed"]
LONG_POLL_SECONDS = 25.0
# The server says something at least every 15 seconds.
_SILENT_SECONDS = 60.0


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


def users(*, domain: str | None = None) -> Operation[list[api.UserView]]:
    return Operation("GET", "/api/users", list[api.UserView], query=given(domain=domain))


def user(username: str) -> Operation[api.UserView]:
    return Operation("GET", f"/api/users/{segment(username)}", api.UserView)


def change_user(username: str, change: api.UserChange) -> Operation[api.UserView]:
    return Operation("PATCH", f"/api/users/{segment(username)}", api.UserView, body=change)


def remove_user(username: str) -> Operation[None]:
    """Only where nothing tells of the user any more; otherwise deactivate it."""
    return Operation("DELETE", f"/api/users/{segment(username)}", type(None))


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
    query = given(
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


def compare(ref: str, request: api.WorkloadRequest) -> Operation[api.Comparison]:
    """Where a workload differs from what a request would make; nothing changes."""
    return Operation("POST", _workload_path(ref, "comparison"), api.Comparison, body=request)


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
    query = given(**{"for": wait_for}, version=version, timeout=max(timeout_seconds, 0.0))
    return Operation(
        "GET", _workload_path(ref, "wait"), api.WorkloadDetail, query=query, holds_seconds=max(timeout_seconds, 0.0)
    )


def scale(ref: str, replicas: int) -> Operation[api.WorkloadView]:
    body = api.ScaleRequest(replicas=replicas)
    return Operation("POST", _workload_path(ref, "scale"), api.WorkloadView, body=body)


def tasks(
    ref: str, *, status: str | None = None, limit: int | None = None, offset: int | None = None
) -> Operation[api.TaskList]:
    """The newest attempts at a workload's tasks by index, page by page: an array may have very many."""
    query = given(status=status, limit=limit, offset=offset)
    return Operation("GET", _workload_path(ref, "tasks"), api.TaskList, query=query)


def extend(ref: str, *, time: str | int | None = None, by: str | int | None = None) -> Operation[api.WorkloadDetail]:
    """Change the time limit of a session to `time`, or make it longer `by` so much."""
    body = sessions_wire.ExtendRequest(**{name: value for name, value in (("time", time), ("by", by)) if value})
    return Operation("POST", _workload_path(ref, "extend"), api.WorkloadDetail, body=body)


def remove(ref: str, *, force: bool = False) -> Operation[api.WorkloadView]:
    """Stop a workload and take it off the list; its history stays. With `force` without waiting for its nodes."""
    return Operation("DELETE", _workload_path(ref), api.WorkloadView, query=given(force=force or None))


def cancel(ref: str, *, force: bool = False) -> Operation[api.WorkloadView]:
    """Stop a workload and leave it on the list. With `force` without waiting for its nodes."""
    return Operation("DELETE", _workload_path(ref), api.WorkloadView, query=given(keep=True, force=force or None))


def logs(
    ref: str,
    *,
    task: int | None = None,
    attempt: int | None = None,
    tail: int | None = None,
    follow: bool = False,
    container: str | None = None,
) -> Stream:
    """The output of one task as bytes; with `follow` until the task has ended."""
    query = given(task=task, attempt=attempt, tail=tail, follow=follow or None, container=container)
    return Stream(_workload_path(ref, "logs"), query)


# --- sessions -----------------------------------------------------------------------------------------------------


def create_session(request: SessionRequest, *, key: str | None = None) -> Operation[api.WorkloadAccepted]:
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
    query = given(status=status, type=type, all=all or None, everyone=everyone or None, limit=limit, offset=offset)
    return Operation("GET", "/api/sessions", api.WorkloadList, query=query)


def session(ref: str) -> Operation[api.WorkloadDetail]:
    return Operation("GET", f"/api/sessions/{segment(ref)}", api.WorkloadDetail)


def cancel_session(ref: str, *, force: bool = False) -> Operation[api.WorkloadView]:
    """Stop a session and take it off the list; its history stays. With `force` without waiting for its nodes."""
    return Operation("DELETE", f"/api/sessions/{segment(ref)}", api.WorkloadView, query=given(force=force or None))


# --- events -------------------------------------------------------------------------------------------------------


def event_page(
    since: str | None = None, *, limit: int | None = None, expand: bool = False, workload: str | None = None
) -> Operation[api.EventList]:
    """The events after a cursor, or the oldest that are kept."""
    query = given(since=since, limit=limit, expand=expand or None, workload=workload)
    return Operation("GET", "/api/events", api.EventList, query=query)


def events(since: str | None = None, *, expand: bool = False, workload: str | None = None) -> Stream:
    """Events as server-sent events from a cursor, or from now on."""
    query = given(since=since, expand=expand or None, workload=workload)
    return Stream("/api/events/stream", query, silent_seconds=_SILENT_SECONDS)


# --- nodes, pools, tokens -----------------------------------------------------------------------------------------


def nodes() -> Operation[api.NodeList]:
    return Operation("GET", "/api/nodes", api.NodeList)


def node(name: str) -> Operation[api.NodeView]:
    return Operation("GET", f"/api/nodes/{segment(name)}", api.NodeView)


def add_node(request: api.NodeRequest) -> Operation[api.NodeView]:
    """A simulated node; real ones join by `mooring agent`."""
    return Operation("POST", "/api/nodes", api.NodeView, body=request)


def drain_node(name: str, *, timeout_seconds: int | None = None, reason: str | None = None) -> Operation[api.NodeView]:
    """Nothing new is placed on it, and what runs there leaves; what is still there after so many seconds is ended."""
    body = api.DrainRequest(timeout_seconds=timeout_seconds, reason=reason)
    return Operation("POST", f"/api/nodes/{segment(name)}/drain", api.NodeView, body=body)


def change_taints(name: str, change: api.TaintsChange) -> Operation[api.NodeView]:
    return Operation("PATCH", f"/api/nodes/{segment(name)}/taints", api.NodeView, body=change)


def resume_node(name: str) -> Operation[api.NodeView]:
    return Operation("POST", f"/api/nodes/{segment(name)}/resume", api.NodeView)


def remove_node(name: str, *, force: bool = False) -> Operation[None]:
    """With `force` even while tasks are charged to it."""
    return Operation("DELETE", f"/api/nodes/{segment(name)}", type(None), query=given(force=force or None))


def quarantine() -> Operation[QuarantineList]:
    """The tasks that nodes run unknown to the database."""
    return Operation("GET", "/api/quarantine", QuarantineList)


def end_quarantined(request: QuarantineEnd) -> Operation[QuarantineList]:
    """Let a task, those of a node, or all of them be ended; what is still there afterwards."""
    return Operation("POST", "/api/quarantine/end", QuarantineList, body=request)


def pools() -> Operation[wire_pools.PoolList]:
    return Operation("GET", "/api/pools", wire_pools.PoolList)


def pool(name: str) -> Operation[wire_pools.PoolView]:
    return Operation("GET", f"/api/pools/{segment(name)}", wire_pools.PoolView)


def create_pool(request: wire_pools.PoolRequest) -> Operation[wire_pools.PoolView]:
    return Operation("POST", "/api/pools", wire_pools.PoolView, body=request)


def change_pool(name: str, change: wire_pools.PoolChange) -> Operation[None]:
    return Operation("PATCH", f"/api/pools/{segment(name)}", type(None), body=change)


def pause_pool(name: str, *, reason: str | None = None) -> Operation[None]:
    """Nothing of it is placed until it is resumed; what runs goes on."""
    body = wire_pools.PauseRequest(reason=reason)
    return Operation("POST", f"/api/pools/{segment(name)}/pause", type(None), body=body)


def resume_pool(name: str) -> Operation[None]:
    return Operation("POST", f"/api/pools/{segment(name)}/resume", type(None))


def remove_pool(name: str) -> Operation[None]:
    return Operation("DELETE", f"/api/pools/{segment(name)}", type(None))


def quotas() -> Operation[QuotaView]:
    """Every limit that holds for one's own work, with what is in use and what is left."""
    return Operation("GET", "/api/quotas", QuotaView)


def quota(scope: str, tenant: str) -> Operation[QuotaView]:
    """The limits of a tenant: a keypair by its access key, another by its name or id."""
    return Operation("GET", f"/api/quotas/{segment(scope)}/{segment(tenant)}", QuotaView)


def change_quota(scope: str, tenant: str, change: QuotaChange) -> Operation[QuotaView]:
    return Operation("PUT", f"/api/quotas/{segment(scope)}/{segment(tenant)}", QuotaView, body=change)


def revert_quota(scope: str, tenant: str, *, version: int | None = None) -> Operation[QuotaView]:
    """The quota of an earlier version again; without one, that before the last change."""
    path = f"/api/quotas/{segment(scope)}/{segment(tenant)}/revert"
    return Operation("POST", path, QuotaView, body=RevertRequest(version=version))


def create_join_token(request: api.JoinTokenRequest) -> Operation[api.JoinToken]:
    """What one agent needs to join, once."""
    return Operation("POST", "/api/join-tokens", api.JoinToken, body=request)


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


def leader() -> Operation[wire_operations.LeaderView]:
    """Who leads since when, and who would take its place."""
    return Operation("GET", "/api/leader", wire_operations.LeaderView)


def servers() -> Operation[wire_operations.ServerList]:
    return Operation("GET", "/api/servers", wire_operations.ServerList)


def loops() -> Operation[wire_operations.LoopList]:
    """What each loop of the leader did last."""
    return Operation("GET", "/api/loops", wire_operations.LoopList)


def resign() -> Operation[None]:
    """Let this server, which must lead, hand over to another."""
    return Operation("POST", "/api/leader/resign", type(None))


def run_pass() -> Operation[wire_operations.PassView]:
    """Let this server, which must lead, try everything that waits at once."""
    return Operation("POST", "/api/leader/pass", wire_operations.PassView)


def _workload_path(ref: str, *rest: str) -> str:
    return "/".join(("/api/workloads", segment(ref), *rest))
