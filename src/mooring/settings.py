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
        description="where others reach this server; else where it listens",
    )
    trusted_proxies: str = Field(
        "",
        description="addresses or networks (CIDR), with commas between, whose X-Forwarded-For and -Proto are believed",
    )
    role: Literal["all", "api", "scheduler"] = Field(
        "all", description="all: API, scheduler and agent; api: the API alone; scheduler: leader or standby"
    )

    admin_password: SecretStr | None = Field(None, description="first password of the user admin")
    signing_key: SecretStr | None = Field(None, description="key that signs tokens; otherwise kept in the data folder")
    sealing_keys_file: Path | None = Field(
        None, description="keys that seal secrets (lines id:base64key); with SQLite one is made in the data folder"
    )
    secrets_in_plain_text: bool = Field(
        False, description="send secrets also to agents on other machines whose connection has no TLS"
    )
    metrics_token: SecretStr | None = Field(None, description="bearer token that /metrics requires; none if not set")
    token_seconds: int = Field(3600, ge=60, le=86400, description="life of a token")

    simulate: int = Field(0, ge=0, le=10000, description="simulated nodes to add at the first start")
    demo: bool = Field(False, description="allow simulated nodes on PostgreSQL or beyond loopback")
    agent: bool = Field(True, description="run an agent for this machine inside the server")
    node_name: str | None = Field(None, description="name of this machine's node; its host name if not given")
    engine: str | None = Field(
        None, description="address of the container engine, or none; else DOCKER_HOST, else the usual sockets"
    )
    host_paths: str = Field(
        "", description="folders of this machine, with : between, that tasks may mount where their pool allows it, too"
    )
    task_network: Literal["host", "none"] = Field(
        "host", description="network of process tasks of this machine: its own, or none but a private loopback"
    )
    trust_tenants: bool = Field(False, description="an agent without root runs the processes of every tenant")
    on_stop: Literal["leave", "stop"] = Field("leave", description="running work when the server stops")
    heartbeat_seconds: float = Field(5.0, gt=0, le=300, description="shortest pause between two heartbeats of an agent")
    heartbeat_rate: float = Field(50.0, gt=0, description="most heartbeats of all agents per second: they pause longer")
    heartbeat_grace_seconds: float = Field(
        5.0, ge=0, description="a node is suspect when it is silent for two pauses and this long"
    )
    node_timeout_seconds: float = Field(
        30.0, gt=0, description="a node that is silent this long, and for three pauses, is lost"
    )
    quarantine_seconds: float = Field(
        3600.0, ge=0, description="how long a task that the database does not know goes on before it is ended"
    )
    node_failures: int = Field(
        3, ge=0, description="a node where so much different work failed is avoided, at twice that drained; 0: never"
    )
    node_failure_window_seconds: float = Field(1800.0, gt=0, description="how long such a failure counts")
    fast_end_seconds: float = Field(10.0, ge=0, description="what fails so soon after its start counts as such")

    reconcile_interval: float = Field(30.0, gt=0, description="seconds between two passes that no signal asked for")
    scheduler_instance_id: str | None = Field(None, description="name of this scheduler; host and a random part if not")
    etcd_host: str | None = Field(None, description="etcd for leadership and signals: hosts, with commas between")
    etcd_port: int = Field(2379, ge=1, le=65535, description="port of etcd where a host names none")
    etcd_username: str | None = Field(None, description="user of etcd, where it wants a login")
    etcd_password: SecretStr | None = Field(None, description="password of that user")
    etcd_tls: bool = Field(False, description="speak TLS with etcd")
    etcd_ca: Path | None = Field(
        None, description="authorities that sign etcd's certificate (PEM); the system's if not"
    )
    etcd_cert: Path | None = Field(None, description="certificate that is shown to etcd (PEM)")
    etcd_key: Path | None = Field(None, description="its private key (PEM)")
    etcd_fallback_seconds: float = Field(
        0.0, ge=0, description="elect through the database when etcd has not answered for this many seconds; 0: never"
    )
    leader_lease_ttl: float = Field(15.0, ge=1, description="seconds after which a leader that went silent is replaced")
    control_plane_api_url: str | None = Field(None, description="where scale-up requests are sent; off unless set")
    control_plane_token: SecretStr | None = Field(None, description="sent with them as a bearer token")
    audit_interval_seconds: float = Field(3600.0, ge=0, description="pause between two audits of the leader; 0: none")
    dual_write: bool = Field(True, description="keep tasks.occupied_slots, a readable copy of what the ledger says")
    statement_timeout_seconds: float = Field(
        30.0, ge=0, description="PostgreSQL ends a statement that takes longer; 0: none"
    )
    uploads_folder: Path | None = Field(
        None,
        description="folder for uploaded files, shared by all servers with an API; uploads in the data folder if not",
    )
    upload_max_mb: int = Field(5000, ge=1, description="largest folder that can be uploaded, in MB")
    upload_quota_mb: int = Field(20_000, ge=1, description="uploaded files that are kept for one project, in MB")
    upload_user_quota_mb: int = Field(
        10_000, ge=1, description="uploaded files that are kept for one user, in all projects together, in MB"
    )
    upload_retention_days: float = Field(
        7.0, gt=0, description="how long uploaded files are kept after their last use; work in progress keeps them"
    )
    event_retention_hours: float = Field(24.0, gt=0, description="how long the event feed is kept")
    idempotency_retention_hours: float = Field(72.0, gt=0, description="how long answers to idempotency keys are kept")
    workload_retention_days: float = Field(
        90.0, gt=0, description="how long ended workloads are kept, with tasks, ledger rows and history"
    )
    history_retention_days: float = Field(365.0, gt=0, description="how long the history of living things is kept")
    record_retention_days: float = Field(730.0, gt=0, description="how long the records of ended workloads are kept")
    usage_retention_days: float = Field(730.0, gt=0, description="how long daily usage is kept")
    measure_retention_hours: float = Field(
        48.0, gt=0, description="how long it is kept what each task used minute by minute; its days stay as usage"
    )
    login_retention_days: float = Field(90.0, gt=0, description="how long records of logins and failed logins are kept")
    accounting_interval_seconds: float = Field(300.0, gt=0, description="pause between two counts of what was used")

    requests_at_once: int = Field(
        6, ge=1, description="requests in progress of logged-in users; others queue, fairly between users"
    )
    unverified_requests_at_once: int = Field(
        2, ge=1, description="requests in progress without a valid credential, such as logins"
    )
    queue_length: int = Field(100, ge=1, description="queued requests of one user, or of one address before the login")
    queue_seconds: float = Field(10.0, gt=0, description="longest wait of a queued request before it gets 429")
    body_memory_mb: int = Field(
        64, ge=64, description="memory in MiB for unfinished bodies and WebSocket messages of logged-in users"
    )
    unverified_body_memory_kb: int = Field(
        2048, ge=64, description="memory in KiB for unfinished bodies of logins and of nodes that join"
    )
    body_seconds: float = Field(
        20.0, gt=0, description="time for a body to arrive, plus a second for every 64 KiB of it; then 408"
    )
    connection_limit: int = Field(
        4096, ge=16, description="open connections to the API; fewer where the limit on open files is low"
    )
    address_connection_limit: int = Field(
        256, ge=4, description="connections of one address that have shown no valid credential"
    )
    user_connection_limit: int = Field(512, ge=4, description="connections of one user")
    header_seconds: float = Field(10.0, gt=0, description="time for the headers of a request to arrive")
    keep_alive_seconds: int = Field(20, ge=1, description="time after which an idle connection is closed")
    websocket_message_kb: int = Field(
        320, ge=288, description="largest WebSocket message of a user in KiB; agents may send 16 MiB"
    )
    request_rate: float = Field(500.0, gt=0, description="requests of one user per second; twice as many at once")
    question_rate: float = Field(10.0, gt=0, description="dry runs and explanations of one user per second")
    what_if_seconds: int = Field(60, ge=1, le=3600, description="CPU time of the answer to a what-if question")
    what_if_memory_mb: int = Field(
        4096, ge=512, description="memory (address space) of the process that answers a what-if question, in MiB"
    )
    stream_limit: int = Field(
        100, ge=1, description="streams (events, output) and long polls that one user may have open"
    )
    address_rate: float = Field(100.0, gt=0, description="requests without a valid credential per second and address")
    admin_rate_factor: float = Field(10.0, ge=1, description="an admin may have so many times as much")

    deployment_max_cpu: float = Field(16, description="largest cpu of a request to /api/deployment, in cores")
    deployment_min_cpu: float = Field(0.5, description="smallest cpu there")
    deployment_max_memory_mb: int = Field(16384, description="largest memory there, in MB")
    deployment_min_memory_mb: int = Field(512, description="smallest memory there")
    deployment_max_gpu: int = Field(8, description="most gpus there")
    deployment_max_storage_gb: int = Field(1000, description="largest storage there, in GB")
    deployment_max_replicas: int = Field(10, description="most replicas there at creation")
    deployment_max_scale: int = Field(100, description="most replicas there by scaling")

    log_format: Literal["text", "json"] = Field("text", description="how log lines are written")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")

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
    """Setting to where its value came from."""


def load(
    flags: Mapping[str, Any] | None = None,
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """The effective settings. Flags that are None were not given."""
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
    """(name, value, origin, meaning) of every setting; secrets are not shown."""
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
