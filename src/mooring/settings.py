"""Every setting: its name, default and meaning, and where its value came from.

Rising order of precedence: the environment (`MOORING_…`), a TOML file, flags. An unknown name is an error. A secret can
also come from a file that the environment names (`MOORING_…_FILE`) or from a systemd credential of the setting's name.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from mooring.model.errors import InvalidInput
from mooring.security import secret_sources
from mooring.security.data_folder import default_data

IPNetwork = IPv4Network | IPv6Network

PREFIX = "MOORING_"
_PASSWORD_IN_URL = re.compile(r"(//[^/:@]*):[^/]*@")
ALIASES = {
    "ETCD_HOST": "etcd_host",
    "ETCD_PORT": "etcd_port",
    "CONTROL_PLANE_API_URL": "control_plane_api_url",
    "SCHEDULER_INSTANCE_ID": "scheduler_instance_id",
    "LEADER_LEASE_TTL": "leader_lease_ttl",
    "RECONCILE_INTERVAL": "reconcile_interval",
    "FORWARDED_ALLOW_IPS": "trusted_proxies",
}
"""Environment variables without the prefix that set a setting, too."""
# Variables of Mooring's other programs (the client, the tests), which are no settings of the server.
_FOREIGN = frozenset({"MOORING_SERVER", "MOORING_TOKEN", "MOORING_CONFIG", "MOORING_REQUIRE", "MOORING_CONFORMANCE"})
_FOREIGN |= {"MOORING_TRACES", "MOORING_TASK_ID", "MOORING_WORKLOAD", "MOORING_WORKLOAD_ID", "MOORING_INDEX"}
_FOREIGN |= {"MOORING_ATTEMPT", "MOORING_PORTS", "MOORING_CA_FILE", "MOORING_JOIN_TOKEN", "MOORING_ACCESS_KEY"}
_FOREIGN |= {"MOORING_SECRET_KEY", "MOORING_DEVICES", "MOORING_DEVICE_SHARES", "MOORING_ARRAY_INDEX"}
_FOREIGN |= {"MOORING_ARRAY_COUNT", "MOORING_TASK_ROLE", "MOORING_CLUSTER_SIZE", "MOORING_CLOCK_AHEAD"}
_FOREIGN |= {"MOORING_PEERS", "MOORING_PEER_ADDRESSES", "MOORING_PEER_PORTS", "MOORING_COMMAND"}
_FOREIGN |= {"MOORING_NODE", "MOORING_PROJECT", "MOORING_DEBUG"}
_FOREIGN |= {"MOORING_JOIN_TOKEN_FILE", "MOORING_TOKEN_FILE", "MOORING_SECRET_KEY_FILE"}
SECRETS = ("database", "admin_password", "signing_key", "metrics_token", "etcd_password", "control_plane_token")
"""Settings that are secrets, or that may hold one, as the database's URL does."""


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    data: Path = Field(default_factory=default_data, description="folder that keeps all state")
    database: str | None = Field(None, description="database URL; a SQLite file in the data folder if not given")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    insecure: bool = Field(False, description="allow listening beyond loopback without TLS")
    tls_cert: Path | None = Field(None, description="certificate file (PEM)")
    tls_key: Path | None = Field(None, description="private key file (PEM)")
    public_url: str | None = Field(
        None,
        pattern=r"^https?://[^\s/@]+(/[^\s@]*)?$",
        description="URL at which others reach this server; the address that it listens on if not set",
    )
    trusted_proxies: str = Field(
        "",
        description="addresses or networks of proxies whose X-Forwarded headers are trusted, separated by commas",
    )
    role: Literal["all", "api", "scheduler"] = Field(
        "all", description="all: API, scheduler and agent; api: the API alone; scheduler: leader or standby"
    )

    admin_password: SecretStr | None = Field(None, description="first password of the user admin")
    signing_key: SecretStr | None = Field(None, description="key that signs tokens; kept in the data folder if not set")
    sealing_keys_file: Path | None = Field(
        None,
        description="file of the keys that encrypt secrets (lines id:base64key); created on SQLite",
    )
    secrets_in_plain_text: bool = Field(
        False, description="also send secrets to agents on other machines whose connection has no TLS"
    )
    metrics_token: SecretStr | None = Field(None, description="bearer token that /metrics requires; none if not set")
    token_seconds: int = Field(3600, ge=60, le=86400, description="lifetime of a token")

    simulate: int = Field(0, ge=0, le=10000, description="simulated nodes to add at the first start")
    demo: bool = Field(False, description="allow simulated nodes on PostgreSQL or beyond loopback")
    agent: bool = Field(True, description="run an agent for this machine inside the server")
    node_name: str | None = Field(None, description="name of this machine's node; the host name if not set")
    engine: str | None = Field(
        None,
        description="address of the container engine, or none; DOCKER_HOST or a standard socket if not set",
    )
    host_paths: str = Field(
        "", description="folders of this machine that tasks may mount where their pool allows it, separated by colons"
    )
    task_network: Literal["host", "none"] = Field(
        "host",
        description="network of process tasks on this machine: the machine's own, or none except a private loopback",
    )
    trust_tenants: bool = Field(
        False, description="run the processes of all tenants although the agent does not run as root"
    )
    on_stop: Literal["leave", "stop"] = Field(
        "leave", description="whether running work continues or stops when the server stops"
    )
    heartbeat_seconds: float = Field(5.0, gt=0, le=300, description="minimum time between two heartbeats of an agent")
    heartbeat_rate: float = Field(
        50.0, gt=0, description="maximum heartbeats per second of all agents together; above it, their interval grows"
    )
    heartbeat_grace_seconds: float = Field(
        5.0, ge=0, description="a node is suspect after two missed heartbeats and this much more time"
    )
    node_timeout_seconds: float = Field(
        30.0, gt=0, description="silence, at least three heartbeat intervals, after which a node is lost"
    )
    quarantine_seconds: float = Field(
        3600.0, ge=0, description="time after which a task that the database does not know is stopped"
    )
    node_failures: int = Field(
        3,
        ge=0,
        description="failures of different workloads that make a node avoided, and twice as many drained; 0: never",
    )
    node_failure_window_seconds: float = Field(1800.0, gt=0, description="period over which these failures are counted")
    fast_end_seconds: float = Field(
        10.0, ge=0, description="a failure within this time after the start of a task counts against its node"
    )

    reconcile_interval: float = Field(30.0, gt=0, description="seconds between passes that no signal starts")
    scheduler_instance_id: str | None = Field(
        None, description="name of this scheduler; the host name and a random part if not set"
    )
    etcd_host: str | None = Field(None, description="etcd hosts for leader election and signals, separated by commas")
    etcd_port: int = Field(2379, ge=1, le=65535, description="etcd port of hosts that name none")
    etcd_username: str | None = Field(None, description="etcd user, if etcd requires a login")
    etcd_password: SecretStr | None = Field(None, description="password of the etcd user")
    etcd_tls: bool = Field(False, description="connect to etcd over TLS")
    etcd_ca: Path | None = Field(None, description="CA certificates for etcd (PEM); those of the system if not set")
    etcd_cert: Path | None = Field(None, description="client certificate for etcd (PEM)")
    etcd_key: Path | None = Field(None, description="private key of the client certificate (PEM)")
    etcd_fallback_seconds: float = Field(
        0.0, ge=0, description="elect through the database after etcd has not answered for this many seconds; 0: never"
    )
    leader_lease_ttl: float = Field(15.0, ge=1, description="seconds after which a silent leader is replaced")
    control_plane_api_url: str | None = Field(
        None, description="URL to which scale-up requests are sent; none are sent if not set"
    )
    control_plane_token: SecretStr | None = Field(None, description="bearer token of scale-up requests")
    audit_interval_seconds: float = Field(
        3600.0, ge=0, description="time between two audits by the leader; 0: no audits"
    )
    dual_write: bool = Field(True, description="also write tasks.occupied_slots, a readable copy of the ledger")
    statement_timeout_seconds: float = Field(
        30.0, ge=0, description="time after which PostgreSQL cancels a statement; 0: no limit"
    )
    uploads_folder: Path | None = Field(
        None,
        description="folder for uploaded files, shared by all API servers; `uploads` in the data folder if not set",
    )
    upload_max_mb: int = Field(5000, ge=1, description="maximum size of an uploaded folder in MB")
    upload_quota_mb: int = Field(20_000, ge=1, description="uploaded files that are stored per project, in MB")
    upload_user_quota_mb: int = Field(
        10_000, ge=1, description="uploaded files that are stored per user in all projects, in MB"
    )
    upload_retention_days: float = Field(
        7.0, gt=0, description="retention of uploaded files after their last use; unfinished work keeps them"
    )
    event_retention_hours: float = Field(24.0, gt=0, description="retention of the event feed")
    idempotency_retention_hours: float = Field(72.0, gt=0, description="retention of answers to idempotency keys")
    workload_retention_days: float = Field(
        90.0, gt=0, description="retention of ended workloads with their tasks, ledger rows and history"
    )
    history_retention_days: float = Field(365.0, gt=0, description="retention of the history of active workloads")
    record_retention_days: float = Field(730.0, gt=0, description="retention of the records of ended workloads")
    usage_retention_days: float = Field(730.0, gt=0, description="retention of daily usage")
    measure_retention_hours: float = Field(
        48.0, gt=0, description="retention of the measured use of each task by minute; daily totals are kept as usage"
    )
    login_retention_days: float = Field(90.0, gt=0, description="retention of the records of logins and failed logins")
    accounting_interval_seconds: float = Field(300.0, gt=0, description="time between two counts of usage")

    requests_at_once: int = Field(
        6, ge=1, description="concurrent requests of logged-in users; others queue, fairly between users"
    )
    unverified_requests_at_once: int = Field(
        2, ge=1, description="concurrent requests without a valid credential, such as logins"
    )
    queue_length: int = Field(100, ge=1, description="queued requests per user, or per address before the login")
    queue_seconds: float = Field(10.0, gt=0, description="maximum wait of a queued request before it gets 429")
    body_memory_mb: int = Field(
        64, ge=64, description="memory in MiB for unfinished bodies and WebSocket messages of logged-in users"
    )
    unverified_body_memory_kb: int = Field(
        2048, ge=64, description="memory in KiB for unfinished bodies of logins and joining nodes"
    )
    body_seconds: float = Field(
        20.0, gt=0, description="time for a body to arrive, plus one second for every 64 KiB; then 408"
    )
    connection_limit: int = Field(
        4096, ge=16, description="open connections to the API; fewer if the limit on open files is low"
    )
    address_connection_limit: int = Field(256, ge=4, description="connections per address without a valid credential")
    user_connection_limit: int = Field(512, ge=4, description="connections per user")
    header_seconds: float = Field(10.0, gt=0, description="time for the headers of a request to arrive")
    keep_alive_seconds: int = Field(20, ge=1, description="time after which an idle connection is closed")
    websocket_message_kb: int = Field(
        320, ge=288, description="maximum size of a user's WebSocket message in KiB; agents may send 16 MiB"
    )
    request_rate: float = Field(500.0, gt=0, description="requests per second and user; bursts may be twice as large")
    question_rate: float = Field(
        10.0, gt=0, description="expensive requests per second and user: dry runs, explanations, reports"
    )
    what_if_seconds: int = Field(60, ge=1, le=3600, description="CPU time of the answer to a what-if question")
    what_if_memory_mb: int = Field(
        4096, ge=512, description="memory (address space) of the process that answers a what-if question, in MiB"
    )
    stream_limit: int = Field(100, ge=1, description="streams (events, output) and long polls per user")
    address_rate: float = Field(100.0, gt=0, description="requests per second and address without a valid credential")
    admin_rate_factor: float = Field(10.0, ge=1, description="factor by which an admin's rates and limits are higher")

    deployment_max_cpu: float = Field(16, description="maximum CPU of a request to /api/deployment, in cores")
    deployment_min_cpu: float = Field(0.5, description="minimum CPU, in cores")
    deployment_max_memory_mb: int = Field(16384, description="maximum memory, in MB")
    deployment_min_memory_mb: int = Field(512, description="minimum memory, in MB")
    deployment_max_gpu: int = Field(8, description="maximum number of GPUs")
    deployment_max_storage_gb: int = Field(1000, description="maximum storage, in GB")
    deployment_max_replicas: int = Field(10, description="maximum number of replicas at creation")
    deployment_max_scale: int = Field(100, description="maximum number of replicas by scaling")

    log_format: Literal["text", "json"] = Field("text", description="format of log lines")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="minimum level of logged messages"
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _check_trusted_proxies(cls, text: str) -> str:
        _networks(text)
        return text

    @property
    def trusted_networks(self) -> tuple[IPNetwork, ...]:
        return _networks(self.trusted_proxies)

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite+aiosqlite:///{self.data / 'mooring.db'}"

    @property
    def sealing_keys(self) -> Path | None:
        """File of the keys that encrypt secrets; None: a shared database needs one to be configured."""
        if self.sealing_keys_file is not None or not self.database_url.startswith("sqlite"):
            return self.sealing_keys_file
        return self.data / "sealing-keys"

    @property
    def uploads(self) -> Path:
        """Folder with the content of uploads."""
        return self.uploads_folder or self.data / "uploads"

    @property
    def loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


