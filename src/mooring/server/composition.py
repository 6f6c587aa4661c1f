"""The composition root: reads the settings and wires every package into one process; only it knows them all."""

from __future__ import annotations

import socket
import sys
from datetime import timedelta
from importlib.metadata import version
from secrets import token_hex
from typing import TYPE_CHECKING

import structlog
import uvicorn
import uvloop

from mooring.api.agents import routes as agent_routes
from mooring.api.agents.hub import AgentHub
from mooring.api.agents.secret_decryption import SecretDecryption
from mooring.api.app import EVERYTHING, OPERATIONS, create_app
from mooring.api.auth import bootstrap, signing
from mooring.api.auth.login_cache import LoginCache
from mooring.api.auth.login_records import LoginRecords
from mooring.api.auth.passwords import Passwords
from mooring.api.auth.signing import SigningKeys
from mooring.api.auth.tokens import Tokens
from mooring.api.middleware.http_server import ApiServer, protocols
from mooring.api.middleware.load_shedding.connections import Connections
from mooring.api.middleware.load_shedding.limits import connection_limits, load_limits
from mooring.api.middleware.load_shedding.shedding import LoadShedding
from mooring.api.services import DeploymentLimits, Services
from mooring.clock import now
from mooring.controllers.leadership.leader import Leader
from mooring.controllers.upkeep.retention import Retention
from mooring.coordination.presence import refuse_other_election
from mooring.coordination.signals import Signal
from mooring.model.errors import Unavailable
from mooring.model.nodes.heartbeats import Pace
from mooring.model.nodes.suspicion import Suspicion
from mooring.security import encryption
from mooring.security.encryption import SecretBox
from mooring.server import maintenance
from mooring.server.checks import check_settings, simulation_allowed
from mooring.server.data_folder import announce, keep_password, make_data_folder
from mooring.server.database_setup import (
    add_simulated_nodes,
    first_admin,
    login_code,
    prepare_schema,
    seed,
    warn_of_missing_keys,
)
from mooring.server.election import election_kind, election_of, etcd_client
from mooring.server.listen_address import (
    listening,
    own_url,
    url_of,
)
from mooring.server.local_agent import local_agent
from mooring.server.process import ServerProcess
from mooring.server.resource_controller import ResourceController
from mooring.services.administration.audit import Auditor
from mooring.services.administration.defragmentation import Defragmentation
from mooring.services.administration.nodes import NodeAdmin
from mooring.services.administration.pools import PoolAdmin
from mooring.services.administration.quotas import QuotaAdmin
from mooring.services.administration.shares import Shares
from mooring.services.administration.volumes import VolumeAdmin
from mooring.services.bookings.bookings import Bookings
from mooring.services.deployments.deployments import DeploymentAdmin
from mooring.services.queries.queries import Queries
from mooring.services.submission.submission import SubmissionService
from mooring.services.uploads.uploads import UploadLimits, Uploads
from mooring.services.what_if.what_if import WhatIf
from mooring.settings import Settings
from mooring.simulation.what_if.process import Bounds
from mooring.store.control.configuration_version import ConfigurationVersion
from mooring.store.core.engine import Database, is_temporary
from mooring.telemetry import logs, metrics

if TYPE_CHECKING:
    pass

_log = structlog.get_logger(__name__)
_GRACEFUL_SECONDS = 10


def up(settings: Settings) -> None:
    """Run a server until it receives a signal to stop; raise MooringError if it cannot start."""
    logs.configure(form=settings.log_format, level=settings.log_level)
    check_settings(settings)
    make_data_folder(settings.data)
    with maintenance.only_server(settings.data), listening(settings) as listener:
        uvloop.run(run(settings, listener))


async def run(settings: Settings, listener: socket.socket) -> None:
    """Build a server and run it on this listener."""
    name = settings.scheduler_instance_id or f"{socket.gethostname()}-{token_hex(4)}"
    database = Database(
        settings.database_url,
        dual_write=settings.dual_write,
        statement_timeout_seconds=settings.statement_timeout_seconds,
        name=name,
    )
    try:
        await database.check_open()
        try:
            server = await build(settings, database, name, url_of(settings, listener))
        except Exception as error:
            if not is_temporary(error):
                raise
            problem = str(getattr(error, "orig", error)).partition("\n")[0]
            raise Unavailable(f"the connection to the database was lost while the server started: {problem}") from error
        await server.run(listener)
    finally:
        await database.close()


async def build(settings: Settings, database: Database, name: str, url: str) -> ServerProcess:
    """Prepare the database and wire the parts of a server that will be reached at this URL."""
    secret_box = encryption.open_keys(settings.sealing_keys, create=settings.sealing_keys_file is None)
    signal = Signal()
    server = ServerProcess(
        settings,
        database,
        name,
        url,
        signal=signal,
        hub=_agent_hub(settings, database, signal, secret_box, url),
        leader=None if settings.role == "api" else _leader(settings, database, signal, name),
        etcd=None if settings.etcd_host is None else etcd_client(settings),
    )
    await prepare_schema(database)
    if server.leader is not None:
        await refuse_other_election(database, name, election_kind(settings, database))
    await database.write(seed)
    passwords = Passwords()
    given = settings.admin_password.get_secret_value() if settings.admin_password else None
    password = await bootstrap.first_start(
        database, passwords, given, now(), keep=lambda chosen: keep_password(settings, chosen)
    )
    admin = await first_admin(database)
    node_admin = NodeAdmin(database, simulation_allowed=simulation_allowed(settings))
    if settings.simulate:
        await add_simulated_nodes(database, node_admin, admin, settings.simulate)
    keys = (
        signing.from_text(settings.signing_key.get_secret_value())
        if settings.signing_key
        else signing.load(settings.data)
    )
    await signing.check_shared(database, keys)
    await warn_of_missing_keys(database, secret_box)
    services = _services(server, secret_box, keys, node_admin, passwords)
    server.uvicorn = _http_server(server, services)
    if settings.role == "all" and settings.agent:
        server.agent = await local_agent(database, settings, url, admin)
    announce(settings, url, password, await login_code(database, admin) if sys.stdout.isatty() else None)
    return server


