"""The operations of the API, each defined once as a request and the type of its answer. The clients send them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import uuid4

from mooring.client.operations.operation import (
    Operation,
    Stream,
    given,
    segment,
)
from mooring.wire.cluster import operations as wire_operations
from mooring.wire.cluster import pools as wire_pools
from mooring.wire.cluster.audit import AuditReport
from mooring.wire.cluster.events import EventList
from mooring.wire.cluster.health import Health, Ready
from mooring.wire.cluster.nodes import (
    DrainPreview,
    DrainRequest,
    JoinToken,
    JoinTokenRequest,
    NodeChange,
    NodeList,
    NodeRequest,
    NodeView,
    TaintsChange,
)
from mooring.wire.cluster.quarantine import QuarantineEnd, QuarantineList
from mooring.wire.tenancy.quotas import QuotaChange, QuotaView
from mooring.wire.tenancy.shares import OccupancyReport, ShareList, WeightRequest
from mooring.wire.tenancy.tenants import RevertRequest
from mooring.wire.tenancy.users import (
    LoginCode,
    LoginRequest,
    LoginView,
    PasswordChange,
    Token,
    UserChange,
    UserCreated,
    UserRequest,
    UserView,
)
from mooring.wire.workloads import sessions as sessions_wire
from mooring.wire.workloads.batches import BatchAccepted, BatchRequest
from mooring.wire.workloads.explanation import Explanation
from mooring.wire.workloads.history import HistoryList
from mooring.wire.workloads.tasks import TaskList
from mooring.wire.workloads.workload_fields import SessionRequest
from mooring.wire.workloads.workloads import (
    TIMES_NOTED,
    Comparison,
    ScaleRequest,
    WorkloadAccepted,
    WorkloadDetail,
    WorkloadList,
    WorkloadRequest,
    WorkloadView,
)

WaitFor = Literal["ended", "running", "changed"]
LONG_POLL_SECONDS = 25.0
# The server says something at least every 15 seconds.
_SILENT_SECONDS = 60.0


# --- auth ---------------------------------------------------------------------------------------------------------


def log_in(username: str, password: str) -> Operation[Token]:
    body = LoginRequest(username=username, password=password)
    return Operation("POST", "/api/auth/login", Token, body=body, authenticated=False)


def renew() -> Operation[Token]:
    """A fresh token for the one that is sent."""
    return Operation("POST", "/api/auth/renew", Token)


def change_password(old_password: str, new_password: str, *, revoke_keypairs: bool = False) -> Operation[Token]:
    """Ends every token of the user, and if asked for its keypairs; the answer is a new token."""
    # Sent only if asked for: older servers do not know it.
    more = {"revoke_keypairs": True} if revoke_keypairs else {}
    body = PasswordChange(old_password=old_password, new_password=new_password, **more)
    return Operation("POST", "/api/auth/password", Token, body=body)


def create_login_code() -> Operation[LoginCode]:
    """Return a one-time code for another login of the caller, for example in a browser."""
    return Operation("POST", "/api/auth/codes", LoginCode)


def me() -> Operation[UserView]:
    """The user that the token belongs to."""
    return Operation("GET", "/api/auth/me", UserView)


def logins(*, user: str | None = None) -> Operation[list[LoginView]]:
    """Logins by password that have not ended, newest first; those of another user for admins."""
    return Operation("GET", "/api/logins", list[LoginView], query=given(user=user))


def end_login(login_id: str) -> Operation[None]:
    """End a login, or with `current` the one that is used: no server accepts its tokens any more."""
    return Operation("DELETE", f"/api/logins/{segment(login_id)}", type(None))


def end_all_logins(*, user: str | None = None) -> Operation[None]:
    """End all logins of a user, including the one that is used."""
    return Operation("DELETE", "/api/logins", type(None), query=given(user=user))


def create_user(request: UserRequest) -> Operation[UserCreated]:
    return Operation("POST", "/api/users", UserCreated, body=request)


def users(*, domain: str | None = None) -> Operation[list[UserView]]:
    return Operation("GET", "/api/users", list[UserView], query=given(domain=domain))


def user(username: str) -> Operation[UserView]:
    return Operation("GET", f"/api/users/{segment(username)}", UserView)


def change_user(username: str, change: UserChange) -> Operation[UserView]:
    return Operation("PATCH", f"/api/users/{segment(username)}", UserView, body=change)


def remove_user(username: str) -> Operation[None]:
    """Remove a user that no record refers to; deactivate any other."""
    return Operation("DELETE", f"/api/users/{segment(username)}", type(None))


# --- workloads ----------------------------------------------------------------------------------------------------


def submit(request: WorkloadRequest, *, key: str | None = None) -> Operation[WorkloadAccepted]:
    """Submit a workload; it is accepted at once and placed soon after. Every call has its own idempotency key."""
    return Operation("POST", "/api/workloads", WorkloadAccepted, body=request, key=key or uuid4().hex)


def submit_batch(requests: Sequence[WorkloadRequest], *, key: str | None = None) -> Operation[BatchAccepted]:
    """Submit up to 1,000 workloads at once; the answer has the outcome of each."""
    body = BatchRequest(workloads=list(requests))
    return Operation("POST", "/api/workloads/batch", BatchAccepted, body=body, key=key or uuid4().hex)


def dry_run(request: WorkloadRequest) -> Operation[Explanation]:
    """Return the decision that a workload would get now; nothing is submitted."""
    return Operation("POST", "/api/workloads/dry-run", Explanation, body=request)


def workloads(
    *,
    status: str | None = None,
    kind: str | None = None,
    name: str | None = None,
    all: bool = False,
    active: bool = False,
    everyone: bool = False,
    limit: int | None = None,
    offset: int | None = None,
    sort: str | None = None,
) -> Operation[WorkloadList]:
    """The user's own workloads; with `all`, also those that ended long ago; with `everyone`, those of all users.

    With `active`, only those that have not ended.
    """
    query = given(
        status=status,
        kind=kind,
        name=name,
        all=all or None,
        active=active or None,
        everyone=everyone or None,
        limit=limit,
        offset=offset,
        sort=sort,
    )
    return Operation("GET", "/api/workloads", WorkloadList, query=query)


def workload(ref: str) -> Operation[WorkloadDetail]:
    """One workload by id or name, with its tasks."""
    return Operation("GET", _workload_path(ref), WorkloadDetail)


def explanation(ref: str) -> Operation[Explanation]:
    """Explain why a workload is pending, or how its nodes compare with the others."""
    return Operation("GET", _workload_path(ref, "explanation"), Explanation)


def compare(ref: str, request: WorkloadRequest) -> Operation[Comparison]:
    """Compare a workload with a request; nothing changes."""
    return Operation("POST", _workload_path(ref, "comparison"), Comparison, body=request)


def history(ref: str) -> Operation[HistoryList]:
    return Operation("GET", _workload_path(ref, "history"), HistoryList)


def wait(
    ref: str,
    wait_for: WaitFor = "ended",
    *,
    version: int | None = None,
    timeout_seconds: float = LONG_POLL_SECONDS,
) -> Operation[WorkloadDetail]:
    """Return the workload as soon as it has ended, runs or differs from `version`, or at the timeout."""
    query = given(**{"for": wait_for}, version=version, timeout=max(timeout_seconds, 0.0))
    return Operation(
        "GET", _workload_path(ref, "wait"), WorkloadDetail, query=query, holds_seconds=max(timeout_seconds, 0.0)
    )


def scale(ref: str, replicas: int) -> Operation[WorkloadView]:
    body = ScaleRequest(replicas=replicas)
    return Operation("POST", _workload_path(ref, "scale"), WorkloadView, body=body)


def tasks(
    ref: str, *, status: str | None = None, limit: int | None = None, offset: int | None = None
) -> Operation[TaskList]:
    """A page of a workload's current tasks by index."""
    query = given(status=status, limit=limit, offset=offset)
    return Operation("GET", _workload_path(ref, "tasks"), TaskList, query=query)


