"""A server with one object of every kind, and a credential of every role."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from tests.system.servers import PASSWORD, Server, eventually

ROLES = (
    "admin",
    "domain-admin",
    "project-admin",
    "user",
    "keypair-all",
    "keypair-work",
    "keypair-read",
    "node",
    "nobody",
)
"""Roles of users; scopes of keypairs, which are the admin's; a node's credential; and no credential at all."""

NAME = "vision"
"""The name of every object that may choose one, so that it stands for any of them."""
_DOMAIN = "default"
"""The admin's own, since only users of a domain are members of its projects."""
_USERS = {"domain-admin": "dora", "project-admin": "paul", "user": "uma"}
_FACTS = {
    "hostname": "joined",
    "architecture": "x86_64",
    "capacity": {"cpu": 8_000, "memory": 16 * 2**30, "storage": 2**40},
    "runtimes": ["process"],
    "boot_id": "first",
    "agent_version": "0",
}
_WORK = {"pool": NAME, "containers": [{"image": "nginx", "resources": {"cpu": "500m"}}]}

Headers = dict[str, str]


@dataclass
class World:
    credentials: dict[str, Headers] = field(default_factory=dict)
    """The headers of each role's requests."""
    refs: dict[str, str] = field(default_factory=dict)
    """The id of a workload, session, timeslot and so on, by the path's word after `/api/`."""
    access_key: str = ""
    task_id: str = ""

    def path_parameter(self, path: str, name: str) -> str:
        """The value of this parameter that names an object which exists."""
        kind = path.split("/")[2]
        known = {
            "access_key": self.access_key,
            "task_id": self.task_id,
            "deployment_id": self.refs["deployments"],
            "username": _USERS["user"],
            "registry": "ghcr.io",
            "scope": "project",
            "ref": self.refs.get(kind, NAME),
        }
        return known.get(name) or (_DOMAIN if kind == "domains" else NAME)

    @property
    def body_fields(self) -> Mapping[str, str]:
        """Fields of bodies and queries that name an object, with one that exists."""
        named = dict.fromkeys(("project", "pool", "policy", "node", "volume", "template", "secret"), NAME)
        users = dict.fromkeys(("user", "username"), _USERS["user"])
        return {
            **named,
            **users,
            "domain": _DOMAIN,
            "workload": self.refs["workloads"],
            "timeslot": self.refs["timeslots"],
        }


def prepare(server: Server) -> World:
    """Fill a new server that has simulated nodes."""
    with httpx2.Client(base_url=server.url, timeout=60.0) as client:
        return _Filling(client).world()


class _Filling:
    def __init__(self, client: httpx2.Client) -> None:
        self._client = client

    def world(self) -> World:
        world = World()
        admin = world.credentials["admin"] = self._login("admin")
        self._tenants(admin)
        world.credentials |= {role: self._login(username) for role, username in _USERS.items()}
        self._cluster(admin)
        for scope in ("all", "work", "read"):
            keypair = self._post("keypairs", {"scope": scope, "project": NAME}, admin)
            pair = f"{keypair['access_key']}:{keypair['secret']}".encode()
            world.credentials[f"keypair-{scope}"] = {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        world.credentials["node"] = self._join(admin)
        world.credentials["nobody"] = {}
        self._work(world, world.credentials["user"])
        return world

    def _tenants(self, admin: Headers) -> None:
        self._post("projects", {"name": NAME, "domain": _DOMAIN}, admin)
        for role, username in _USERS.items():
            user = {"username": username, "password": PASSWORD, "domain": _DOMAIN, "project": NAME}
            self._post("users", user | ({"role": role} if role == "domain-admin" else {}), admin)
        members = f"projects/{NAME}/members?domain={_DOMAIN}"
        self._post(members, {"username": _USERS["project-admin"], "role": "project-admin"}, admin)
        self._post(members, {"username": "admin"}, admin)
        self._post("policies", {"name": NAME}, admin)
        self._put(f"projects/{NAME}/secrets/{NAME}?domain={_DOMAIN}", {"value": "aGVsbG8="}, admin)
        login = {"username": "robot", "password": "hunter2"}
        self._put(f"projects/{NAME}/registries/ghcr.io?domain={_DOMAIN}", login, admin)

    def _cluster(self, admin: Headers) -> None:
        self._post("pools", {"name": NAME, "simulated": True, "runtimes": ["container"]}, admin)
        self._post("nodes", {"name": NAME, "pool": NAME, "simulated": True, "resources": {"cpu": 16}}, admin)
        self._put(f"pools/{NAME}/templates/{NAME}", {"resources": {"cpu": 4}}, admin)

    def _join(self, admin: Headers) -> Headers:
        token = self._post("join-tokens", {"name": "joined"}, admin)["token"]
        credential = self._post("agent/join", {"token": token, "name": "joined", "facts": _FACTS}, {})["credential"]
        return {"Authorization": f"Bearer {credential}"}

    def _work(self, world: World, user: Headers) -> None:
        start = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        refs = world.refs
        refs["workloads"] = refs["sessions"] = self._post("workloads", _WORK | {"name": "train"}, user)["id"]
        web = self._post("workloads", _WORK | {"name": NAME, "kind": "deployment"}, user)["id"]
        refs["deployments"] = refs["deployment"] = web
        booking = {"start": start, "duration": "1h", "resources": {"cpu": 1}, "pool": NAME}
        refs["timeslots"] = self._post("timeslots", booking, user)["ids"][0]
        refs["labs"] = self._post("labs", {"start": start, "duration": "1h", "workload": _WORK}, user)["timeslot"]
        self._post("volumes", {"name": NAME, "size": "1Gi", "pool": NAME}, user)
        world.access_key = self._get("keypairs", user)[0]["access_key"]
        tasks = eventually(lambda: self._get(f"workloads/{web}/tasks", user)["tasks"])
        world.task_id = tasks[0]["id"]

    def _login(self, username: str) -> Headers:
        token = self._post("auth/login", {"username": username, "password": PASSWORD}, {})["access_token"]
        return {"Authorization": f"Bearer {token}"}

    def _get(self, path: str, headers: Headers) -> Any:
        return self._send("GET", path, None, headers)

    def _post(self, path: str, body: Any, headers: Headers) -> Any:
        return self._send("POST", path, body, headers)

    def _put(self, path: str, body: Any, headers: Headers) -> Any:
        return self._send("PUT", path, body, headers)

    def _send(self, method: str, path: str, body: Any, headers: Headers) -> Any:
        answer = self._client.request(method, f"/api/{path}", json=body, headers=headers)
        if not answer.is_success:
            raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None
