"""Container probes: readiness is reported, and a container whose liveness probe fails is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import structlog

from mooring.agent.runtimes.container.engine import Engine, EngineTransient, EngineUnavailable
from mooring.agent.runtimes.container.namespaces import connect
from mooring.agent.runtimes.container.state_machine import ContainerState
from mooring.model.errors import MooringError
from mooring.wire.agents.desired_tasks import ContainerSpec, ProbeSpec

log = structlog.get_logger(__name__)

Kind = Literal["readiness", "liveness"]
ResultCallback = Callable[[str, Kind, bool], Awaitable[None]]
"""Callback with container, kind and result, when enough consecutive results agree."""


@dataclass(slots=True)
class ProbeTally:
    """Number of consecutive equal results."""

    probe: ProbeSpec
    good: int = 0
    bad: int = 0

    def take(self, well: bool) -> bool | None:
        """Return the result once enough consecutive ones agree, otherwise None."""
        self.good, self.bad = (self.good + 1, 0) if well else (0, self.bad + 1)
        if self.good >= self.probe.successes:
            return True
        return False if self.bad >= self.probe.failures else None


class Probing:
    """The probes of one task's containers, which run while the containers run."""

    def __init__(self, engine: Callable[[], Engine], on_result: ResultCallback) -> None:
        self._engine = engine
        self._on_result = on_result
        self._asking: dict[tuple[str, Kind], tuple[float, asyncio.Task[None]]] = {}

    def follow(self, containers: tuple[ContainerSpec, ...], seen: Mapping[str, ContainerState]) -> None:
        """Probe the running containers, starting over with each run; stop probing the others."""
        for container in containers:
            probes: dict[Kind, ProbeSpec | None] = {"readiness": container.readiness, "liveness": container.liveness}
            for kind, probe in probes.items():
                if probe is not None:
                    self._follow(container.name, kind, probe, seen.get(container.name))

    def _follow(self, name: str, kind: Kind, probe: ProbeSpec, found: ContainerState | None) -> None:
        run = found.started_at if found is not None and found.status == "running" else None
        asked, task = self._asking.get((name, kind), (None, None))
        if run == asked:
            return
        if task is not None:
            task.cancel()
            del self._asking[name, kind]
        if run is not None and found is not None:
            self._asking[name, kind] = run, asyncio.create_task(self._ask(name, kind, probe, found))

    async def close(self) -> None:
        tasks = [task for _, task in self._asking.values()]
        self._asking.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, name: str, kind: Kind, probe: ProbeSpec, found: ContainerState) -> None:
        tally = ProbeTally(probe)
        await asyncio.sleep(max(found.started_at + probe.delay_seconds - time.time(), 0))
        while True:
            try:
                certain = tally.take(await well(self._engine(), found, probe))
                if certain is not None:
                    await self._on_result(name, kind, certain)
            except (EngineUnavailable, EngineTransient):
                pass  # nobody knows
            except MooringError as problem:
                log.warning("the result of a probe could not be recorded", container=name, reason=problem.message)
            except Exception:
                log.exception("a probe could not be executed", container=name)
            await asyncio.sleep(probe.interval_seconds)


async def well(engine: Engine, found: ContainerState, probe: ProbeSpec) -> bool:
    """Run one probe: a command's exit code, an HTTP status, or a TCP connection."""
    try:
        async with asyncio.timeout(probe.timeout_seconds):
            if probe.command:
                return await engine.execute(found.id, probe.command) == 0
            return await _answers(found, probe)
    except (EngineUnavailable, EngineTransient):
        raise
    except (TimeoutError, OSError, MooringError, ValueError):
        return False


async def _answers(found: ContainerState, probe: ProbeSpec) -> bool:
    assert probe.port is not None
    reader, writer = await connect(found, probe.port)
    try:
        if probe.path is None:
            return True
        request = f"GET {probe.path} HTTP/1.1\r\nHost: localhost:{probe.port}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode("ascii"))
        protocol, status = (await reader.readline()).split(maxsplit=2)[:2]
        return protocol.startswith(b"HTTP/") and 200 <= int(status) < 400
    finally:
        writer.close()