def extend(ref: str, *, time: str | int | None = None, by: str | int | None = None) -> Operation[WorkloadDetail]:
    """Change the time limit of a session to `time`, or extend it `by` a duration."""
    body = sessions_wire.ExtendRequest(**{name: value for name, value in (("time", time), ("by", by)) if value})
    return Operation("POST", _workload_path(ref, "extend"), WorkloadDetail, body=body)


def remove(ref: str, *, force: bool = False) -> Operation[WorkloadView]:
    """Stop a workload and take it off the list; its history stays. `force`: do not wait for its nodes."""
    return Operation("DELETE", _workload_path(ref), WorkloadView, query=given(force=force or None))


def cancel(ref: str, *, force: bool = False) -> Operation[WorkloadView]:
    """Stop a workload and leave it on the list. `force`: do not wait for its nodes."""
    return Operation("DELETE", _workload_path(ref), WorkloadView, query=given(keep=True, force=force or None))


def cancel_tasks(ref: str, indexes: str, *, force: bool = False) -> Operation[WorkloadView]:
    """Cancel single indexes of an array, such as `3,5-9`; the others continue. `force`: do not wait for its nodes."""
    query = given(index=indexes, force=force or None)
    return Operation("DELETE", f"{_workload_path(ref)}/tasks", WorkloadView, query=query)


