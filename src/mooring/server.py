"""The composition root: reads the settings and wires the rooms into one process. The only place that knows them all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import structlog
import uvicorn
import uvloop

from mooring import logs, maintenance, metrics, sealing
from mooring.api import agents as agent_routes
from mooring.api import bootstrap, signing
from mooring.api.app import EVERYTHING, OPERATIONS, create_app
from mooring.api.feed import EventFeed
from mooring.api.hub import AgentHub
from mooring.api.passwords import Passwords
from mooring.api.pressure import Pressure
from mooring.api.rates import RateLimits, Rates
from mooring.api.services import DeploymentLimits, Services
from mooring.api.tokens import Tokens
from mooring.api.unsealing import Unsealing
from mooring.clock import now
from mooring.controllers.leader import Leader
from mooring.controllers.retention import Retention
from mooring.coordination import postgres
from mooring.coordination.election import Alone, Election
from mooring.coordination.etcd import signals as etcd_signals
from mooring.coordination.etcd.client import EtcdClient, Login, Tls, endpoints
from mooring.coordination.etcd.election import EtcdElection
from mooring.coordination.etcd.signals import Announcer
from mooring.coordination.lease import LeaseElection
from mooring.coordination.presence import attend
from mooring.coordination.signals import Signal
from mooring.intake.auditing import Auditor
from mooring.intake.bookings import Bookings
from mooring.intake.deployments import DeploymentAdmin
from mooring.intake.intake import Intake
from mooring.intake.nodes import SIMULATED_POOL, NodeAdmin, simulated_request
from mooring.intake.pools import PoolAdmin
from mooring.intake.questions import Questions
from mooring.intake.quotas import QuotaAdmin
from mooring.intake.volumes import VolumeAdmin
from mooring.listening import listening, url_for_others, url_of, url_of_this_one
from mooring.model.errors import Conflict, InvalidInput
from mooring.model.heartbeats import Pace
from mooring.model.nodes import REGIONS
from mooring.model.suspicion import Suspicion
from mooring.model.tenants import Principal
from mooring.resource_controller import ResourceController
from mooring.sealing import Sealing
from mooring.settings import Settings
from mooring.store import join_tokens, nodes, pools, schema, sealed, slot_types, tenants, users
from mooring.store.engine import Connection, Database

if TYPE_CHECKING:
    from mooring.agent.agent import Agent

_log = structlog.get_logger(__name__)
DEFAULT_POOL = "default"
_GRACEFUL_SECONDS = 10
_CANCELLED_SECONDS = 5.0
_JOIN_TOKEN_LIFE = timedelta(minutes=10)


def up(settings: Settings) -> None:
    """Run a server until it is told to stop; a MooringError says why it could not start."""
    logs.configure(form=settings.log_format, level=settings.log_level)
    _check(settings)
    _make_data_folder(settings.data)
    with maintenance.only_server(settings.data), listening(settings) as listener:
        uvloop.run(_run(settings, listener))


def rotate_keys(settings: Settings) -> None:
    """Sign with a new key from the next start on; tokens of the old keys stay good until they expire."""

    async def rotate() -> None:
        database = Database(settings.database_url)
        try:
            await signing.check_shared(database, signing.load(settings.data))
            await signing.check_shared(database, signing.rotate(settings.data))
        finally:
            await database.close()

    if settings.signing_key is not None:
        raise Conflict("the signing key comes from the settings; change it there", code="key-from-settings")
    asyncio.run(rotate())


async def _run(settings: Settings, listener: socket.socket) -> None:
    name = settings.scheduler_instance_id or f"{socket.gethostname()}-{token_hex(4)}"
    database = Database(
        settings.database_url,
        dual_write=settings.dual_write,
        statement_timeout_seconds=settings.statement_timeout_seconds,
        name=name,
    )
    try:
        await database.check_open()
        server = await _Server.build(settings, database, listener, name)
        await server.run()
    finally:
        await database.close()


@dataclass(slots=True)
class _State:
    """What /health and /ready say of this server."""

    database: Database
    leader: Leader | None
    stopping: bool = False

    @property
    def role(self) -> str:
        return "api" if self.leader is None else self.leader.role

    @property
    def last_pass_at(self) -> datetime | None:
        return self.leader.scheduling.last_pass_at if self.leader else None

    @property
    def last_pass_ms(self) -> float | None:
        return self.leader.scheduling.last_pass_ms if self.leader else None

    @property
    def passes(self) -> int:
        return self.leader.scheduling.passes if self.leader else 0

    async def checks(self) -> dict[str, str]:
        checks = {"database": "ok"}
        try:
            async with asyncio.timeout(3), self.database.read() as connection:
                await pools.all_pools(connection)
        except Exception as error:
            checks["database"] = f"does not answer: {type(error).__name__}"
        if self.stopping:
            checks["server"] = "stopping"
        if self.leader is not None:
            checks["leadership"] = self.leader.standing
            for loop in self.leader.loops:
                checks[f"loop {loop.name}"] = loop.error or "ok"
            if self.leader.problem:
                checks["scheduler"] = self.leader.problem
        return checks


class _Server:
    """One process: API, and as the role says a scheduler and an agent."""

    def __init__(self, settings: Settings, database: Database, url: str, name: str) -> None:
        self.settings = settings
        self.database = database
        self.name = name
        self.url = url
        self.signal = Signal()
        database.on_commit.append(self.signal.send)
        pace = _pace(settings)
        self.sealing = sealing.of_settings(settings)
        self.hub = AgentHub(
            database,
            self.signal,
            pace,
            timedelta(seconds=settings.quarantine_seconds),
            Unsealing(self.sealing, in_plain_text=settings.secrets_in_plain_text),
            url_of_this_one(settings, url),
        )
        self.feed = EventFeed(database, self.signal)
        self.announcer: Announcer | None = None
        self._etcd: EtcdClient | None = None
        if settings.etcd_host is not None:
            self._etcd = _etcd(settings)
            self.announcer = Announcer(self._etcd, name)
            database.on_commit.append(self.announcer.announce)
        self.leader: Leader | None = None
        if settings.role != "api":
            self.leader = Leader(
                database,
                self.signal,
                name,
                _election(settings, database, name),
                reconcile_interval=settings.reconcile_interval,
                pace=pace,
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
                ),
                accounting_interval_seconds=settings.accounting_interval_seconds,
                audit_interval_seconds=settings.audit_interval_seconds,
                controller=_resource_controller(settings),
            )
        self.state = _State(database, self.leader)
        self.agent: Agent | None = None
        self.uvicorn: uvicorn.Server | None = None
        self.listener: socket.socket | None = None

    @classmethod
    async def build(cls, settings: Settings, database: Database, listener: socket.socket, name: str) -> _Server:
        server = cls(settings, database, url_of(settings, listener), name)
        server.listener = listener
        await _ready_schema(database)
        await database.write(_seed)
        passwords = Passwords()
        given = settings.admin_password.get_secret_value() if settings.admin_password else None
        password = await bootstrap.first_start(
            database, passwords, given, now(), keep=lambda chosen: _keep_password(settings, chosen)
        )
        admin = await _admin(database)
        node_admin = NodeAdmin(database, simulation_allowed=_simulation_allowed(settings))
        if settings.simulate:
            await _simulate(database, node_admin, admin, settings.simulate)
        keys = (
            signing.from_text(settings.signing_key.get_secret_value())
            if settings.signing_key
            else signing.load(settings.data)
        )
        await signing.check_shared(database, keys)
        await _warn_of_missing_keys(database, server.sealing)
        services = Services(
            database=database,
            intake=Intake(database, sealing=server.sealing),
            deployments=DeploymentAdmin(database, sealing=server.sealing),
            bookings=Bookings(database),
            questions=Questions(database),
            nodes=node_admin,
            pools=PoolAdmin(database),
            quotas=QuotaAdmin(database),
            volumes=VolumeAdmin(database),
            logs=server.hub,
            ways_in=server.hub,
            measured=server.hub.measured,
            changes=server.signal,
            feed=server.feed,
            state=server.state,
            leader=server.leader,
            auditor=Auditor(database),
            tokens=Tokens(keys, lifetime_seconds=settings.token_seconds),
            metrics_text=metrics.text,
            version=version("mooring"),
            public_url=settings.public_url or server.url,
            sealing=server.sealing,
            limits=_limits(settings),
            passwords=passwords,
            rates=Rates(_rates(settings)),
            pressure=Pressure(settings.requests_at_once),
        )
        app = create_app(
            services,
            OPERATIONS if settings.role == "scheduler" else (*EVERYTHING, agent_routes.router(database, server.hub)),
        )
        server.uvicorn = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=_GRACEFUL_SECONDS,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
                server_header=False,
            )
        )
        if settings.role == "all" and settings.agent:
            server.agent = await _local_agent(database, settings, server.url, admin)
        _announce(settings, server.url, password)
        return server

    async def run(self) -> None:
        """Serve until a signal says stop; then agent, loops and API end in this order, so that no report is lost."""
        assert self.uvicorn is not None
        assert self.listener is not None
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        # uvicorn would take the signals for itself, and they are for the whole process.
        serving = asyncio.create_task(self.uvicorn._serve([self.listener]))
        background = [asyncio.create_task(self._attend())]
        if self.settings.role != "scheduler":
            background += [
                asyncio.create_task(self.hub.follow()),
                asyncio.create_task(self.hub.write_heartbeats()),
                asyncio.create_task(self.hub.measured.keep_written(self.database, self.settings.heartbeat_seconds)),
            ]
        if self._etcd is not None and self.announcer is not None:
            background.append(asyncio.create_task(etcd_signals.listen(self._etcd, self.signal)))
            background.append(asyncio.create_task(self.announcer.run()))
        elif self.database.dialect == "postgresql":
            background.append(asyncio.create_task(postgres.listen(self.database.url, self.signal)))
        leading = asyncio.create_task(self.leader.run()) if self.leader else None
        working = asyncio.create_task(_supervise_agent(self.agent)) if self.agent else None
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        _log.info("Shutting down")
        self.state.stopping = True
        self.feed.close()
        self.hub.hang_up()
        if self.agent is not None and working is not None:
            self.agent.stop(terminate=self.settings.on_stop == "stop")
            await working
        for task in (leading, *background):
            if task is not None:
                await _end(task)
        self.uvicorn.should_exit = True
        stopping.cancel()
        await serving
        _log.info("Graceful shutdown complete")

    async def _attend(self) -> None:
        url = url_for_others(self.settings, self.url)
        await attend(self.database, self.name, role=self.settings.role, url=url, version=version("mooring"))


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel until it has ended: an error at the very moment of a cancellation may have covered it."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_CANCELLED_SECONDS)
    if not task.cancelled():
        task.result()


async def _supervise_agent(agent: Agent) -> None:
    """The API and the scheduler go on without this machine's agent."""
    try:
        await agent.run()
    except Exception:
        _log.exception("The agent of this machine stopped; its node will be lost")


