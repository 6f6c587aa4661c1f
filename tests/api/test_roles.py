"""Every role at real routes: 200 to who may, 403 to who sees but may not, 404 to who may not even see."""

import json
from typing import Any

from mooring.model.lifecycle import TaskStatus
from mooring.model.tenants import Role
from tests.api.streams import streaming
from tests.api.world import World, real_pool_takes_containers
from tests.store.databases import on_sqlite

Headers = dict[str, str]

# uma works in project vision of domain default; these are what the others are to her.
PEOPLE: dict[str, dict[str, Any]] = {
    "uma": {"project": "vision"},
    "vic": {"project": "vision"},
    "paul": {"project": "vision", "role": Role.PROJECT_ADMIN},
    "sam": {"project": "speech"},
    "dora": {"project": "speech", "role": Role.DOMAIN_ADMIN},
    "fay": {"domain": "beta", "project": "vision"},
    "frank": {"domain": "beta", "project": "vision", "role": Role.DOMAIN_ADMIN},
}
SEEING = {"uma", "paul", "dora", "admin"}

READS = [
    "/api/workloads/{id}",
    "/api/workloads/{id}/history",
    "/api/workloads/{id}/explanation",
    "/api/workloads/{id}/logs",
    "/api/workloads/{id}/wait?timeout=0",
    "/api/deployment/status/{id}",
    "/api/events?workload={id}",
]

# Statuses by role; {who} makes names that are new.
ROUTES = """
    route                                      body                                          admin dora paul uma frank
    GET    /api/domains/default                -                                             200   200  200  200 404
    PATCH  /api/domains/default                {"active":true}                               200   403  403  403 404
    DELETE /api/domains/default                -                                             409   403  403  403 404
    POST   /api/domains                        {"name":"d-{who}"}                            201   403  403  403 403
    GET    /api/projects/vision?domain=default -                                             200   200  200  200 404
    GET    /api/projects/speech?domain=default -                                             200   200  404  404 404
    PATCH  /api/projects/vision?domain=default {"active":true}                               200   200  403  403 404
    PATCH  /api/projects/vision?domain=default {"policy":""}                                 200   403  403  403 404
    DELETE /api/projects/vision?domain=default -                                             409   409  403  403 404
    POST   /api/projects                       {"name":"p-{who}","domain":"default"}         201   201  403  403 404
    GET    /api/projects/vision/members?domain=default -                                     200   200  200  403 404
    POST   /api/projects/vision/members?domain=default {"username":"vic"}                    200   200  200  403 404
    DELETE /api/projects/vision/members/sam?domain=default -                                 404   404  404  403 404
    GET    /api/users                          -                                             200   200  403  403 200
    GET    /api/users/uma                      -                                             200   200  404  200 404
    PATCH  /api/users/uma                      {"active":true}                               200   200  404  403 404
    PATCH  /api/users/uma                      {"os_user":"uma1"}                            200   403  404  403 404
    PATCH  /api/users/admin                    {"os_user":"root"}                            200   403  404  404 404
    PATCH  /api/users/vic                      {"role":"admin"}                              200   403  404  404 404
    POST   /api/users                          {"username":"u-{who}","domain":"default"}     201   201  403  403 404
    POST   /api/users                          {"username":"a-{who}","role":"admin"}         201   403  403  403 403
    POST   /api/users                          {"username":"o-{who}","os_user":"postgres"}   201   403  403  403 403
    DELETE /api/users/uma                      -                                             409   409  404  403 404
    GET    /api/keypairs?user=uma              -                                             200   200  404  200 404
    GET    /api/keypairs?everyone=true         -                                             200   200  403  403 200
    POST   /api/keypairs                       {"user":"uma"}                                201   201  404  201 404
    POST   /api/keypairs                       {"user":"admin"}                              201   403  404  404 404
    GET    /api/policies                       -                                             200   403  403  403 403
    POST   /api/policies                       {"name":"rules-{who}"}                        201   403  403  403 403
    GET    /api/actions                        -                                             200   403  403  403 403
    GET    /api/audit                          -                                             200   403  403  403 403
    POST   /api/nodes/n1/drain                 -                                             200   403  403  403 403
    POST   /api/join-tokens                    {"name":"j-{who}"}                            201   403  403  403 403
    PATCH  /api/pools/default                  {"profile":"pack"}                            204   403  403  403 403
    GET    /api/pools/default/access           -                                             200   403  403  403 403
    POST   /api/pools/default/access           {"project":"vision","domain":"default"}       204   403  403  403 403
    GET    /api/pools                          -                                             200   200  200  200 200
    GET    /api/nodes/n1                       -                                             200   200  200  200 200
"""
ROLES = ["admin", "dora", "paul", "uma", "frank"]


