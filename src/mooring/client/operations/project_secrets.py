"""Operations on project secrets and registry logins."""

from __future__ import annotations

from mooring.client.operations.operation import Operation, given, segment
from mooring.wire.workloads import secrets as wire


def secrets(project: str, *, domain: str | None = None) -> Operation[list[wire.SecretView]]:
    """Names and sizes of secrets; values are never returned."""
    return Operation("GET", _path(project, "secrets"), list[wire.SecretView], query=given(domain=domain))


def secret(project: str, name: str, *, domain: str | None = None) -> Operation[wire.SecretView]:
    return Operation("GET", _path(project, "secrets", name), wire.SecretView, query=given(domain=domain))


def put_secret(project: str, name: str, content: bytes, *, domain: str | None = None) -> Operation[wire.SecretView]:
    """Create or replace it."""
    path, body = _path(project, "secrets", name), wire.SecretRequest.of(content)
    return Operation("PUT", path, wire.SecretView, query=given(domain=domain), body=body)


def remove_secret(project: str, name: str, *, domain: str | None = None) -> Operation[None]:
    return Operation("DELETE", _path(project, "secrets", name), type(None), query=given(domain=domain))


def registry_logins(project: str, *, domain: str | None = None) -> Operation[list[wire.RegistryLoginView]]:
    return Operation("GET", _path(project, "registries"), list[wire.RegistryLoginView], query=given(domain=domain))


def put_registry_login(
    project: str, registry: str, request: wire.RegistryLoginRequest, *, domain: str | None = None
) -> Operation[wire.RegistryLoginView]:
    path = _path(project, "registries", registry)
    return Operation("PUT", path, wire.RegistryLoginView, query=given(domain=domain), body=request)


def remove_registry_login(project: str, registry: str, *, domain: str | None = None) -> Operation[None]:
    return Operation("DELETE", _path(project, "registries", registry), type(None), query=given(domain=domain))


def _path(project: str, *parts: str) -> str:
    return "/".join(["/api/projects", segment(project), *map(segment, parts)])
