"""Every role at real routes: 200 to who may, 403 to who sees but may not, 404 to who may not even see."""

import json
import re
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from mooring import clock
from mooring.api.app import create_app
from mooring.api.services import Services
from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.tenants import Role
from tests.api.event_stream import streaming
from tests.api.routes.tenancy.test_keypairs import basic
from tests.api.world import World, real_pool_takes_containers
from tests.store.databases import on_sqlite

Headers = dict[str, str]
TOMORROW = (clock.now() + timedelta(days=1)).isoformat()

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
    "/api/workloads/{id}/tasks",
    "/api/workloads/{id}/endpoints",
    "/api/deployments/{id}/revisions",
    "/api/workloads/{id}/history",
    "/api/usage/workloads/{id}",
    "/api/workloads/{id}/explanation",
    "/api/workloads/{id}/logs",
    "/api/workloads/{id}/wait?timeout=0",
    "/api/deployment/status/{id}",
    "/api/events?workload={id}",
]

# Statuses of each route by who asks; `read` and `work` are keypairs of the admin in uma's project with these scopes.
# {who} makes names that are new, {web} and {job} are work of uma's, {task} is one of {web}, {key} is her keypair.
ROUTES = """
    admin dora paul uma  frank read work route
    200   200  200  200  200   200  200  GET    /api/domains
    201   403  403  403  403   403  403  POST   /api/domains {"name":"d-{who}"}
    200   200  200  200  404   200  200  GET    /api/domains/default
    200   403  403  403  404   403  403  PATCH  /api/domains/default {"active":true}
    409   403  403  403  404   403  403  DELETE /api/domains/default
    200   200  200  200  200   200  200  GET    /api/projects
    201   201  403  403  404   403  403  POST   /api/projects {"name":"p-{who}","domain":"default"}
    200   200  200  200  404   200  200  GET    /api/projects/vision?domain=default
    200   200  404  404  404   404  404  GET    /api/projects/speech?domain=default
    200   200  403  403  404   403  403  PATCH  /api/projects/vision?domain=default {"active":true}
    200   403  403  403  404   403  403  PATCH  /api/projects/vision?domain=default {"policy":""}
    409   409  403  403  404   403  403  DELETE /api/projects/vision?domain=default
    200   200  200  403  404   200  200  GET    /api/projects/vision/members?domain=default
    200   200  200  403  404   403  403  POST   /api/projects/vision/members?domain=default {"username":"vic"}
    404   404  404  403  404   403  403  DELETE /api/projects/vision/members/sam?domain=default
    200   200  200  200  404   200  200  GET    /api/projects/vision/secrets?domain=default
    404   404  404  404  404   404  404  GET    /api/projects/vision/secrets/nothing?domain=default
    200   200  200  403  404   403  403  PUT    /api/projects/vision/secrets/db?domain=default {"value":"aGVsbG8="}
    404   404  404  403  404   403  403  DELETE /api/projects/vision/secrets/nothing?domain=default
    200   200  200  200  404   200  200  GET    /api/projects/vision/registries?domain=default
    200   200  200  403  404   403  403  PUT    /api/projects/vision/registries/ghcr.io?domain=default $login
    404   404  404  403  404   403  403  DELETE /api/projects/vision/registries/nowhere.org?domain=default
    200   200  403  403  200   200  200  GET    /api/users
    201   201  403  403  404   403  403  POST   /api/users {"username":"u-{who}","domain":"default"}
    201   403  403  403  403   403  403  POST   /api/users {"username":"a-{who}","role":"admin"}
    201   403  403  403  403   403  403  POST   /api/users {"username":"o-{who}","os_user":"postgres"}
    200   200  404  200  404   200  200  GET    /api/users/uma
    200   200  404  403  404   403  403  PATCH  /api/users/uma {"active":true}
    200   403  404  403  404   403  403  PATCH  /api/users/uma {"os_user":"uma1"}
    200   403  404  403  404   403  403  PATCH  /api/users/uma {"policy":""}
    200   403  404  404  404   403  403  PATCH  /api/users/admin {"active":true}
    200   403  404  404  404   403  403  PATCH  /api/users/vic {"role":"admin"}
    409   409  404  403  404   403  403  DELETE /api/users/uma
    200   200  404  200  404   200  200  GET    /api/keypairs?user=uma
    200   200  403  403  200   200  200  GET    /api/keypairs?everyone=true
    201   201  404  201  404   403  403  POST   /api/keypairs {"user":"uma"}
    201   403  404  404  404   403  403  POST   /api/keypairs {"user":"admin"}
    200   200  404  200  404   200  200  GET    /api/keypairs/{key}
    200   200  404  200  404   403  403  PATCH  /api/keypairs/{key} {"active":true}
    200   403  404  403  404   403  403  PATCH  /api/keypairs/{key} {"policy":""}
    409   409  404  409  404   403  403  DELETE /api/keypairs/{key}
    200   200  200  200  200   200  200  GET    /api/volumes
    200   200  200  200  404   200  200  GET    /api/volumes?project=vision&domain=default
    201   201  201  201  201   403  201  POST   /api/volumes {"name":"v-{who}","size":"1Gi"}
    200   200  200  200  404   200  200  GET    /api/volumes/data?project=vision&domain=default
    404   404  404  404  404   404  404  GET    /api/volumes/nothing
    409   409  409  409  404   403  403  DELETE /api/volumes/data?project=vision&domain=default
    200   200  200  200  200   200  200  GET    /api/uploads
    200   200  200  200  200   403  200  POST   /api/uploads {"entries":[]}
    404   404  404  404  404   403  404  PUT    /api/uploads/00000000-0000-0000-0000-000000000001/content?chunks=0
    404   404  404  404  404   403  404  POST   /api/uploads/00000000-0000-0000-0000-000000000001/complete
    404   404  404  404  404   403  404  DELETE /api/uploads/00000000-0000-0000-0000-000000000001
    401   401  401  401  401   401  401  GET    /api/agent/uploads/00000000-0000-0000-0000-000000000001/manifest
    401   401  401  401  401   401  401  GET    /api/agent/uploads/00000000-0000-0000-0000-000000000001/content?chunks=0
    200   403  403  403  403   200  200  GET    /api/policies
    201   403  403  403  403   403  403  POST   /api/policies {"name":"rules-{who}"}
    200   403  403  403  403   200  200  GET    /api/policies/small
    200   403  403  403  403   403  403  PATCH  /api/policies/small {"rules":{"max_tasks":9}}
    200   403  403  403  403   403  403  POST   /api/policies/small/revert {"version":1}
    404   403  403  403  403   403  403  DELETE /api/policies/nothing
    200   200  200  200  200   200  200  GET    /api/quotas
    200   200  404  200  404   200  200  GET    /api/quotas/user/uma
    200   200  404  404  404   404  404  GET    /api/quotas/project/speech
    200   200  200  200  404   200  200  GET    /api/quotas/domain/default
    200   200  404  403  404   403  403  PUT    /api/quotas/user/uma {"limits":{"cpu":99}}
    200   200  200  200  200   200  200  GET    /api/shares
    204   204  404  403  404   403  403  PUT    /api/shares/user/uma {"weight":200}
    204   204  404  404  404   404  404  PUT    /api/shares/project/speech {"weight":200}
    204   403  403  403  404   403  403  PUT    /api/shares/domain/default {"weight":200}
    200   200  200  200  200   200  200  GET    /api/occupancy
    200   200  404  404  404   404  404  PUT    /api/quotas/project/speech {"limits":{"cpu":99}}
    200   403  403  403  404   403  403  PUT    /api/quotas/domain/default {"limits":{"cpu":99}}
    200   200  404  403  404   403  403  POST   /api/quotas/user/uma/revert {"version":1}
    200   403  403  403  403   200  200  GET    /api/actions
    200   403  403  403  403   200  200  GET    /api/audit
    200   403  403  403  403   403  403  POST   /api/audit/repair
    200   200  200  200  200   200  200  GET    /api/leader
    200   200  200  200  200   200  200  GET    /api/servers
    200   200  200  200  200   200  200  GET    /api/loops
    409   403  403  403  403   403  403  POST   /api/leader/resign
    409   403  403  403  403   403  403  POST   /api/leader/pass
    200   200  200  200  200   200  200  GET    /api/nodes
    200   200  200  200  200   200  200  GET    /api/capacity
    201   403  403  403  403   403  403  POST   /api/nodes $node
    200   200  200  200  200   200  200  GET    /api/nodes/n1
    200   403  403  403  403   403  403  GET    /api/nodes/n1/drain
    200   403  403  403  403   403  403  POST   /api/nodes/n1/drain
    200   403  403  403  403   403  403  PATCH  /api/nodes/n1 {"labels":{"rack":"7"}}
    200   403  403  403  403   403  403  PATCH  /api/nodes/n1/taints {"add":[{"key":"spot"}]}
    200   403  403  403  403   403  403  POST   /api/nodes/n1/resume
    404   403  403  403  403   403  403  DELETE /api/nodes/nowhere
    200   403  403  403  403   200  200  GET    /api/quarantine
    404   403  403  403  403   403  403  POST   /api/quarantine/end {"everything":true}
    201   403  403  403  403   403  403  POST   /api/join-tokens {"name":"j-{who}"}
    200   200  200  200  200   200  200  GET    /api/pools
    201   403  403  403  403   403  403  POST   /api/pools {"name":"pool-{who}"}
    200   200  200  200  200   200  200  GET    /api/pools/default
    204   403  403  403  403   403  403  PATCH  /api/pools/default {"profile":"pack"}
    204   403  403  403  403   403  403  POST   /api/pools/default/revert {"version":1}
    204   403  403  403  403   403  403  POST   /api/pools/default/pause {"reason":"repairs"}
    204   403  403  403  403   403  403  POST   /api/pools/default/resume
    404   403  403  403  403   403  403  DELETE /api/pools/nowhere
    200   403  403  403  403   200  200  GET    /api/pools/default/access
    204   403  403  403  403   403  403  POST   /api/pools/default/access {"project":"vision","domain":"default"}
    204   403  403  403  403   403  403  DELETE /api/pools/default/access?project=vision&domain=default
    200   403  403  403  403   403  403  GET    /api/pools/default/defragmentation
    200   403  403  403  403   403  403  POST   /api/pools/default/defragmentation {}
    404   403  403  403  403   403  403  POST   /api/pools/default/defragmentation/moves $move
    200   403  403  403  403   200  200  GET    /api/pools/default/templates
    200   403  403  403  403   403  403  PUT    /api/pools/default/templates/small {"resources":{"cpu":4}}
    404   403  403  403  403   403  403  DELETE /api/pools/default/templates/nothing
    200   403  403  403  403   200  200  GET    /api/scaling
    200   200  200  200  200   200  200  GET    /api/usage
    200   200  200  200  200   200  200  GET    /api/usage/workloads
    200   200  200  200  200   200  200  GET    /api/usage/tasks
    200   200  200  200  404   200  200  GET    /api/usage/workloads/{web}
    200   200  200  200  200   200  200  GET    /api/manifests/schema
    200   200  200  200  200   200  200  GET    /api/free
    200   200  200  200  200   200  200  GET    /api/timeline
    200   200  200  200  200   200  200  POST   /api/what-if {}
    200   403  403  403  403   403  403  POST   /api/what-if {"pools":{"default":{"profile":"pack"}}}
    200   200  200  200  200   200  200  GET    /api/auth/me
    200   200  200  200  200   403  403  POST   /api/auth/renew
    201   201  201  201  201   403  403  POST   /api/auth/codes
    200   200  200  200  200   200  200  GET    /api/events
    200   200  200  200  404   200  200  GET    /api/events?workload={web}
    200   200  200  200  200   200  200  GET    /api/workloads
    200   200  200  403  200   200  200  GET    /api/workloads?everyone=true
    202   202  202  202  202   403  202  POST   /api/workloads $work
    202   202  202  202  202   403  202  POST   /api/workloads/batch $batch
    200   200  200  200  200   200  200  POST   /api/workloads/dry-run $work
    200   200  200  200  404   200  200  GET    /api/workloads/{web}
    200   200  200  200  404   200  200  GET    /api/workloads/{web}/tasks
    200   200  200  200  404   200  200  GET    /api/workloads/{web}/history
    200   200  200  200  404   200  200  GET    /api/workloads/{web}/explanation
    200   200  200  200  404   200  200  POST   /api/workloads/{web}/comparison $work
    200   200  200  200  404   200  200  GET    /api/workloads/{web}/wait?timeout=0
    200   200  200  200  404   200  200  GET    /api/workloads/{web}/logs
    200   200  200  200  404   200  200  GET    /api/workloads/{web}/endpoints
    202   202  202  202  404   403  403  POST   /api/workloads/{web}/scale {"replicas":2}
    503   503  503  503  404   403  403  GET    /api/tasks/{task}/files?path=data
    409   409  409  409  404   403  403  PUT    /api/tasks/{task}/files?path=data
    200   200  200  200  404   403  403  POST   /api/workloads/{job}/extend {"by":60}
    409   409  409  409  404   403  403  DELETE /api/workloads/{job}/tasks?index=0
    202   202  202  202  404   403  403  DELETE /api/workloads/{job}?keep=true
    200   200  200  200  200   200  200  GET    /api/sessions
    202   202  202  202  202   403  202  POST   /api/sessions {"image":"a"}
    200   200  200  200  404   200  200  GET    /api/sessions/{job}
    202   202  202  202  404   403  403  DELETE /api/sessions/{job}
    200   200  200  200  200   200  200  GET    /api/timeslots
    200   200  200  403  200   200  200  GET    /api/timeslots?everyone=true
    202   202  202  202  202   403  202  POST   /api/timeslots $booking
    200   200  200  200  200   200  200  GET    /api/timeslots.ics
    200   200  200  200  404   200  200  GET    /api/timeslots/{slot}
    200   200  200  200  404   200  200  GET    /api/timeslots/{slot}/wait?timeout=0
    202   202  202  202  404   403  403  PATCH  /api/timeslots/{slot} {"duration":3600}
    404   404  404  404  404   404  404  DELETE /api/timeslots/nothing
    200   200  200  200  200   200  200  GET    /api/labs
    202   202  202  202  202   403  202  POST   /api/labs $lab
    200   200  200  200  404   200  200  GET    /api/labs/{lab}
    404   404  404  404  404   404  404  DELETE /api/labs/nothing
    201   403  403  403  403   403  403  POST   /api/maintenance $maintenance
    202   202  202  202  404   403  403  POST   /api/deployments/{web}/update {"image":"a:{who}"}
    202   202  202  202  404   403  403  POST   /api/deployments/{web}/rollback {}
    202   409  409  409  404   403  403  POST   /api/deployments/{web}/pause
    202   409  409  409  404   403  403  POST   /api/deployments/{web}/resume
    200   200  200  200  404   200  200  GET    /api/deployments/{web}/revisions
    200   200  200  200  200   200  200  GET    /api/deployment/list
    202   202  202  202  202   403  202  POST   /api/deployment/deploy $deployment
    200   200  200  200  404   200  200  GET    /api/deployment/status/{web}
    202   202  202  202  404   403  403  POST   /api/deployment/scale/{web} {"replicas":1}
    202   202  202  202  202   404  202  DELETE /api/deployment/web-{who}
    200   200  404  200  404   200  200  GET    /api/logins?user=uma
    204   403  404  404  404   403  403  DELETE /api/logins?user=admin
"""
NOTHING = "00000000-0000-0000-0000-000000000001"
BODIES: dict[str, dict[str, Any]] = {
    "$work": {"containers": [{"image": "a"}]},
    "$batch": {"workloads": [{"containers": [{"image": "a"}]}]},
    "$node": {"name": "n-{who}", "simulated": True, "resources": {"cpu": 1}},
    "$booking": {"start": TOMORROW, "duration": "1h", "resources": {"cpu": 1}},
    "$lab": {
        "start": TOMORROW,
        "duration": "1h",
        "workload": {"containers": [{"image": "a", "resources": {"cpu": 1}}]},
    },
    "$move": {"plan": NOTHING, "task_id": NOTHING, "source": "n1", "target": "n2"},
    "$maintenance": {"nodes": ["n1"], "start": TOMORROW, "duration": 60, "reason": "a new disk"},
    "$login": {"username": "robot", "password": "hunter2"},
    "$deployment": {"name": "web-{who}", "container_image": "a", "resources": {"cpu": 1, "memory": 512}},
}
MOUNTING: dict[str, Any] = {
    "pool": "real",
    "containers": [{"image": "a", "mounts": [{"volume": "data", "path": "/data"}]}],
    "volumes": [{"name": "data", "kind": "named"}],
}
# Open to all, about the password itself, or tested as a stream.
APART = {
    "GET /health",
    "GET /ready",
    "GET /metrics",
    "POST /api/auth/login",
    "POST /api/auth/password",
    "POST /api/auth/redeem",
    "DELETE /api/logins/{login_id}",
    "GET /api/events/stream",
}
ROLES = ["admin", "dora", "paul", "uma", "frank", "read", "work"]