async def _seed(connection: Connection) -> None:
    """What every database has from its first start on."""
    await slot_types.ensure_built_in(connection)
    await pools.ensure(connection, DEFAULT_POOL, runtimes=["container", "process"], simulated=False, now=now())


async def _admin(database: Database) -> Principal:
    async with database.read() as connection:
        user = await users.find(connection, tenants.FIRST_ADMIN)
        standing = await tenants.standing(connection, user.id)
    assert standing is not None
    return standing.principal


async def _simulate(database: Database, node_admin: NodeAdmin, admin: Principal, number: int) -> None:
    """Simulated nodes spread over the regions, as many as asked for; those of an earlier start count."""
    async with database.read() as connection:
        there = {node.name for node in await nodes.load(connection) if node.pool == SIMULATED_POOL}
    regions = cycle(REGIONS)
    for index in range(1, number + 1):
        request = simulated_request(index, next(regions))
        if request.name not in there:
            await node_admin.add_simulated(admin, request)


async def _local_agent(database: Database, settings: Settings, url: str, admin: Principal) -> Agent:
    """This machine's agent; it joins like any other, with a token that it gets on the short way."""
    # Imported here: most servers of a cluster run no work themselves.
    from mooring.agent.agent import Agent
    from mooring.agent.facts import node_name
    from mooring.agent.options import Options

    root = settings.data / "agent"
    name = settings.node_name or node_name()

    async def work(connection: Connection) -> str:
        return await join_tokens.create(
            connection,
            node_name=name,
            pool=DEFAULT_POOL,
            created_by=admin.user_id,
            expires_at=now() + _JOIN_TOKEN_LIFE,
            now=now(),
        )

    return Agent(
        [url],
        root,
        name,
        join_token=await database.write(work),
        options=Options(
            trust_tenants=settings.trust_tenants,
            ca_file=settings.tls_cert,
            engine=settings.engine,
            host_paths=tuple(map(Path, filter(None, settings.host_paths.split(":")))),
        ),
    )


