"""The part that both clients share: the methods of the API, the address, the login and the headers of a request.

Each operation is defined once, in `operations`. `Method` and `StreamMethod` make it a method of both clients: the
type of the client decides whether a call returns the answer or a coroutine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from mooring.client.address import canonical_address, resolve_server
from mooring.client.authentication import Authentication
from mooring.client.connection import CONNECT_SECONDS, TIMEOUT_SECONDS
from mooring.client.credentials import CredentialStore
from mooring.client.operations import (
    accounting,
    bookings,
    channels,
    core,
    defragmentation,
    project_secrets,
    rollouts,
    tenancy,
)
from mooring.client.operations import scaling as scaling_operations
from mooring.client.operations import uploads as upload_operations
from mooring.client.operations import volumes as volume_operations
from mooring.client.operations.operation import Operation, Stream

P = ParamSpec("P")
T = TypeVar("T")


class Sender(Protocol):
    """A client that returns answers."""

    def send(self, operation: Operation[T], /) -> T: ...

    def stream(self, stream: Stream, /) -> Iterator[bytes]: ...


class AsyncSender(Protocol):
    """A client that returns coroutines."""

    def send(self, operation: Operation[T], /) -> Coroutine[Any, Any, T]: ...

    def stream(self, stream: Stream, /) -> AsyncIterator[bytes]: ...


class Method(Generic[P, T]):
    """A method of both clients that sends an operation."""

    def __init__(self, operation: Callable[P, Operation[T]]) -> None:
        self._operation = operation

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Operation[T]]: ...

    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[P, T]: ...

    def __get__(self, client: Sender | AsyncSender | None, owner: type) -> Callable[P, Any]:
        if client is None:
            return self._operation

        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(self._operation(*args, **kwargs))

        return update_wrapper(method, self._operation)


class StreamMethod(Generic[P]):
    """A method of both clients that reads a stream of bytes in pieces."""

    def __init__(self, operation: Callable[P, Stream]) -> None:
        self._operation = operation

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Stream]: ...

    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[P, AsyncIterator[bytes]]: ...

    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[P, Iterator[bytes]]: ...

    def __get__(self, client: Sender | AsyncSender | None, owner: type) -> Callable[P, Any]:
        if client is None:
            return self._operation

        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.stream(self._operation(*args, **kwargs))

        return update_wrapper(method, self._operation)


class ClientCore:
    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        keypair: tuple[str, str] | None = None,
        store: CredentialStore | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        store = store or CredentialStore.of_user()
        self.server = canonical_address(server) if server else resolve_server(None, store)
        self.timeout_seconds = timeout_seconds
        self._authentication = Authentication(self.server, token=token, keypair=keypair, store=store)

    @property
    def username(self) -> str | None:
        """The user whose login is used, if this machine knows it."""
        return self._authentication.username

    @property
    def _connect_seconds(self) -> float:
        return min(CONNECT_SECONDS, self.timeout_seconds)

    def _headers(self, operation: Operation[T]) -> dict[str, str]:
        headers = dict(self._authentication.headers) if operation.authenticated else {}
        if operation.body is not None or operation.json is not None:
            headers["Content-Type"] = "application/json"
        if operation.key is not None:
            headers["Idempotency-Key"] = operation.key
        return headers

    me = Method(core.me)
    create_login_code = Method(core.create_login_code)
    logins = Method(core.logins)
    end_login = Method(core.end_login)
    end_all_logins = Method(core.end_all_logins)
    create_user = Method(core.create_user)
    users = Method(core.users)
    user = Method(core.user)
    change_user = Method(core.change_user)
    remove_user = Method(core.remove_user)

    domains = Method(tenancy.domains)
    domain = Method(tenancy.domain)
    create_domain = Method(tenancy.create_domain)
    change_domain = Method(tenancy.change_domain)
    remove_domain = Method(tenancy.remove_domain)
    projects = Method(tenancy.projects)
    project = Method(tenancy.project)
    create_project = Method(tenancy.create_project)
    change_project = Method(tenancy.change_project)
    remove_project = Method(tenancy.remove_project)
    members = Method(tenancy.members)
    add_member = Method(tenancy.add_member)
    remove_member = Method(tenancy.remove_member)
    keypairs = Method(tenancy.keypairs)
    keypair = Method(tenancy.keypair)
    create_keypair = Method(tenancy.create_keypair)
    change_keypair = Method(tenancy.change_keypair)
    remove_keypair = Method(tenancy.remove_keypair)
    policies = Method(tenancy.policies)
    policy = Method(tenancy.policy)
    create_policy = Method(tenancy.create_policy)
    change_policy = Method(tenancy.change_policy)
    revert_policy = Method(tenancy.revert_policy)
    remove_policy = Method(tenancy.remove_policy)
    revert_pool = Method(tenancy.revert_pool)
    pool_access = Method(tenancy.pool_access)
    grant_pool_access = Method(tenancy.grant_pool_access)
    revoke_pool_access = Method(tenancy.revoke_pool_access)
    actions = Method(tenancy.actions)

    secrets = Method(project_secrets.secrets)
    secret = Method(project_secrets.secret)
    put_secret = Method(project_secrets.put_secret)
    remove_secret = Method(project_secrets.remove_secret)
    registry_logins = Method(project_secrets.registry_logins)
    put_registry_login = Method(project_secrets.put_registry_login)
    remove_registry_login = Method(project_secrets.remove_registry_login)
    volumes = Method(volume_operations.volumes)
    volume = Method(volume_operations.volume)
    create_volume = Method(volume_operations.create_volume)
    remove_volume = Method(volume_operations.remove_volume)
    uploads = Method(upload_operations.uploads)
    declare_upload = Method(upload_operations.declare_upload)
    complete_upload = Method(upload_operations.complete_upload)
    remove_upload = Method(upload_operations.remove_upload)

    submit = Method(core.submit)
    submit_batch = Method(core.submit_batch)
    dry_run = Method(core.dry_run)
    workloads = Method(core.workloads)
    workload = Method(core.workload)
    explanation = Method(core.explanation)
    compare = Method(core.compare)
    history = Method(core.history)
    wait = Method(core.wait)
    tasks = Method(core.tasks)
    scale = Method(core.scale)
    extend = Method(core.extend)
    remove = Method(core.remove)
    create_session = Method(core.create_session)
    sessions = Method(core.sessions)
    session = Method(core.session)
    cancel_session = Method(core.cancel_session)
    cancel = Method(core.cancel)
    cancel_tasks = Method(core.cancel_tasks)
    event_page = Method(core.event_page)

    update = Method(rollouts.update)
    roll_back = Method(rollouts.roll_back)
    pause_rollout = Method(rollouts.pause_rollout)
    resume_rollout = Method(rollouts.resume_rollout)
    revisions = Method(rollouts.revisions)
    endpoints = Method(rollouts.endpoints)

    book = Method(bookings.book)
    timeslots = Method(bookings.timeslots)
    timeslot = Method(bookings.timeslot)
    wait_for_timeslot = Method(bookings.wait_for_timeslot)
    change_timeslot = Method(bookings.change_timeslot)
    cancel_timeslot = Method(bookings.cancel_timeslot)
    calendar = Method(bookings.calendar)
    create_maintenance = Method(bookings.create_maintenance)
    create_lab = Method(bookings.create_lab)
    labs = Method(bookings.labs)
    lab = Method(bookings.lab)
    cancel_lab = Method(bookings.cancel_lab)

    nodes = Method(core.nodes)
    node = Method(core.node)
    add_node = Method(core.add_node)
    change_node = Method(core.change_node)
    preview_drain = Method(core.preview_drain)
    drain_node = Method(core.drain_node)
    change_taints = Method(core.change_taints)
    resume_node = Method(core.resume_node)
    remove_node = Method(core.remove_node)
    quarantine = Method(core.quarantine)
    end_quarantined = Method(core.end_quarantined)
    pools = Method(core.pools)
    pool = Method(core.pool)
    create_pool = Method(core.create_pool)
    change_pool = Method(core.change_pool)
    pause_pool = Method(core.pause_pool)
    resume_pool = Method(core.resume_pool)
    remove_pool = Method(core.remove_pool)
    node_templates = Method(scaling_operations.node_templates)
    put_node_template = Method(scaling_operations.put_node_template)
    remove_node_template = Method(scaling_operations.remove_node_template)
    scaling = Method(scaling_operations.scaling)
    plan_defragmentation = Method(defragmentation.plan_defragmentation)
    automatic_plans = Method(defragmentation.automatic_plans)
    move_task = Method(defragmentation.move_task)
    quotas = Method(core.quotas)
    quota = Method(core.quota)
    change_quota = Method(core.change_quota)
    revert_quota = Method(core.revert_quota)
    shares = Method(core.shares)
    set_weight = Method(core.set_weight)
    occupancy = Method(core.occupancy)
    create_join_token = Method(core.create_join_token)

    usage = Method(accounting.usage)
    workload_records = Method(accounting.workload_records)
    task_use = Method(accounting.task_use)
    free = Method(accounting.free)
    timeline = Method(accounting.timeline)
    what_if = Method(accounting.what_if)

    health = Method(core.health)
    ready = Method(core.ready)
    metrics = Method(core.metrics)
    audit = Method(core.audit)
    repair = Method(core.repair)
    leader = Method(core.leader)
    servers = Method(core.servers)
    loops = Method(core.loops)
    resign = Method(core.resign)
    run_pass = Method(core.run_pass)

    logs = StreamMethod(core.logs)
    fetch_files = StreamMethod(channels.fetch_files)