@dataclass(frozen=True)
class Row:
    method: str
    path: str
    body: str
    statuses: dict[str, int]

    def sent(self, who: str) -> Any:
        text = json.dumps(BODIES[self.body]) if self.body in BODIES else self.body or "null"
        return json.loads(text.replace("{who}", who))


def rows() -> list[Row]:
    found = []
    for line in ROUTES.strip().splitlines()[1:]:
        words = line.split()
        statuses = dict(zip(ROLES, map(int, words[: len(ROLES)]), strict=True))
        method, path, *body = words[len(ROLES) :]
        found.append(Row(method, path, "".join(body), statuses))
    return found


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
async def test_lists_and_the_event_feed_show_only_visible_objects(world: World):
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
async def test_the_event_stream_shows_only_visible_objects(world: World):
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
async def test_each_role_gets_the_responses_of_the_table_and_refusals_change_nothing(world: World):
    people = await everybody(world)
    await world.client.post("/api/projects/vision/members", json={"username": "admin"}, headers=people["admin"])
    for scope in ("read", "work"):
        asked = {"scope": scope, "project": "vision"}
        made = await world.client.post("/api/keypairs", json=asked, headers=people["admin"])
        people[scope] = basic(made.json()["access_key"], made.json()["secret"])
    await world.client.post("/api/policies", json={"name": "small"}, headers=people["admin"])
    web = await umas_work(world, people["uma"])
    task = (await world.client.get(f"/api/workloads/{web}", headers=people["uma"])).json()["tasks"][0]["id"]
    job = await world.submit(people["uma"], name="job", pool="real", time=60)
    key = (await world.client.get("/api/keypairs", headers=people["uma"])).json()[0]["access_key"]
    longer = BODIES["$booking"] | {"duration": "2h"}
    slot = (await world.client.post("/api/timeslots", json=longer, headers=people["uma"])).json()["ids"][0]
    lab = (await world.client.post("/api/labs", json=BODIES["$lab"], headers=people["uma"])).json()["timeslot"]
    await world.client.post("/api/volumes", json={"name": "data", "size": 1, "pool": "real"}, headers=people["uma"])
    await world.submit(people["uma"], **MOUNTING)
    before = await world.counts()
    for refused in (True, False):
        for row in rows():
            for name, status in row.statuses.items():
                if (status >= 400) is refused:
                    path = row.path.format(web=web, task=task, job=job, key=key, slot=slot, lab=lab, who=name)
                    answer = await world.client.request(row.method, path, json=row.sent(name), headers=people[name])
                    assert (row.method, row.path, name, answer.status_code) == (row.method, row.path, name, status), (
                        answer.text
                    )
        assert (await world.counts() == before) is refused


def test_every_operation_of_the_description_has_a_row():
    described = create_app(cast(Services, SimpleNamespace(version="0", trusted_proxies=()))).openapi()["paths"]
    operations = {f"{method.upper()} {path}" for path, methods in described.items() for method in methods}
    assert operations >= APART
    assert {_operation(row, operations) for row in rows()} == operations - APART


def _operation(row: Row, operations: set[str]) -> str:
    """Operation that a row's path matches; one without a path parameter before others."""
    asked = f"{row.method} {row.path.partition('?')[0]}"
    fitting = [one for one in operations if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", one), asked)]
    assert fitting, f"the API has no {asked}"
    return min(fitting, key=lambda one: one.count("{"))
