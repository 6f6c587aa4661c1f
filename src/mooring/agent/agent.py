"""The agent: joins once, stays connected, and keeps the node's tasks as the server wants them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal
from uuid import UUID

import msgspec
import structlog

from mooring.agent import facts, folders
from mooring.agent.backoff import delays
from mooring.agent.channels import Channels
from mooring.agent.containers.runtime import ContainerRuntime
from mooring.agent.credential import load_credential, load_term, store_credential, store_term
from mooring.agent.health import Health
from mooring.agent.image_reports import ImageReports
from mooring.agent.log_streams import LogStreams
from mooring.agent.measuring import Measurer
from mooring.agent.options import Options
from mooring.agent.outbox import Outbox
from mooring.agent.process_runtime import ProcessRuntime
from mooring.agent.reconcile import Finding, Plan, living, reconcile
from mooring.agent.runtime import (
    Conditional,
    Fetching,
    Observed,
    Progress,
    Runtime,
    RuntimeContext,
    discover,
    runtime_of,
)
from mooring.agent.stream import AgentRefused, Connection, Server
from mooring.agent.volumes import VolumeFolders, VolumeRemovals
from mooring.model.errors import Conflict, MooringError, Unavailable
from mooring.wire.agent import (
    PROTOCOL,
    ChannelData,
    ChannelEnd,
    ChannelOpen,
    ChannelResize,
    ChannelWindow,
    Desired,
    DesiredTask,
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

log = structlog.get_logger(__name__)

_UNTOLD_HEARTBEAT_SECONDS = 5.0
_TIDY_SECONDS = 60.0
_FAREWELL_SECONDS = 10.0
_NOT_KNOWN = ("credential-refused", "node-unknown")


class Agent:
    """One node's agent; any of the servers will do.

    `run` returns after `stop`, or raises AgentRefused when the server will not have it.
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
        """Set while the server knows this node and has said what it wants."""
        self._root = Path(root).absolute()
        self._join_token = join_token
        self._options = options if options is not None else Options()
        self._server = Server(server_urls, self._options.ca_file)
        self._runtimes: dict[str, Runtime] = {}
        self._runtime_of: dict[UUID, Runtime] = {}
        self._refused: dict[UUID, Observed] = {}
        self._prepared: set[UUID] = set()
        self._preparing: dict[UUID, asyncio.Task[None]] = {}
        self._desired: list[DesiredTask] | None = None
        self._end: frozenset[UUID] = frozenset()
        """Strays that may be ended."""
        self._told_strays: tuple[LivingTask, ...] = ()
        self._term = 0
        self._outbox = Outbox()
        self._acknowledged: set[UUID] = set()
        self._connection: Connection | None = None
        self._welcomed = False
        self._told_runtimes: dict[str, Mapping[str, str]] = {}
        self._heartbeat_seconds = _UNTOLD_HEARTBEAT_SECONDS
        self._beat_now = asyncio.Event()
        self._health = Health(self._beat_now.set)
        self._measurer = Measurer()
        self._image_reports = ImageReports()
        self._volume_removals = VolumeRemovals(VolumeFolders(self._root, self._options.host_paths))
        self._log_streams = LogStreams(self._coming)
        self._channels = Channels()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._terminating = False
        self._nothing_left = asyncio.Event()

    def stop(self, *, terminate: bool = False) -> None:
        """Let `run` come to its end; tasks go on without the agent, unless `terminate`: then they are stopped first."""
        self._terminating = self._terminating or terminate
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        folders.create_root(self._root)
        with _only_agent(self._root):
            while True:
                credential = await self._credential()
                if credential is None:
                    return
                try:
                    await self._live(credential)
                    return
                except AgentRefused as refusal:
                    if refusal.code not in _NOT_KNOWN or self._join_token is None:
                        raise
                    log.warning("credential refused, joining again", node=self.name)
                    await self._join(self._join_token)

    async def _credential(self) -> JoinAnswer | None:
        """The node's credential, kept from before or fetched now; None when stopped meanwhile."""
        kept = load_credential(self._root)
        if kept is not None:
            return kept
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
            # A token works once: from here on the credential is what counts.
            self._join_token = None
            store_credential(self._root, answer)
            log.info("joined", node=answer.name, node_id=str(answer.node_id), pool=answer.pool)
            return answer
        return None

    async def _live(self, credential: JoinAnswer) -> None:
        self.node_id = credential.node_id
        self._term = load_term(self._root, credential.node_id)
        self._desired = None
        context = RuntimeContext(self._root, credential.node_id, self._options, self._wake.set, lambda: self._term)
        # The built-in ones are always there; another package may put its own in their place.
        self._runtimes = {
            "process": ProcessRuntime(context),
            "container": ContainerRuntime(context),
            **discover(context),
        }
        async with contextlib.AsyncExitStack() as stack:
            for runtime in self._runtimes.values():
                await runtime.open()
                stack.push_async_callback(runtime.close)
            loops = [
                asyncio.create_task(loop)
                for loop in (
                    self._keep_reconciled(),
                    self._keep_connected(credential.credential),
                    self._keep_tidy(),
                    self._leave(),
                )
            ]
            stack.push_async_callback(self._health.close)
            stack.push_async_callback(self._stop_preparing)
            stack.push_async_callback(_cancel, loops)
            done, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    async def _stop_preparing(self) -> None:
        await _cancel(self._preparing.values())
        self._preparing.clear()

    async def _leave(self) -> None:
        """Wait to be stopped, then end in order."""
        await self._stopping.wait()
        if self._terminating:
            await self._nothing_left.wait()
        if self._connection is not None:
            with contextlib.suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(2):
                    await self._beat(self._connection)

    # Reconciling

    async def _keep_reconciled(self) -> None:
        """Look and act whenever an order came or something changed, and now and then in any case."""
        while True:
            self._wake.clear()
            try:
                await self._reconcile_once()
            except Exception:  # a full disk or a failing runtime must not end the agent
                log.exception("reconciling failed")
            # Not `wait_for`: before Python 3.12 it forgets that it was cancelled where it is woken at the same moment.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.scan_seconds):
                    await self._wake.wait()

    async def _reconcile_once(self) -> None:
        if self._connection is not None and self._offered() != self._told_runtimes:
            # What a node has is said at the beginning of a stream: begin another.
            log.info("other runtimes than before", runtimes=sorted(self._offered()))
            await self._connection.close()
        await self._pass_on_acknowledged()
        observed = await self._observe()
        if self._desired is None and not self._terminating:
            return
        plan = reconcile(
            self._desired or (),
            observed,
            prepared=self._prepared,
            progress=self._progress(),
            end=self._end,
            leaving=self._terminating,
        )
        await self._report(plan.findings)
        await self._tell_strays(plan.strays)
        await self._act(plan)
        self._look_for_the_end(observed)

    def _progress(self) -> dict[UUID, Progress]:
        """How far this node is with the tasks that it makes ready."""
        found: dict[UUID, Progress] = {}
        for task in self._desired or ():
            runtime = self._runtimes.get(runtime_of(task)) if task.task_id in self._preparing else None
            if isinstance(runtime, Fetching) and (progress := runtime.progress(task)) is not None:
                found[task.task_id] = progress
        return found

    async def _observe(self) -> dict[UUID, Observed]:
        listed = {task.task_id for task in self._desired or ()}
        self._refused = {task_id: seen for task_id, seen in self._refused.items() if task_id in listed}
        self._prepared &= listed
        found: dict[UUID, Observed] = dict(self._refused)
        owners: dict[UUID, Runtime] = {}
        for runtime in self._runtimes.values():
            seen = await runtime.observe(listed)
            found.update(seen)
            owners.update(dict.fromkeys(seen, runtime))
        self._runtime_of = owners
        self._image_reports.used(frozenset(digest for seen in found.values() for digest in seen.digests.values()))
        return found

    async def _act(self, plan: Plan) -> None:
        for stop in plan.stop:
            runtime = self._runtime_of.get(stop.task_id)
            if runtime is not None:
                try:
                    await runtime.stop(stop.task_id, stop.grace_seconds, stop.cause)
                except Exception:  # it is asked again with the next look; the others are to end as well
                    log.exception("task not stopped", task=str(stop.task_id))
        for task_id, warning in plan.warn:
            if (runtime := self._runtime_of.get(task_id)) is not None:
                await runtime.warn(task_id, warning)
        await _cancel(self._preparing.pop(task_id) for task_id in self._preparing.keys() - _ids(plan.prepare))
        for task in plan.prepare:
            if task.task_id not in self._preparing:
                self._preparing[task.task_id] = asyncio.create_task(self._prepare(task))
        for task in plan.start:
            await self._try(task, "start")

    async def _prepare(self, task: DesiredTask) -> None:
        """Beside everything else: to fetch an image may take minutes."""
        if await self._try(task, "prepare"):
            self._prepared.add(task.task_id)
            self._wake.set()

    async def _try(self, task: DesiredTask, step: Literal["prepare", "start"]) -> bool:
        """Take a step with a task; what cannot be done is its failure, told with the reason, and not tried again."""
        runtime = self._runtimes.get(runtime_of(task))
        try:
            if runtime is None:
                raise MooringError(f"this node has no {runtime_of(task)} runtime", code="runtime-missing")
            await (runtime.prepare(task) if step == "prepare" else runtime.start(task))
        except MooringError as refusal:
            self._refuse(task, refusal.code, refusal.message)
        except OSError as error:
            self._refuse(task, f"{step}-failed", f"cannot prepare the task: {error.strerror or error}")
        except Exception:  # one that a runtime cannot cope with must not hold up the others
            log.exception("a runtime failed", task=str(task.task_id), step=step)
            self._refuse(task, f"{step}-failed", "the node failed at this; its agent's log says more")
        else:
            return True
        return False

    def _refuse(self, task: DesiredTask, code: str, reason: str) -> None:
        log.warning("task not started", task=str(task.task_id), code=code, reason=reason)
        self._refused[task.task_id] = Observed(status="FAILED", gone=True, code=code, reason=reason)
        self._wake.set()

    async def _report(self, findings: Iterable[Finding]) -> None:
        """Say what is new, once the server has said on this connection what it expects."""
        if self._connection is None or not self.connected.is_set():
            return
        report = self._outbox.offer(findings)
        if report is not None:
            with contextlib.suppress(Unavailable):
                await self._connection.send(report)

    async def _tell_strays(self, strays: tuple[LivingTask, ...]) -> None:
        """Name the tasks that the server did not list, whenever they are others than it was told."""
        if self._connection is None or not self.connected.is_set() or strays == self._told_strays:
            return
        with contextlib.suppress(Unavailable):
            await self._connection.send(Strays(tasks=list(strays)))
            self._told_strays = strays

    async def _pass_on_acknowledged(self) -> None:
        acknowledged, self._acknowledged = self._acknowledged, set()
        for task_id in acknowledged:
            runtime = self._runtime_of.get(task_id)
            if runtime is not None:
                await runtime.acknowledge(task_id)

    def _look_for_the_end(self, observed: Mapping[UUID, Observed]) -> None:
        """When leaving with the tasks: are all ended, and does the server know?"""
        if not self._terminating or not all(seen.ended and seen.gone for seen in observed.values()):
            return
        if self._connection is None or not self._outbox.unanswered:
            self._nothing_left.set()
        else:
            asyncio.get_running_loop().call_later(_FAREWELL_SECONDS, self._nothing_left.set)

    async def _keep_tidy(self) -> None:
        while True:
            await asyncio.sleep(_TIDY_SECONDS)
            if self._desired is None:
                continue
            keep = {task.task_id for task in self._desired}
            for runtime in self._runtimes.values():
                try:
                    await runtime.tidy(keep)
                except Exception:
                    log.exception("tidying failed", runtime=runtime.name)

    # The stream

    async def _keep_connected(self, credential: str) -> None:
        waits = delays(self._heartbeat_seconds)
        while True:
            try:
                async with self._server.connect(credential, self.node_id, self._heartbeat_seconds) as connection:
                    await self._converse(connection)
                    problem = "the server closed the stream"
            except Unavailable as unavailable:
                problem = unavailable.message
            except AgentRefused as refusal:
                if self._join_token is not None or refusal.code not in _NOT_KNOWN:
                    raise
                if refusal.code == "credential-refused":
                    await self._end_tasks()
                    raise
                # Nothing says that the node was dismissed: its tasks go on until somebody knows more.
                problem = refusal.message
            finally:
                heard, self._connection = self.connected.is_set(), None
                self.connected.clear()
            if heard:
                waits = delays(self._heartbeat_seconds)
            log.info("not connected", reason=problem)
            await asyncio.sleep(next(waits))

    async def _end_tasks(self) -> None:
        """This node is no longer ours to run tasks on: what runs must not go on beside those who take over."""
        log.warning("the server does not know this node any more; its tasks are stopped", node=self.name)
        self._desired, self._terminating = [], True
        self._wake.set()
        await self._nothing_left.wait()

    async def _converse(self, connection: Connection) -> None:
        self._outbox.connected()
        alive = living(await self._observe())
        self._told_runtimes = self._offered()
        await connection.send(Hello(protocol=PROTOCOL, facts=self._facts(connection.address), tasks=list(alive)))
        self._told_strays = ()
        self._connection = connection
        self._welcomed = False
        self._beat_now.clear()
        self._measurer.be_guided(None)
        self._volume_removals.order(())
        beside = [
            asyncio.create_task(self._keep_beating(connection)),
            asyncio.create_task(self._measurer.run(connection, self._runtimes.values())),
            asyncio.create_task(self._image_reports.run(connection, self._runtimes.values())),
            asyncio.create_task(self._volume_removals.run(connection)),
        ]
        try:
            async for message in connection.messages():
                await self._take(message, connection)
        finally:
            await _cancel(beside)
            await self._log_streams.close()
            await self._channels.close()

    async def _keep_beating(self, connection: Connection) -> None:
        """As often as the server says, from its welcome on; a little sooner each time, so that no two stay in step."""
        with contextlib.suppress(Unavailable):
            while True:
                pause = self._heartbeat_seconds * random.uniform(0.8, 1.0) if self._welcomed else None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._beat_now.wait()
                self._beat_now.clear()
                await self._beat(connection)

    async def _beat(self, connection: Connection) -> None:
        places = [self._root, self._options.shared_work_root / str(self.node_id)]
        heartbeat = await asyncio.to_thread(
            facts.measure,
            [place for place in places if place.exists()],
            self._options.disk_full_percent,
            stopping=self._stopping.is_set(),
        )
        problems = [problem for problem in (heartbeat.problem, self._health.problem) if problem]
        await connection.send(msgspec.structs.replace(heartbeat, problem="; ".join(problems) or None))

    async def _take(self, message: FromServer, connection: Connection) -> None:
        match message:
            case Welcome():
                await self._be_guided(message)
            case Desired():
                self._take_orders(message)
            case Received():
                self._acknowledged.update(self._outbox.received(message.number))
                self._wake.set()
            case LogRequest():
                self._log_streams.open(message, self._runtimes.values(), connection)
            case LogCancel():
                self._log_streams.cancel(message.request_id)
            case ChannelOpen():
                self._channels.open(message, self._runtimes.values(), connection)
            case ChannelData() | ChannelWindow() | ChannelResize() | ChannelEnd():
                self._channels.take(message)
            case Refused():
                raise AgentRefused(message.message, code=message.code)

    async def _be_guided(self, message: Welcome) -> None:
        first, self._welcomed = not self._welcomed, True
        pause, self._heartbeat_seconds = self._heartbeat_seconds, message.heartbeat_seconds
        self._measurer.be_guided(message.measure_seconds)
        problem = self._health.problem
        await self._health.use(message.health)
        if first or self._health.problem != problem:
            self._beat_now.set()
        elif self._heartbeat_seconds != pause:
            # All agents are told so at the same moment, and do not speak all at once.
            asyncio.get_running_loop().call_later(self._heartbeat_seconds * random.random(), self._beat_now.set)

    def _take_orders(self, message: Desired) -> None:
        """Follow the newest leader only: orders of an older term are those of one that was deposed."""
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
        self._wake.set()

    # Small things

    def _facts(self, address: str | None = None) -> Facts:
        return facts.machine_facts(
            self._root,
            runtimes=self._offered() or {"process": {}},
            multi_tenant=os.getuid() == 0 or self._options.trust_tenants,
            options=self._options,
            address=address,
        )

    def _offered(self) -> dict[str, Mapping[str, str]]:
        """The runtimes that can start tasks, and how each keeps limits."""
        return {
            name: runtime.enforces
            for name, runtime in self._runtimes.items()
            if not isinstance(runtime, Conditional) or runtime.available
        }

    def _coming(self, task_id: UUID) -> bool:
        """Whether the task is to run here and has only not been started yet."""
        ordered = any(task.task_id == task_id and task.action == "run" for task in self._desired or ())
        return ordered and task_id not in self._runtime_of and task_id not in self._refused and not self._terminating

    async def _stopped_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()


def _ids(tasks: Iterable[DesiredTask]) -> set[UUID]:
    return {task.task_id for task in tasks}


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def _only_agent(root: Path) -> Iterator[None]:
    """Two agents on one folder would fight over its tasks."""
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