@dataclass(frozen=True, slots=True)
class Loaded:
    settings: Settings
    origins: Mapping[str, str]
    """By setting, the source of its value."""


def load(
    flags: Mapping[str, Any] | None = None,
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Return the effective settings; flags that are None were not given."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    for source, found in (
        ("environment", _from_environment(environment)),
        ("file", _from_file(config_file, environment)),
        ("flag", {name: value for name, value in (flags or {}).items() if value is not None}),
    ):
        for name, (value, origin) in ((n, _named(v, source)) for n, v in found.items()):
            if name not in Settings.model_fields:
                raise InvalidInput(f"there is no setting {name!r} ({origin})", code="unknown-setting")
            values[name], origins[name] = value, origin
    try:
        return Loaded(Settings.model_validate(values), origins)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        raise InvalidInput(
            f"setting {name} ({origins.get(name, 'default')}): {first['msg']}", code="invalid-setting"
        ) from None


def describe(loaded: Loaded) -> list[tuple[str, str, str, str]]:
    """Return name, value, origin and meaning of every setting; secrets are not shown."""
    rows = []
    for name, field in Settings.model_fields.items():
        value = getattr(loaded.settings, name)
        if isinstance(value, SecretStr):
            value = "(set, not shown)"
        shown = "" if value is None else _PASSWORD_IN_URL.sub(r"\1:***@", str(value))
        rows.append((name, shown, loaded.origins[name], field.description or ""))
    return rows


