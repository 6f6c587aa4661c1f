"""Operations: who leads, who else is there, what the loops did; and for admins, a hand-over and a pass at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Request

from mooring.api.access import Served, needs
from mooring.api.boundary import only_waits
from mooring.api.errors import problems
from mooring.api.services import Leadership, Services
from mooring.coordination.presence import is_there
from mooring.model.access import Action
from mooring.model.errors import Conflict, Unavailable
from mooring.model.tenants import Principal
from mooring.store import actions, leadership, loops, servers
from mooring.store.actions import Actor
from mooring.store.leadership import Term
from mooring.store.servers import ServerRecord
from mooring.wire.operations import LeaderView, LoopList, LoopView, PassView, ServerList, ServerView

router = APIRouter(prefix="/api", tags=["operations"], responses=problems(401, 503))

Reader = Annotated[Principal, needs(Action.SEE_CLUSTER)]
Admin = Annotated[Principal, needs(Action.OPERATE)]


@router.get("/leader", operation_id="show_leader")
async def show_leader(services: Served, _principal: Reader) -> LeaderView:
    """Who leads since when, and who would take its place."""
    return _leader_view(*await _present(services), services.now())


@router.get("/servers", operation_id="list_servers")
async def list_servers(services: Served, _principal: Reader) -> ServerList:
    """Every server that was seen within a day, and did not leave in order."""
    term, present = await _present(services)
    return ServerList(servers=_server_views(term, present, services.now()))


@router.get("/loops", operation_id="list_loops")
async def list_loops(services: Served, _principal: Reader) -> LoopList:
    """What each loop of the leader did, as it reported some seconds ago at most."""
    async with services.database.read() as connection:
        found = await loops.reported(connection)
    return LoopList(
        loops=[LoopView(server=report.server, term=report.term, **asdict(report.state)) for report in found]
    )


@router.post("/leader/resign", status_code=204, operation_id="resign", responses=problems(403, 409))
async def resign(services: Served, admin: Admin, request: Request) -> None:
    """Let the leader that is asked give its seat back; the answer comes when it has. Refused where nobody takes it."""
    leader, view = await _leading(services)
    if not view.standbys:
        raise Conflict("no other server stands by to lead; start one, or stop this one", code="no-standby")
    await _record(services, admin, "resign", view)
    only_waits(request.scope)
    await leader.resign()


@router.post("/leader/pass", operation_id="run_pass", responses=problems(403, 409))
async def run_pass(services: Served, admin: Admin, request: Request) -> PassView:
    """Let the leader that is asked try everything that waits at once; the answer says what came of it."""
    leader, view = await _leading(services)
    await _record(services, admin, "pass", view)
    only_waits(request.scope)
    try:
        found = await leader.run_pass()
    except TimeoutError:
        raise Unavailable("the pass takes long; it goes on", code="pass-not-over") from None
    return PassView(
        placed=found.placed, impossible=found.impossible, waiting=found.waiting, seconds=round(found.seconds, 6)
    )


async def _leading(services: Services) -> tuple[Leadership, LeaderView]:
    """The leader in this process; Conflict where it is another, with its name and address."""
    view = _leader_view(*await _present(services), services.now())
    if services.leader is not None and services.leader.leads:
        return services.leader, view
    if view.name is None:
        raise Conflict("this server does not lead, and no other does yet", code="not-leader")
    where = f" at {view.url}" if view.url else ""
    silent = ", though it is silent" if view.silent else ""
    raise Conflict(
        f"this server does not lead; {view.name}{where} does (term {view.term}){silent}",
        code="not-leader",
        details={"leader": view.name, "url": view.url, "term": view.term},
    )


async def _record(services: Services, admin: Principal, action: str, view: LeaderView) -> None:
    """What was done, before it is: a hand-over may be the last thing that this server does."""
    await services.database.write(
        lambda connection: actions.record(
            connection,
            Actor.of(admin),
            action,
            "leader",
            view.name or "",
            now=services.now(),
            after={"term": view.term},
        )
    )


async def _present(services: Services) -> tuple[Term | None, list[ServerRecord]]:
    async with services.database.read() as connection:
        return await leadership.latest(connection), await servers.everyone(connection)


def _leader_view(term: Term | None, present: Sequence[ServerRecord], at: datetime) -> LeaderView:
    views = _server_views(term, present, at)
    holder = None if term is None else term.holder
    url = next((server.url for server in present if server.name == holder), None)
    return LeaderView(
        name=holder,
        term=0 if term is None else term.number,
        since=None if term is None else term.taken_at,
        coordination=None if term is None else term.kind,
        url=url,
        silent=not any(view.standing == "leader" for view in views),
        standbys=[view for view in views if view.standing == "standby"],
    )


def _server_views(term: Term | None, present: Sequence[ServerRecord], at: datetime) -> list[ServerView]:
    def standing(server: ServerRecord) -> Literal["leader", "standby", "api", "silent"]:
        if not is_there(server, at):
            return "silent"
        if term is not None and server.name == term.holder:
            return "leader"
        return "standby" if server.may_lead else "api"

    return [ServerView(standing=standing(server), **asdict(server)) for server in present]