def logs(
    ref: str,
    *,
    task: int | None = None,
    attempt: int | None = None,
    tail: int | None = None,
    follow: bool = False,
    container: str | None = None,
    since: datetime | None = None,
    timestamps: bool = False,
) -> Stream:
    """The output of one task as bytes; with `follow`, until the task has ended.

    Without `attempt` it is that of the newest attempt; without `container`, that of the first container. `since` leaves
    out lines that arrived earlier; with `timestamps` each line begins with its time and a space.
    """
    query = given(
        task=task,
        attempt=attempt,
        tail=tail,
        follow=follow or None,
        container=container,
        since=None if since is None else since.isoformat(),
        timestamps=timestamps or None,
    )
    parameter = TIMES_NOTED if timestamps or since is not None else None
    return Stream(_workload_path(ref, "logs"), query, parameter=parameter)


# --- sessions -----------------------------------------------------------------------------------------------------


def create_session(request: SessionRequest, *, key: str | None = None) -> Operation[WorkloadAccepted]:
    """Submit a session; it is accepted at once and placed soon after. Every call has its own idempotency key."""
    return Operation("POST", "/api/sessions", WorkloadAccepted, body=request, key=key or uuid4().hex)


def sessions(
    *,
    status: str | None = None,
    type: str | None = None,
    all: bool = False,
    everyone: bool = False,
    limit: int | None = None,
    offset: int | None = None,
) -> Operation[WorkloadList]:
    """The user's own sessions; with `all`, also those that ended long ago; with `everyone`, those of all users."""
    query = given(status=status, type=type, all=all or None, everyone=everyone or None, limit=limit, offset=offset)
    return Operation("GET", "/api/sessions", WorkloadList, query=query)


def session(ref: str) -> Operation[WorkloadDetail]:
    return Operation("GET", f"/api/sessions/{segment(ref)}", WorkloadDetail)


def cancel_session(ref: str, *, force: bool = False) -> Operation[WorkloadView]:
    """Stop a session and take it off the list; its history stays. `force`: do not wait for its nodes."""
    return Operation("DELETE", f"/api/sessions/{segment(ref)}", WorkloadView, query=given(force=force or None))


# --- events -------------------------------------------------------------------------------------------------------


def event_page(
    since: str | None = None, *, limit: int | None = None, expand: bool = False, workload: str | None = None
) -> Operation[EventList]:
    """A page of events after a cursor, or from the oldest retained one."""
    query = given(since=since, limit=limit, expand=expand or None, workload=workload)
    return Operation("GET", "/api/events", EventList, query=query)


def events(since: str | None = None, *, expand: bool = False, workload: str | None = None) -> Stream:
    """Events as server-sent events from a cursor, or from now on."""
    query = given(since=since, expand=expand or None, workload=workload)
    return Stream("/api/events/stream", query, silent_seconds=_SILENT_SECONDS)


# --- nodes, pools, tokens -----------------------------------------------------------------------------------------


def nodes() -> Operation[NodeList]:
    return Operation("GET", "/api/nodes", NodeList)


def node(name: str) -> Operation[NodeView]:
    return Operation("GET", f"/api/nodes/{segment(name)}", NodeView)


def add_node(request: NodeRequest) -> Operation[NodeView]:
    """A simulated node; real ones join by `mooring agent`."""
    return Operation("POST", "/api/nodes", NodeView, body=request)


def change_node(
    name: str, *, labels: Mapping[str, str | None] | None = None, region: str | None = None
) -> Operation[NodeView]:
    """Set labels (None removes one) and the region ("" removes it) of a node."""
    body = NodeChange(labels=dict(labels or {}), region=region)
    return Operation("PATCH", f"/api/nodes/{segment(name)}", NodeView, body=body)


def preview_drain(name: str, *, timeout: bool = False) -> Operation[DrainPreview]:
    """Show where the tasks of a node would go if it were drained now. `timeout`: the remaining ones are ended."""
    return Operation("GET", f"/api/nodes/{segment(name)}/drain", DrainPreview, query=given(timeout=timeout or None))


def drain_node(name: str, *, timeout_seconds: int | None = None, reason: str | None = None) -> Operation[NodeView]:
    """Drain a node: no new tasks are placed, running ones leave; those left at the timeout are ended."""
    body = DrainRequest(timeout_seconds=timeout_seconds, reason=reason)
    return Operation("POST", f"/api/nodes/{segment(name)}/drain", NodeView, body=body)


def change_taints(name: str, change: TaintsChange) -> Operation[NodeView]:
    return Operation("PATCH", f"/api/nodes/{segment(name)}/taints", NodeView, body=change)


def resume_node(name: str) -> Operation[NodeView]:
    return Operation("POST", f"/api/nodes/{segment(name)}/resume", NodeView)


def remove_node(name: str, *, force: bool = False) -> Operation[None]:
    """Remove a node; `force`: even while tasks are charged to it."""
    return Operation("DELETE", f"/api/nodes/{segment(name)}", type(None), query=given(force=force or None))


