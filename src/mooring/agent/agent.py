"""The agent: joins once, stays connected, and keeps the node's tasks in their desired state."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

import msgspec
import structlog

from mooring.agent import folders
from mooring.agent.connection.backoff import delays
from mooring.agent.connection.channels import Channels
from mooring.agent.connection.credential import (
    load_credential,
    load_term,
    store_credential,
    store_term,
)
from mooring.agent.connection.image_reports import ImageReports
from mooring.agent.connection.log_streams import LogStreams
from mooring.agent.connection.outbox import Outbox
from mooring.agent.connection.stream import AgentRefused, Connection, Server
from mooring.agent.connection.uploads import UploadSource
from mooring.agent.node import facts
from mooring.agent.node.health import Health
from mooring.agent.node.host_ports import OccupiedPorts
from mooring.agent.node.measurement import Measurer
from mooring.agent.node.upload_cache import UploadCache
from mooring.agent.node.volumes import VolumeFolders, VolumeRemovals
from mooring.agent.node_tasks import NodeTasks
from mooring.agent.options import Options
from mooring.agent.reconcile import Finding, living, reconcile
from mooring.agent.runtimes.container.runtime import ContainerRuntime
from mooring.agent.runtimes.contract import (
    Observed,
    RuntimeContext,
    Supervised,
    discover,
)
from mooring.agent.runtimes.process.runtime import ProcessRuntime
from mooring.concurrency import backoff
from mooring.concurrency.background import BackgroundTask, BackgroundTasks
from mooring.model.errors import Conflict, Unavailable
from mooring.wire.agents.agent_protocol import (
    PROTOCOL,
    BackgroundTaskState,
    ChannelData,
    ChannelEnd,
    ChannelOpen,
    ChannelResize,
    ChannelWindow,
    Desired,
    Facts,
    FromServer,
    Hello,
    JoinAnswer,
    JoinRequest,
    LivingTask,
    LogCancel,
    LogRequest,
    Received,
    Refused,
    Strays,
    Welcome,
)
from mooring.wire.agents.desired_tasks import DesiredTask

log = structlog.get_logger(__name__)

_DEFAULT_HEARTBEAT_SECONDS = 5.0
_CLEANUP_SECONDS = 60.0
_LEAVE_SECONDS = 10.0
_UNKNOWN_NODE = ("credential-refused", "node-unknown")


class Agent:
    """The agent of one node, connected to any of the servers.

    `run` returns after `stop`, or raises AgentRefused if the server rejects the agent.
    """

    def __init__(
        self,
        server_urls: Sequence[str],
        root: Path,
        name: str,
        *,
        join_token: str | None = None,
        options: Options | None = None,
    ) -> None:
        self.name = name
        self.node_id: UUID | None = None
        self.connected = asyncio.Event()
        """Set while the server knows this node and has sent the desired tasks."""
        self._root = Path(root).absolute()
        self._join_token = join_token
        self._options = options if options is not None else Options()
        self._server = Server(server_urls, self._options.ca_file)
        self._desired: list[DesiredTask] | None = None
        self._end: frozenset[UUID] = frozenset()
        """Strays that may be stopped."""
        self._reported_strays: tuple[LivingTask, ...] = ()
        self._term = 0
        self._outbox = Outbox()
        self._acknowledged: set[UUID] = set()
        self._connection: Connection | None = None
        self._welcomed = False
        self._reported_runtimes: dict[str, Mapping[str, str]] = {}
        self._heartbeat_seconds = _DEFAULT_HEARTBEAT_SECONDS
        self._heartbeat_due = asyncio.Event()
        self._occupied_ports = OccupiedPorts()
        self._health = Health(self._heartbeat_due.set)
        self._out_of_space = False
        """A task could not be stored. Every heartbeat checks until there is space again."""
        self._measurer = Measurer()
        self._image_reports = ImageReports()
        self._volume_removals = VolumeRemovals(VolumeFolders(self._root, self._options.host_paths))
        self._log_streams = LogStreams(self._is_pending)
        self._channels = Channels()
        self.background = BackgroundTasks()
        """Background tasks that live as long as the agent."""
        self.of_connection = BackgroundTasks()
        """Background tasks that live as long as a stream."""
        self._signal = asyncio.Event()
        self._tasks = NodeTasks(name, changed=self._signal.set, disk_full=self._note_full_disk)
        self._stopping = asyncio.Event()
        self._terminating = False
        self._nothing_left = asyncio.Event()

    def ordered_tasks(self) -> list[str]:
        """Return the tasks that the server wants to run here, by workload name and index."""
        return [f"{task.workload_name}/{task.index}" for task in self._desired or () if task.action == "run"]

    def stop(self, *, terminate: bool = False) -> None:
        """Make `run` return. Tasks continue without the agent; with `terminate` they are stopped first."""
        self._terminating = self._terminating or terminate
        self._stopping.set()
        self._signal.set()

    async def run(self) -> None:
        folders.create_root(self._root)
        with _locked(self._root):
            while True:
                credential = await self._credential()
                if credential is None:
                    return
                try:
                    await self._run_joined(credential)
                    return
                except AgentRefused as refusal:
                    if refusal.code not in _UNKNOWN_NODE or self._join_token is None:
                        raise
                    log.warning("credential refused, joining again", node=self.name)
                    await self._join(self._join_token)

    async def _credential(self) -> JoinAnswer | None:
        """Return the node's stored credential, or join to get one; None if the agent is stopped meanwhile."""
        stored = load_credential(self._root)
        if stored is not None:
            return stored
        if self._join_token is None:
            raise AgentRefused("this node has not joined yet: start the agent with a join token", code="not-joined")
        return await self._join(self._join_token)

    async def _join(self, token: str) -> JoinAnswer | None:
        request = JoinRequest(token=token, name=self.name, facts=self._facts())
        for delay in delays(self._heartbeat_seconds):
            try:
                answer = await self._server.join(request)
            except Unavailable as problem:
                log.info("not joined yet", reason=problem.message)
                if await self._stopped_within(delay):
                    return None
                continue
            # A token works once; from here on the credential replaces it.
            self._join_token = None
            store_credential(self._root, answer)
            log.info("joined", node=answer.name, node_id=str(answer.node_id), pool=answer.pool)
            return answer
        return None

    async def _run_joined(self, credential: JoinAnswer) -> None:
        self.node_id = credential.node_id
        self._term = load_term(self._root, credential.node_id)
        self._desired = None
        context = RuntimeContext(self._root, credential.node_id, self._options, self._signal.set, lambda: self._term)
        # The built-in runtimes always exist; another package may replace them.
        runtimes = self._tasks.runtimes = {
            "process": ProcessRuntime(context),
            "container": ContainerRuntime(context),
            **discover(context),
        }
        self._tasks.uploads = UploadCache(
            self._root,
            UploadSource(self._server, credential.credential),
            max_bytes=self._options.upload_cache_bytes,
            changed=self._signal.set,
        )
        async with contextlib.AsyncExitStack() as stack:
            for runtime in runtimes.values():
                await runtime.open()
                stack.push_async_callback(runtime.close)
            stack.push_async_callback(self._health.close)
            stack.push_async_callback(self._tasks.stop_preparing)
            stack.push_async_callback(self.background.close)
            self.background.start("reconcile", self._reconcile_forever)
            connecting = partial(self._stay_connected, credential.credential)
            self.background.start("connection", connecting, fatal=(AgentRefused,))
            self.background.start("cleanup", self._clean_up_forever)
            await self.background.run_with(self._wait_for_stop())

    async def _wait_for_stop(self) -> None:
        """Wait for the stop, then leave in an orderly way."""
        await self._stopping.wait()
        if self._terminating:
            await self._nothing_left.wait()
        if self._connection is not None:
            with contextlib.suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(2):
                    await self._send_heartbeat(self._connection)

    # Reconciliation

    async def _reconcile_forever(self) -> None:
        """Reconcile after every order and every change, and periodically."""
        while True:
            self._signal.clear()
            try:
                await self._reconcile_once()
            except Exception:  # a full disk or a failing runtime must not end the agent
                log.exception("reconciling failed")
            # Not `wait_for`: before Python 3.12 it loses a cancellation that arrives together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.scan_seconds):
                    await self._signal.wait()

    async def _reconcile_once(self) -> None:
        if self._connection is not None and self._tasks.available_runtimes() != self._reported_runtimes:
            # Facts are only sent at the beginning of a stream, so a new one is opened.
            log.info("the runtimes of this node have changed", runtimes=sorted(self._tasks.available_runtimes()))
            await self._connection.close()
        acknowledged, self._acknowledged = self._acknowledged, set()
        await self._tasks.acknowledge(acknowledged)
        observed = await self._observe()
        if self._desired is None and not self._terminating:
            return
        plan = reconcile(
            self._desired or (),
            observed,
            prepared=self._tasks.prepared,
            progress=self._tasks.progress(self._desired or ()),
            end=self._end,
            leaving=self._terminating,
        )
        await self._report(plan.findings)
        await self._report_strays(plan.strays)
        await self._tasks.act(plan)
        self._check_all_ended(observed)

    async def _observe(self) -> dict[UUID, Observed]:
        desired = self._desired or []
        found = await self._tasks.observe({task.task_id for task in desired})
        if self._occupied_ports.update(desired, found):
            self._heartbeat_due.set()
        self._image_reports.used(frozenset(digest for seen in found.values() for digest in seen.digests.values()))
        return found

    def _note_full_disk(self) -> None:
        self._out_of_space = True
        self._heartbeat_due.set()

    async def _report(self, findings: Iterable[Finding]) -> None:
        """Send new findings, once the server has sent the desired tasks on this connection."""
        if self._connection is None or not self.connected.is_set():
            return
        report = self._outbox.offer(findings)
        if report is not None:
            with contextlib.suppress(Unavailable):
                await self._connection.send(report)

    async def _report_strays(self, strays: tuple[LivingTask, ...]) -> None:
        """Send the tasks that the server did not list, whenever they change."""
        if self._connection is None or not self.connected.is_set() or strays == self._reported_strays:
            return
        with contextlib.suppress(Unavailable):
            await self._connection.send(Strays(tasks=list(strays)))
            self._reported_strays = strays

    def _check_all_ended(self, observed: Mapping[UUID, Observed]) -> None:
        """Finish leaving with the tasks once all have ended and the server knows."""
        if not self._terminating or not all(seen.ended and seen.gone for seen in observed.values()):
            return
        if self._connection is None or not self._outbox.unanswered:
            self._nothing_left.set()
        else:
            asyncio.get_running_loop().call_later(_LEAVE_SECONDS, self._nothing_left.set)

    async def _clean_up_forever(self) -> None:
        while True:
            await asyncio.sleep(_CLEANUP_SECONDS)
            if self._desired is None:
                continue
            await self._tasks.clean_up({task.task_id for task in self._desired})

    # The stream

    async def _stay_connected(self, credential: str) -> None:
        waits = delays(self._heartbeat_seconds)
        while True:
            try:
                async with self._server.connect(credential, self.node_id, self._heartbeat_seconds) as connection:
                    await self._serve_connection(connection)
                    problem = "the server closed the stream"
            except Unavailable as unavailable:
                problem = unavailable.message
            except AgentRefused as refusal:
                if self._join_token is not None or refusal.code not in _UNKNOWN_NODE:
                    raise
                if refusal.code == "credential-refused":
                    await self._end_tasks()
                    raise
                # This does not prove that the node was removed, so its tasks continue.
                problem = refusal.message
            finally:
                heard, self._connection = self.connected.is_set(), None
                self.connected.clear()
            if heard:
                waits = delays(self._heartbeat_seconds)
            log.info("not connected", reason=problem)
            await asyncio.sleep(next(waits))

    async def _end_tasks(self) -> None:
        """Stop all tasks of a node that was removed, since other nodes take them over."""
        log.warning("the server no longer knows this node; its tasks are stopped", node=self.name)
        self._desired, self._terminating = [], True
        self._signal.set()
        await self._nothing_left.wait()

    async def _serve_connection(self, connection: Connection) -> None:
        self._outbox.connected()
        alive = living(await self._observe())
        self._reported_runtimes = self._tasks.available_runtimes()
        await connection.send(Hello(protocol=PROTOCOL, facts=self._facts(connection.address), tasks=list(alive)))
        self._reported_strays = ()
        self._connection = connection
        self._welcomed = False
        self._heartbeat_due.clear()
        self._measurer.apply_config(None)
        self._volume_removals.order(())
        runtimes = self._tasks.runtimes.values()
        tasks = self.of_connection
        tasks.start("heartbeats", partial(self._send_heartbeats, connection), fatal=(Unavailable,))
        measuring = partial(self._measurer.run, connection, runtimes, lambda: self._desired or ())
        tasks.start("measures", measuring, fatal=(Unavailable,), essential=False)
        tasks.start("image reports", partial(self._image_reports.run, connection, runtimes), essential=False)
        tasks.start("volume removals", partial(self._volume_removals.run, connection))
        try:
            await tasks.run_with(self._receive(connection))
        finally:
            await tasks.close()
            await self._log_streams.close()
            await self._channels.close()

    async def _receive(self, connection: Connection) -> None:
        async for message in connection.messages():
            await self._handle(message, connection)

    async def _send_heartbeats(self, connection: Connection) -> None:
        """Send heartbeats at the server's interval, with jitter so that agents do not stay in step."""
        while True:
            pause = backoff.jittered(self._heartbeat_seconds) if self._welcomed else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._heartbeat_due.wait()
            self._heartbeat_due.clear()
            await self._send_heartbeat(connection)

    async def _send_heartbeat(self, connection: Connection) -> None:
        folders = [self._root, self._options.shared_work_root / str(self.node_id)]
        heartbeat = await asyncio.to_thread(
            facts.measure,
            [folder for folder in folders if folder.exists()],
            self._options.disk_full_percent,
            stopping=self._stopping.is_set(),
        )
        full = await asyncio.to_thread(facts.space_problem, self._root) if self._out_of_space else None
        self._out_of_space = full is not None
        found = (heartbeat.problem or full, self._health.problem, *self._failing())
        problems = [problem for problem in found if problem]
        await connection.send(
            msgspec.structs.replace(
                heartbeat,
                problem="; ".join(problems) or None,
                background=list(self._failed_tasks()),
                occupied_ports=await asyncio.to_thread(self._occupied_ports.found),
            )
        )

    def _failed_tasks(self) -> Iterator[BackgroundTaskState]:
        """Yield the background tasks that have failed, including those that recovered."""
        for task in self.background_tasks():
            if task.failures:
                yield BackgroundTaskState(
                    name=task.name,
                    status=task.status,
                    failures=task.failures,
                    started_at=task.started_at,
                    error=task.error,
                    failed_at=task.failed_at,
                )

    def background_tasks(self) -> list[BackgroundTask]:
        scopes = [self.background, self.of_connection, self._health.background]
        scopes += [runtime.background for runtime in self._tasks.runtimes.values() if isinstance(runtime, Supervised)]
        return [task for scope in scopes for task in scope.states]

    def _failing(self) -> Iterator[str]:
        """Yield the failures of essential background tasks, during which the node gets no new work."""
        for task in self.background_tasks():
            if task.essential and task.status == "failing":
                yield f"the agent's background task {task.name} keeps failing: {task.error}"

    async def _handle(self, message: FromServer, connection: Connection) -> None:
        match message:
            case Welcome():
                await self._apply_config(message)
            case Desired():
                self._apply_desired(message)
            case Received():
                self._acknowledged.update(self._outbox.received(message.number))
                self._signal.set()
            case LogRequest():
                self._log_streams.open(message, self._tasks.runtimes.values(), connection)
            case LogCancel():
                self._log_streams.cancel(message.request_id)
            case ChannelOpen():
                self._channels.open(message, self._tasks.runtimes.values(), connection)
            case ChannelData() | ChannelWindow() | ChannelResize() | ChannelEnd():
                self._channels.take(message)
            case Refused():
                raise AgentRefused(message.message, code=message.code)

    async def _apply_config(self, message: Welcome) -> None:
        first, self._welcomed = not self._welcomed, True
        pause, self._heartbeat_seconds = self._heartbeat_seconds, message.heartbeat_seconds
        self._measurer.apply_config(message.measure_seconds)
        problem = self._health.problem
        await self._health.use(message.health)
        if first or self._health.problem != problem:
            self._heartbeat_due.set()
        elif self._heartbeat_seconds != pause:
            # All agents are asked at the same moment, so each waits a random time.
            asyncio.get_running_loop().call_later(backoff.jittered(self._heartbeat_seconds, 1), self._heartbeat_due.set)

    def _apply_desired(self, message: Desired) -> None:
        """Accept orders of the newest leader only: an older term is that of a deposed leader."""
        if message.term < self._term:
            log.warning("orders of an older term refused", term=message.term, newest=self._term)
            return
        if message.term > self._term:
            self._term = message.term
            assert self.node_id is not None
            store_term(self._root, self.node_id, message.term)
        self._desired, self._end = message.tasks, frozenset(message.end)
        self._volume_removals.order(message.removed_volumes)
        self.connected.set()
        self._signal.set()

    # Facts and helpers

    def _facts(self, address: str | None = None) -> Facts:
        return facts.machine_facts(
            self._root,
            runtimes=self._tasks.available_runtimes() or {"process": {}},
            multi_tenant=os.getuid() == 0 or self._options.trust_tenants,
            isolation=self._tasks.isolation(),
            options=self._options,
            address=address,
        )

    def _is_pending(self, task_id: UUID) -> bool:
        """Return whether the task is ordered to run here but not started yet."""
        ordered = any(task.task_id == task_id and task.action == "run" for task in self._desired or ())
        return ordered and not self._tasks.is_known(task_id) and not self._terminating

    async def _stopped_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the lock of the folder: two agents on one folder would conflict over its tasks."""
    descriptor = os.open(root / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Conflict(f"another agent already runs on {root}", code="agent-running") from None
    try:
        yield
    finally:
        os.close(descriptor)
