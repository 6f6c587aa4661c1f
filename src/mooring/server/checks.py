"""Combinations of settings that a server refuses to start with."""

from __future__ import annotations

from mooring.model.errors import InvalidInput
from mooring.settings import Settings


def check_settings(settings: Settings) -> None:
    tls = settings.tls_cert is not None and settings.tls_key is not None
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise InvalidInput("--tls-cert and --tls-key must be given together", code="invalid-setting")
    if not settings.loopback and not tls and not settings.insecure:
        raise InvalidInput(
            f"listening on {settings.host} would send passwords in the clear; give --tls-cert and --tls-key, "
            "or --insecure if something in front of it does TLS",
            code="insecure",
        )
    if settings.simulate and not simulation_allowed(settings):
        raise InvalidInput(
            "simulated nodes run nothing, so a server on PostgreSQL or beyond loopback accepts them only with --demo",
            code="simulation-refused",
        )
    if settings.etcd_host is not None and settings.database_url.startswith("sqlite"):
        raise InvalidInput(
            "etcd chooses among servers that share a PostgreSQL; with SQLite leave ETCD_HOST unset",
            code="invalid-setting",
        )
    url = settings.control_plane_api_url
    if url is not None and not url.startswith(("http://", "https://")):
        raise InvalidInput("CONTROL_PLANE_API_URL must begin with http:// or https://", code="invalid-setting")
    if url is not None and "@" in url and settings.control_plane_token is not None:
        raise InvalidInput(
            "CONTROL_PLANE_API_URL has a login of its own: give that, or a token, not both", code="invalid-setting"
        )


def simulation_allowed(settings: Settings) -> bool:
    return settings.demo or (settings.loopback and settings.database_url.startswith("sqlite"))
