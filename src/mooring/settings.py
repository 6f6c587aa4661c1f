"""Every setting: its name, default and meaning, and where its value came from.

Rising order of precedence: the environment (`MOORING_…`), a TOML file, flags. An unknown name is an error.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from mooring.model.errors import InvalidInput

_PREFIX = "MOORING_"
_PASSWORD_IN_URL = re.compile(r"(//[^/:@]*):[^/]*@")
# Names that people know from elsewhere.
_ALIASES = {
    "ETCD_HOST": "etcd_host",
    "ETCD_PORT": "etcd_port",
    "CONTROL_PLANE_API_URL": "control_plane_api_url",
    "SCHEDULER_INSTANCE_ID": "scheduler_instance_id",
    "LEADER_LEASE_TTL": "leader_lease_ttl",
    "RECONCILE_INTERVAL": "reconcile_interval",
}
# Variables of Mooring's other programs (the client, the tests), which are no settings of the server.
_FOREIGN = frozenset({"MOORING_SERVER", "MOORING_TOKEN", "MOORING_CONFIG", "MOORING_REQUIRE", "MOORING_CONFORMANCE"})
_FOREIGN |= {"MOORING_TRACES", "MOORING_TASK_ID", "MOORING_WORKLOAD", "MOORING_WORKLOAD_ID", "MOORING_INDEX"}
_FOREIGN |= {"MOORING_ATTEMPT", "MOORING_PORTS", "MOORING_CA_FILE", "MOORING_JOIN_TOKEN", "MOORING_ACCESS_KEY"}
_FOREIGN |= {"MOORING_SECRET_KEY", "MOORING_DEVICES", "MOORING_DEVICE_SHARES", "MOORING_ARRAY_INDEX"}
_FOREIGN |= {"MOORING_ARRAY_COUNT", "MOORING_TASK_ROLE", "MOORING_CLUSTER_SIZE", "MOORING_CLOCK_AHEAD"}
_FOREIGN |= {"MOORING_PEERS", "MOORING_PEER_ADDRESSES", "MOORING_PEER_PORTS"}


def default_data() -> Path:
    """One folder for all state: the system's place for root, the person's own otherwise."""
    if os.geteuid() == 0:
        return Path("/var/lib/mooring")
    base = os.environ.get("XDG_DATA_HOME")
    # The specification says that a relative path there is to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "share"
    return root / "mooring"


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
    role: Literal["all", "api", "scheduler"] = Field(
        "all", description="all: API, scheduler and agent; api: the API alone; scheduler: leads or stands by"
    )

    admin_password: SecretStr | None = Field(None, description="first password of the user admin")
    signing_key: SecretStr | None = Field(None, description="key that signs tokens; otherwise kept in the data folder")
    sealing_keys_file: Path | None = Field(
        None, description="keys that seal secrets (lines id:base64key); with SQLite one is made in the data folder"
    )
    secrets_in_plain_text: bool = Field(
        False, description="send secrets also to agents on other machines whose connection has no TLS"
    )
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
    leader_lease_ttl: float = Field(15.0, ge=1, description="seconds after which a leader that went silent is replaced")
    control_plane_api_url: str | None = Field(None, description="where scale-up requests are sent; off unless set")
    control_plane_token: SecretStr | None = Field(None, description="sent with them as a bearer token")
    audit_interval_seconds: float = Field(3600.0, ge=0, description="pause between two audits of the leader; 0: none")
    dual_write: bool = Field(True, description="keep tasks.occupied_slots, a readable copy of what the ledger says")
    statement_timeout_seconds: float = Field(
        30.0, ge=0, description="PostgreSQL ends a statement that takes longer; 0: none"
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
    accounting_interval_seconds: float = Field(300.0, gt=0, description="pause between two counts of what was used")

    requests_at_once: int = Field(
        6, ge=1, description="requests that are worked on at once; others wait a little or are told to come later"
    )
    request_rate: float = Field(500.0, gt=0, description="requests of one user per second; twice as many at once")
    question_rate: float = Field(10.0, gt=0, description="dry runs and explanations of one user per second")
    stream_limit: int = Field(20, ge=1, description="streams (events, output) that one user may have open")
    address_rate: float = Field(100.0, gt=0, description="requests without a login per second and address")
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

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite+aiosqlite:///{self.data / 'mooring.db'}"

    @property
    def sealing_keys(self) -> Path | None:
        """Where the keys are that seal secrets; None: they must be given, since several servers share the database."""
        if self.sealing_keys_file is not None or not self.database_url.startswith("sqlite"):
            return self.sealing_keys_file
        return self.data / "sealing-keys"

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


def _named(value: Any, source: str) -> tuple[Any, str]:
    return value if isinstance(value, tuple) else (value, source)


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for variable, name in _ALIASES.items():
        if variable in environment:
            found[name] = (environment[variable], f"environment {variable}")
    for variable, value in environment.items():
        if variable.startswith(_PREFIX) and variable not in _FOREIGN:
            found[variable.removeprefix(_PREFIX).lower()] = (value, f"environment {variable}")
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