def _check(settings: Settings) -> None:
    tls = settings.tls_cert is not None and settings.tls_key is not None
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise InvalidInput("--tls-cert and --tls-key go together", code="invalid-setting")
    if not settings.loopback and not tls and not settings.insecure:
        raise InvalidInput(
            f"listening on {settings.host} would send passwords in the clear; give --tls-cert and --tls-key, "
            "or --insecure if something in front of it does TLS",
            code="insecure",
        )
    if settings.simulate and not _simulation_allowed(settings):
        raise InvalidInput(
            "simulated nodes run nothing, so a server on PostgreSQL or beyond loopback takes them only with --demo",
            code="simulation-refused",
        )
    if settings.etcd_host is not None and settings.database_url.startswith("sqlite"):
        raise InvalidInput(
            "etcd chooses among servers that share a PostgreSQL; with SQLite leave ETCD_HOST unset",
            code="invalid-setting",
        )
    url = settings.control_plane_api_url
    if url is not None and not url.startswith(("http://", "https://")):
        raise InvalidInput("CONTROL_PLANE_API_URL begins with http:// or https://", code="invalid-setting")
    if url is not None and "@" in url and settings.control_plane_token is not None:
        raise InvalidInput(
            "CONTROL_PLANE_API_URL has a login of its own: give that, or a token, not both", code="invalid-setting"
        )