async def everybody(world: World) -> dict[str, Headers]:
    return {name: await world.user(name, **what) for name, what in PEOPLE.items()} | {"admin": await world.admin()}


async def umas_work(world: World, uma: Headers) -> str:
    """A deployment of hers that runs for real, so that it has output and can be explained."""
    await real_pool_takes_containers(world.services.database)
    await world.add_node("n1")
    workload_id = await world.submit(uma, name="web", kind="deployment", pool="real")
    await world.move(workload_id, TaskStatus.SCHEDULED)
    return workload_id


@on_sqlite
async def test_work_is_seen_by_its_owner_and_the_admins_of_its_project_and_domain_only(world: World):
    people = await everybody(world)
    workload_id = await umas_work(world, people["uma"])
    for name, headers in people.items():
        expected = 200 if name in SEEING else 404
        for path in READS:
            answer = await world.client.get(path.format(id=workload_id), headers=headers)
            assert (name, path, answer.status_code) == (name, path, expected)
        for method, path, body in (
            ("POST", f"/api/workloads/{workload_id}/scale", {"replicas": 2}),
            ("POST", f"/api/deployment/scale/{workload_id}", {"replicas": 3}),
        ):
            answer = await world.client.request(method, path, json=body, headers=headers)
            assert (name, path, answer.status_code) == (name, path, 202 if name in SEEING else 404)
    for name in ("vic", "sam", "fay", "frank", "paul"):
        answer = await world.client.delete(f"/api/workloads/{workload_id}", headers=people[name])
        assert (name, answer.status_code) == (name, 202 if name in SEEING else 404)


@on_sqlite
async def test_lists_and_the_event_feed_show_what_may_be_seen_and_nothing_else(world: World):
    people = await everybody(world)
    workload_id = await umas_work(world, people["uma"])
    for name, headers in people.items():
        listed = await world.client.get("/api/workloads?everyone=true", headers=headers)
        leads = name in ("admin", "dora", "paul", "frank")
        assert (name, listed.status_code) == (name, 200 if leads else 403)
        if leads:
            ids = [workload["id"] for workload in listed.json()["workloads"]]
            assert (name, workload_id in ids) == (name, name in SEEING)
        events = (await world.client.get("/api/events", headers=headers)).json()["events"]
        about = {event.get("workload_id") for event in events}
        assert (name, workload_id in about) == (name, name in SEEING)
        # What happens to nodes, pools and tenants is for admins.
        assert (name, None in about) == (name, name == "admin")


@on_sqlite
async def test_the_event_stream_shows_what_may_be_seen_and_nothing_else(world: World):
    people = await everybody(world)
    workload_id = await umas_work(world, people["uma"])
    for name in people:
        await _check_stream(world, people[name], workload_id, sees=name in SEEING)


async def _check_stream(world: World, headers: Headers, workload_id: str, *, sees: bool) -> None:
    async with streaming(world.app, f"workload={workload_id}", headers) as stream:
        assert stream.status == (200 if sees else 404)
    own = await world.submit(headers, name="mine")
    async with streaming(world.app, "since=0-0", headers) as stream:
        seen = set()
        while own not in seen:
            seen.add((await stream.event()).get("workload_id"))
    assert (workload_id in seen) == sees


@on_sqlite
async def test_each_role_gets_what_the_table_says_and_what_is_refused_changes_nothing(world: World):
    people = await everybody(world)
    await umas_work(world, people["uma"])
    before = await world.counts()
    for refused in (True, False):
        for line in ROUTES.strip().splitlines()[1:]:
            method, path, body, *statuses = line.split()
            for name, status in zip(ROLES, map(int, statuses), strict=True):
                if (status >= 400) is refused:
                    sent = None if body == "-" else json.loads(body.replace("{who}", name))
                    answer = await world.client.request(method, path, json=sent, headers=people[name])
                    assert (line.strip(), name, answer.status_code) == (line.strip(), name, status), answer.text
        assert (await world.counts() == before) is refused
