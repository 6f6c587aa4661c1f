"""Operations: the leader, the servers and the control loops; for admins, a hand-over and an immediate pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from math import ceil
from statistics import median
from typing import Annotated, Literal

from fastapi import APIRouter, Request

from mooring.api.auth.request_access import Served, needs
from mooring.api.lookup.leadership import ClusterLeadership, cluster_leadership, nobody_leads
from mooring.api.middleware.errors import problems
from mooring.api.middleware.outermost import release_seat
from mooring.api.services import Leadership, Services
from mooring.coordination.presence import is_there
from mooring.model.errors import Conflict, Unavailable
from mooring.model.tenancy.access import Action
from mooring.model.tenancy.tenants import Principal
from mooring.store.control import (
    background_tasks,
    loops,
)
from mooring.store.control.servers import ServerRecord
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.views import start_errors
from mooring.store.views.start_errors import PredictedStart
from mooring.wire.cluster.operations import (
    BackgroundTaskView,
    LeaderView,
    LoopList,
    LoopView,
    PassView,
    ServerList,
    ServerView,
    StartErrors,
)

_LATE_SECONDS = 60.0

router = APIRouter(prefix="/api", tags=["operations"], responses=problems(401, 503))

Reader = Annotated[Principal, needs(Action.SEE_CLUSTER)]
Admin = Annotated[Principal, needs(Action.OPERATE)]


@router.get("/leader", operation_id="show_leader")
async def show_leader(services: Served, _principal: Reader) -> LeaderView:
    """Get the leader, the start of its term, and the standbys."""
    return _leader_view(await cluster_leadership(services), services.now())


@router.get("/servers", operation_id="list_servers")
async def list_servers(services: Served, _principal: Reader) -> ServerList:
    """List the servers seen within a day that did not shut down in order."""
    present = await cluster_leadership(services)
    at = services.now()
    vacancy = nobody_leads(present.vacancy, present.servers, at)
    return ServerList(
        servers=_server_views(present, at),
        vacant_since=present.vacancy.since if present.vacancy else None,
        vacant_reason=vacancy,
    )


@router.get("/loops", operation_id="list_loops")
async def list_loops(services: Served, _principal: Reader) -> LoopList:
    """List the last iteration of each control loop, and the background tasks of every server."""
    async with services.database.read() as connection:
        found = await loops.reported(connection)
        tasks = await background_tasks.reported(connection)
        starts = await start_errors.recent(connection, services.now())
    return LoopList(
        loops=[LoopView(server=report.server, term=report.term, **asdict(report.state)) for report in found],
        start_errors=_start_errors(starts),
        background=[BackgroundTaskView.model_validate(asdict(task)) for task in tasks],
    )


def _start_errors(starts: Sequence[PredictedStart]) -> StartErrors | None:
    if not starts:
        return None
    errors = sorted(abs(start.late_seconds) for start in starts)
    return StartErrors(
        workloads=len(starts),
        late=sum(start.late_seconds > _LATE_SECONDS for start in starts),
        moved=sum(start.moves > 0 for start in starts),
        median_seconds=median(errors),
        # The nearest rank: nine of ten were at most this far off.
        p90_seconds=errors[ceil(len(errors) * 0.9) - 1],
    )


@router.post("/leader/resign", status_code=204, operation_id="resign", responses=problems(403, 409))
async def resign(services: Served, admin: Admin, request: Request) -> None:
    """Make the leader release its lease; respond once it has. Refused where no standby can take over."""
    leader, view = await _leading(services)
    if not view.standbys:
        raise Conflict("no standby server can take over; start one, or stop this server", code="no-standby")
    await _record(services, admin, "resign", view)
    release_seat(request.scope)
    await leader.resign()


@router.post("/leader/pass", operation_id="run_pass", responses=problems(403, 409))
async def run_pass(services: Served, admin: Admin, request: Request) -> PassView:
    """Make this leader try all pending work at once; the response has the result."""
    leader, view = await _leading(services)
    await _record(services, admin, "pass", view)
    release_seat(request.scope)
    try:
        found = await leader.run_pass()
    except TimeoutError:
        raise Unavailable("the pass did not finish in time; it continues", code="pass-not-over") from None
    return PassView(
        placed=found.placed, impossible=found.impossible, waiting=found.waiting, seconds=round(found.seconds, 6)
    )


async def _leading(services: Services) -> tuple[Leadership, LeaderView]:
    """The leader in this process; Conflict where it is another, with its name and address."""
    view = _leader_view(await cluster_leadership(services), services.now())
    if services.leader is not None and services.leader.leads:
        return services.leader, view
    if view.name is None or view.vacant:
        raise Conflict(f"this server does not lead, and no other does: {view.vacant_reason}", code="not-leader")
    where = f" at {view.url}" if view.url else ""
    silent = ", though it is silent" if view.silent else ""
    raise Conflict(
        f"this server does not lead; {view.name}{where} does (term {view.term}){silent}",
        code="not-leader",
        details={"leader": view.name, "url": view.url, "term": view.term},
    )


async def _record(services: Services, admin: Principal, action: str, view: LeaderView) -> None:
    """Record an action before it happens: a hand-over may be the last thing that this server does."""
    await services.database.write(
        lambda connection: admin_actions.record(
            connection,
            Actor.of(admin),
            action,
            "leader",
            view.name or "",
            now=services.now(),
            after={"term": view.term},
        )
    )


def _leader_view(present: ClusterLeadership, at: datetime) -> LeaderView:
    views = _server_views(present, at)
    term = present.term
    holder = None if term is None else term.holder
    own = next((server for server in present.servers if server.name == holder), None)
    return LeaderView(
        name=holder,
        term=0 if term is None else term.number,
        since=None if term is None else term.taken_at,
        coordination=None if term is None else term.kind,
        url=None if own is None else own.url,
        silent=own is None or not is_there(own, at),
        standbys=[view for view in views if view.standing == "standby"],
        vacant=present.vacancy is not None,
        vacant_since=present.vacancy.since if present.vacancy else None,
        vacant_reason=nobody_leads(present.vacancy, present.servers, at),
    )


def _server_views(present: ClusterLeadership, at: datetime) -> list[ServerView]:
    leader = None if present.term is None or present.vacancy is not None else present.term.holder

    def standing(server: ServerRecord) -> Literal["leader", "standby", "api", "silent"]:
        if not is_there(server, at):
            return "silent"
        if server.name == leader:
            return "leader"
        return "standby" if server.may_lead else "api"

    return [ServerView(standing=standing(server), **asdict(server)) for server in present.servers]