def _agent_hub(settings: Settings, database: Database, signal: Signal, secret_box: SecretBox, url: str) -> AgentHub:
    return AgentHub(
        database,
        signal,
        _pace(settings),
        timedelta(seconds=settings.quarantine_seconds),
        SecretDecryption(secret_box, in_plain_text=settings.secrets_in_plain_text),
        own_url(settings, url),
    )


def _leader(settings: Settings, database: Database, signal: Signal, name: str) -> Leader:
    return Leader(
        database,
        signal,
        name,
        election_of(settings, database, name),
        reconcile_interval=settings.reconcile_interval,
        pace=_pace(settings),
        suspicion=Suspicion(
            settings.node_failures,
            timedelta(seconds=settings.node_failure_window_seconds),
            timedelta(seconds=settings.fast_end_seconds),
        ),
        retention=Retention(
            events=timedelta(hours=settings.event_retention_hours),
            submissions=timedelta(hours=settings.idempotency_retention_hours),
            workloads=timedelta(days=settings.workload_retention_days),
            history=timedelta(days=settings.history_retention_days),
            records=timedelta(days=settings.record_retention_days),
            usage=timedelta(days=settings.usage_retention_days),
            measures=timedelta(hours=settings.measure_retention_hours),
            logins=timedelta(days=settings.login_retention_days),
        ),
        accounting_interval_seconds=settings.accounting_interval_seconds,
        audit_interval_seconds=settings.audit_interval_seconds,
        controller=_resource_controller(settings),
    )


def _services(
    server: ServerProcess, secret_box: SecretBox, keys: SigningKeys, node_admin: NodeAdmin, passwords: Passwords
) -> Services:
    settings, database = server.settings, server.database
    configuration = server.signal.subscribe(ConfigurationVersion())
    queries = Queries(database)
    return Services(
        database=database,
        submissions=SubmissionService(database, secret_box=secret_box, configuration=configuration),
        deployments=DeploymentAdmin(database, secret_box=secret_box),
        bookings=Bookings(database),
        queries=queries,
        what_if=WhatIf(queries, _what_if_bounds(settings)),
        nodes=node_admin,
        pools=PoolAdmin(database),
        defragmentation=Defragmentation(database),
        quotas=QuotaAdmin(database),
        shares=Shares(database),
        volumes=VolumeAdmin(database),
        uploads=Uploads(database, server.upload_content, _upload_limits(settings)),
        logs=server.hub,
        task_access=server.hub,
        measured=server.hub.measured,
        feed=server.feed,
        state=server.state,
        leader=server.leader,
        auditor=Auditor(database),
        connections=server.connections,
        login_records=LoginRecords(database),
        tokens=Tokens(keys, lifetime_seconds=settings.token_seconds),
        metrics_text=metrics.text,
        metrics_token=settings.metrics_token.get_secret_value() if settings.metrics_token else None,
        version=version("mooring"),
        public_url=settings.public_url or server.url,
        secret_box=secret_box,
        trusted_proxies=settings.trusted_networks,
        limits=_limits(settings),
        passwords=passwords,
        load=LoadShedding(load_limits(settings)),
        logins=LoginCache(configuration),
    )


def _what_if_bounds(settings: Settings) -> Bounds:
    return Bounds(settings.what_if_seconds, settings.what_if_memory_mb * 2**20)


def _http_server(server: ServerProcess, services: Services) -> ApiServer:
    settings = server.settings
    app = create_app(
        services,
        OPERATIONS if settings.role == "scheduler" else (*EVERYTHING, agent_routes.router(server.database, server.hub)),
    )
    connections = Connections(services.load, connection_limits(settings), settings.trusted_networks)
    return ApiServer(
        uvicorn.Config(
            app,
            **protocols(connections),
            ws_max_size=settings.websocket_message_kb * 2**10,
            timeout_keep_alive=settings.keep_alive_seconds,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_GRACEFUL_SECONDS,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            server_header=False,
            # By default uvicorn believes whatever comes from loopback, where tasks are too.
            proxy_headers=False,
        )
    )


def _resource_controller(settings: Settings) -> ResourceController | None:
    url, token = settings.control_plane_api_url, settings.control_plane_token
    return None if url is None else ResourceController(url, None if token is None else token.get_secret_value())


def _limits(settings: Settings) -> DeploymentLimits:
    return DeploymentLimits(
        min_cpu=settings.deployment_min_cpu,
        max_cpu=settings.deployment_max_cpu,
        min_memory_mb=settings.deployment_min_memory_mb,
        max_memory_mb=settings.deployment_max_memory_mb,
        max_gpu=settings.deployment_max_gpu,
        max_storage_gb=settings.deployment_max_storage_gb,
        max_replicas=settings.deployment_max_replicas,
        max_scale=settings.deployment_max_scale,
    )


def _upload_limits(settings: Settings) -> UploadLimits:
    return UploadLimits(
        project_bytes=settings.upload_quota_mb * 10**6,
        user_bytes=settings.upload_user_quota_mb * 10**6,
        upload_bytes=settings.upload_max_mb * 10**6,
    )


def _pace(settings: Settings) -> Pace:
    return Pace(
        least_seconds=settings.heartbeat_seconds,
        most_per_second=settings.heartbeat_rate,
        grace_seconds=settings.heartbeat_grace_seconds,
        timeout_seconds=settings.node_timeout_seconds,
    )