def _networks(text: str) -> tuple[IPNetwork, ...]:
    """The networks of a list such as `10.0.0.1, 10.1.0.0/16`."""
    parts = [part.strip() for part in text.split(",")]
    return tuple(ip_network(part, strict=False) for part in parts if part)


def _named(value: Any, source: str) -> tuple[Any, str]:
    return value if isinstance(value, tuple) else (value, source)


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for variable, name in ALIASES.items():
        if variable in environment:
            found[name] = (environment[variable], f"environment {variable}")
    secrets = {f"{PREFIX}{name.upper()}": name for name in SECRETS}
    for variable, name in secrets.items():
        if (value := secret_sources.find(environment, variable, name)) is not None:
            found[name] = value
    for variable, text in environment.items():
        own = variable.startswith(PREFIX) and variable not in _FOREIGN
        if own and variable not in secrets and variable.removesuffix("_FILE") not in secrets:
            found[variable.removeprefix(PREFIX).lower()] = (text, f"environment {variable}")
    return found


def _from_file(path: Path | None, environment: Mapping[str, str]) -> dict[str, Any]:
    given = path or (Path(environment["MOORING_CONFIG"]) if environment.get("MOORING_CONFIG") else None)
    if given is None:
        return {}
    try:
        with given.open("rb") as file:
            document = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"cannot read the settings file {given}: {error}", code="invalid-setting") from None
    return {name: (value, f"file {given}") for name, value in document.items()}
