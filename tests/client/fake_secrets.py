"""The secrets and registry logins of the fake server, by project and name, as they were sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from aiohttp import web
from pydantic import BaseModel

from mooring.wire.workloads.secrets import (
    RegistryLoginRequest,
    RegistryLoginView,
    SecretRequest,
    SecretView,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class FakeSecrets:
    def __init__(self) -> None:
        self.secrets: dict[tuple[str, str], bytes] = {}
        self.logins: dict[tuple[str, str], RegistryLoginRequest] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.put("/api/projects/{project}/secrets/{name}", self._put_secret),
            web.get("/api/projects/{project}/secrets", self._secrets),
            web.get("/api/projects/{project}/secrets/{name}", self._secret),
            web.delete("/api/projects/{project}/secrets/{name}", self._remove),
            web.put("/api/projects/{project}/registries/{name}", self._put_login),
            web.get("/api/projects/{project}/registries", self._logins),
            web.delete("/api/projects/{project}/registries/{name}", self._log_out),
        ]

    async def _put_secret(self, request: web.Request) -> web.Response:
        self.secrets[_key(request)] = SecretRequest.model_validate_json(await request.read()).content
        return await self._secret(request)

    async def _secret(self, request: web.Request) -> web.Response:
        return web.Response(text=_shown(_key(request)[1], self.secrets[_key(request)]).model_dump_json())

    async def _secrets(self, request: web.Request) -> web.Response:
        own = request.match_info["project"]
        return _listed([_shown(name, value) for (project, name), value in self.secrets.items() if project == own])

    async def _remove(self, request: web.Request) -> web.Response:
        del self.secrets[_key(request)]
        return web.Response(status=204)

    async def _put_login(self, request: web.Request) -> web.Response:
        login = self.logins[_key(request)] = RegistryLoginRequest.model_validate_json(await request.read())
        return web.Response(text=_login(_key(request)[1], login).model_dump_json())

    async def _logins(self, request: web.Request) -> web.Response:
        own = request.match_info["project"]
        return _listed([_login(host, login) for (project, host), login in self.logins.items() if project == own])

    async def _log_out(self, request: web.Request) -> web.Response:
        del self.logins[_key(request)]
        return web.Response(status=204)


def _key(request: web.Request) -> tuple[str, str]:
    return request.match_info["project"], request.match_info["name"]


def _shown(name: str, value: bytes) -> SecretView:
    return SecretView(name=name, size=len(value), created_at=NOW, updated_at=NOW)


def _login(registry: str, login: RegistryLoginRequest) -> RegistryLoginView:
    return RegistryLoginView(registry=registry, username=login.username, created_at=NOW, updated_at=NOW)


def _listed(views: Sequence[BaseModel]) -> web.Response:
    return web.json_response([view.model_dump(mode="json") for view in views])