def quarantine() -> Operation[QuarantineList]:
    """The tasks on nodes that the database does not know."""
    return Operation("GET", "/api/quarantine", QuarantineList)


def end_quarantined(request: QuarantineEnd) -> Operation[QuarantineList]:
    """End a quarantined task, those of a node, or all; return those that remain."""
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
    """Stop placement in a pool until it is resumed; running tasks continue."""
    body = wire_pools.PauseRequest(reason=reason)
    return Operation("POST", f"/api/pools/{segment(name)}/pause", type(None), body=body)


def resume_pool(name: str) -> Operation[None]:
    return Operation("POST", f"/api/pools/{segment(name)}/resume", type(None))


def remove_pool(name: str) -> Operation[None]:
    return Operation("DELETE", f"/api/pools/{segment(name)}", type(None))


def quotas() -> Operation[QuotaView]:
    """The limits of the user's own work, with the amounts in use and left."""
    return Operation("GET", "/api/quotas", QuotaView)


def quota(scope: str, tenant: str) -> Operation[QuotaView]:
    """The limits of a tenant: a keypair by its access key, another by its name or id."""
    return Operation("GET", f"/api/quotas/{segment(scope)}/{segment(tenant)}", QuotaView)


def change_quota(scope: str, tenant: str, change: QuotaChange) -> Operation[QuotaView]:
    return Operation("PUT", f"/api/quotas/{segment(scope)}/{segment(tenant)}", QuotaView, body=change)


def revert_quota(scope: str, tenant: str, *, version: int | None = None) -> Operation[QuotaView]:
    """Restore the quota of a version, by default the one before the last change."""
    path = f"/api/quotas/{segment(scope)}/{segment(tenant)}/revert"
    return Operation("POST", path, QuotaView, body=RevertRequest(version=version))


def shares(*, pool: str | None = None) -> Operation[ShareList]:
    """Weight, past use, factor and rank of the tenants of a pool."""
    return Operation("GET", "/api/shares", ShareList, query=given(pool=pool))


def set_weight(scope: str, tenant: str, weight: int) -> Operation[None]:
    """Set the fair-share weight of a domain, project or user; 100 is the default."""
    path = f"/api/shares/{segment(scope)}/{segment(tenant)}"
    return Operation("PUT", path, type(None), body=WeightRequest(weight=weight))


def occupancy(*, by: str | None = None) -> Operation[OccupancyReport]:
    """Occupancy of keypairs, users, projects, domains and nodes; `by` chooses one of these axes."""
    return Operation("GET", "/api/occupancy", OccupancyReport, query=given(by=by))


def create_join_token(request: JoinTokenRequest) -> Operation[JoinToken]:
    """Create a one-time token with which an agent joins."""
    return Operation("POST", "/api/join-tokens", JoinToken, body=request)


# --- the server itself --------------------------------------------------------------------------------------------


def health() -> Operation[Health]:
    return Operation("GET", "/health", Health, authenticated=False)


def ready() -> Operation[Ready]:
    """The readiness of the server, ready or not."""
    return Operation("GET", "/ready", Ready, authenticated=False, also_answers=frozenset({503}))


def metrics() -> Operation[str]:
    """The server's metrics in Prometheus' text format."""
    return Operation("GET", "/metrics", str, authenticated=False)


def audit() -> Operation[AuditReport]:
    """Check that ledger, counters and readable copies agree."""
    return Operation("GET", "/api/audit", AuditReport)


def repair(*, dry_run: bool = False) -> Operation[AuditReport]:
    """Correct records that contradict each other. `dry_run`: list every change, and make none."""
    query = {"dry_run": "true"} if dry_run else {}
    return Operation("POST", "/api/audit/repair", AuditReport, query=query)


def leader() -> Operation[wire_operations.LeaderView]:
    """The leader, and the standby servers."""
    return Operation("GET", "/api/leader", wire_operations.LeaderView)


def servers() -> Operation[wire_operations.ServerList]:
    return Operation("GET", "/api/servers", wire_operations.ServerList)


def loops() -> Operation[wire_operations.LoopList]:
    """The last iteration of each of the leader's loops."""
    return Operation("GET", "/api/loops", wire_operations.LoopList)


def resign() -> Operation[None]:
    """Let this server, which must lead, hand over to another."""
    return Operation("POST", "/api/leader/resign", type(None))


def run_pass() -> Operation[wire_operations.PassView]:
    """Let this server, which must lead, try everything that waits at once."""
    return Operation("POST", "/api/leader/pass", wire_operations.PassView)


def _workload_path(ref: str, *rest: str) -> str:
    return "/".join(("/api/workloads", segment(ref), *rest))