async def _ready_schema(database: Database) -> None:
    """Made at the first start; one's own file is upgraded, tables that servers share only when an admin says so."""
    found = await maintenance.state(database)
    maintenance.refuse_unknown(found)
    if database.dialect == "postgresql" and found.found is not None and not found.current:
        raise Conflict(
            f"the database has the schema {found.found} and this version needs {found.wanted}: "
            "make a backup, then run `mooring db upgrade`",
            code="schema-outdated",
        )
    if not found.current:
        await schema.upgrade(database.engine)


def _election(settings: Settings, database: Database, name: str) -> Election:
    if settings.etcd_host is not None:
        return EtcdElection(_etcd(settings), name, settings.leader_lease_ttl)
    if database.dialect == "postgresql":
        return LeaseElection(database, name, settings.leader_lease_ttl)
    return Alone()


async def _warn_of_missing_keys(database: Database, sealing: Sealing) -> None:
    async with database.read() as connection:
        used = await sealed.by_key(connection)
    for key_id in used.keys() - set(sealing.key_ids):
        _log.warning(f"The sealing key {key_id} is missing: {used[key_id]} secrets or registry logins do not open")


def _resource_controller(settings: Settings) -> ResourceController | None:
    url, token = settings.control_plane_api_url, settings.control_plane_token
    return None if url is None else ResourceController(url, None if token is None else token.get_secret_value())


def _etcd(settings: Settings) -> EtcdClient:
    assert settings.etcd_host is not None
    password = settings.etcd_password.get_secret_value() if settings.etcd_password else ""
    tls = Tls(settings.etcd_ca, settings.etcd_cert, settings.etcd_key)
    return EtcdClient(
        endpoints(settings.etcd_host, settings.etcd_port),
        tls=tls if settings.etcd_tls else None,
        login=Login(settings.etcd_username, password) if settings.etcd_username else None,
    )


def _simulation_allowed(settings: Settings) -> bool:
    return settings.demo or (settings.loopback and settings.database_url.startswith("sqlite"))


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


def _pace(settings: Settings) -> Pace:
    return Pace(
        least_seconds=settings.heartbeat_seconds,
        most_per_second=settings.heartbeat_rate,
        grace_seconds=settings.heartbeat_grace_seconds,
        timeout_seconds=settings.node_timeout_seconds,
    )


def _rates(settings: Settings) -> RateLimits:
    return RateLimits(
        requests=settings.request_rate,
        questions=settings.question_rate,
        streams=settings.stream_limit,
        address_requests=settings.address_rate,
        admin_factor=settings.admin_rate_factor,
    )


def _make_data_folder(data: Path) -> None:
    """Only its owner may list it; what is secret in it is readable for the owner alone."""
    os.umask(0o077)
    try:
        data.mkdir(parents=True, exist_ok=True)
        # Tasks of a root agent run under other users, who must pass through to their own work folders.
        data.chmod(0o711 if os.geteuid() == 0 else 0o700)
    except OSError as error:
        raise InvalidInput(
            f"cannot use {data} as the data folder: {error.strerror}; choose another with --data", code="data-folder"
        ) from None


def _keep_password(settings: Settings, password: str | None) -> None:
    """For `mooring login` on this machine, which needs nothing typed."""
    path = _password_file(settings)
    if password is None:
        path.unlink(missing_ok=True)
        return
    path.touch(0o600)
    path.write_text(password + "\n")


def _password_file(settings: Settings) -> Path:
    return settings.data / "admin-password"


def _announce(settings: Settings, url: str, password: str | None) -> None:
    """Say where the server is and the exact line to paste; keep the address for `mooring login` on this machine."""
    address = settings.data / "server.json"
    record = {"url": url} | ({"ca_file": str(settings.tls_cert.absolute())} if settings.tls_cert else {})
    address.write_text(json.dumps(record))
    address.chmod(0o644)
    command = f"{Path(sys.argv[0]).absolute()} login --data {settings.data.absolute()}"
    lines = ["", f"Mooring is at {url}   (API docs: {url}/docs)", f"State is kept in {settings.data.absolute()}"]
    if password is not None and settings.admin_password is None:
        lines.append(f"First start: user admin, password {password}   (also in {_password_file(settings).absolute()})")
    lines += ["", "In a second terminal:", "", f"    {command}", "", "Ctrl-C stops.", ""]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
