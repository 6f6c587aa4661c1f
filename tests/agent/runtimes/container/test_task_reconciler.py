"""A task that is looked after while the engine fails in the middle of things."""

from __future__ import annotations

import asyncio
import errno
import itertools
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from mooring.agent.access.logs import LogSelection
from mooring.agent.node.volumes import VolumeFolders
from mooring.agent.options import Options
from mooring.agent.runtimes.container import output, record, task_paths
from mooring.agent.runtimes.container import task_reconciler as reconcilers
from mooring.agent.runtimes.container.engine import Engine, EngineRefused, EngineUnavailable
from mooring.agent.runtimes.container.networks import Networks
from mooring.agent.runtimes.container.pulls import Images, PulledImage
from mooring.agent.runtimes.container.record import TaskRecord
from mooring.agent.runtimes.container.shared_state import SharedState
from mooring.agent.runtimes.container.specification import EngineCapabilities, name_of
from mooring.agent.runtimes.container.state_machine import ContainerState
from mooring.agent.runtimes.container.task_reconciler import TaskReconciler
from mooring.agent.runtimes.records import read
from mooring.wire.agents.desired_tasks import DesiredTask, ProbeSpec
from tests.agent.builders import DEADLINE_SECONDS, eventually
from tests.agent.runtimes.container.conftest import container, order


class FlakyEngine:
    """An engine in memory, whose containers run until they are stopped. `fails`: how often, and at what."""

    def __init__(self, **fails: int) -> None:
        self.capabilities = EngineCapabilities()
        self.found: dict[str, ContainerState] = {}
        self.tell: Callable[[], None] = lambda: None
        self._fails = fails
        self._ids = itertools.count()
        self._half_made: set[str] = set()
        """Names that are taken by nothing that it knows of."""
        self._half_started: set[str] = set()

    def _answer(self, call: str) -> None:
        if self._fails.get(call, 0) > 0:
            self._fails[call] -= 1
            raise EngineUnavailable("the engine went away")

    async def of_task(self, task: DesiredTask) -> dict[str, PulledImage]:
        self._answer("pull")
        return {each.name: PulledImage("sha256:0", "sha256:0") for each in task.containers}

    def progress_of(self, task: DesiredTask) -> str:
        return ""

    async def seen(self, name: str) -> ContainerState | None:
        return self.found.get(name)

    async def create(self, name: str, config: Mapping[str, Any]) -> None:
        """Refused where it was cut short before."""
        if name in self._half_made:
            raise EngineRefused("that name is already in use", 500)
        self._half_made.add(name)
        self._answer("create")
        self._half_made.clear()
        self.found[name] = ContainerState(f"{next(self._ids)}", "created", labels=config["Labels"])

    async def initialise(self, name: str) -> bool:
        return False

    async def start(self, name: str) -> None:
        """Refused where it was cut short before."""
        if self.found[name].id in self._half_started:
            raise EngineRefused("duplicate allocation is not allowed", 500)
        self._half_started.add(self.found[name].id)
        self._answer("start")
        self._half_started.clear()
        self.found[name] = replace(self.found[name], status="running", started_at=1.0)

    async def execute(self, name: str, command: list[str]) -> int:
        return 1

    async def signal(self, name: str, signal: str) -> None:
        self._answer("signal")
        await self.crash(name)

    async def crash(self, name: str) -> None:
        self.found[name] = replace(self.found[name], status="ended", exit_code=137, ended_at=time.time())
        self.tell()

    async def output(self, name: str, **asked: object) -> AsyncIterator[bytes]:
        yield b"said\n"

    async def remove(self, name: str) -> None:
        self._half_made.discard(name)
        self.found.pop(name, None)

    async def networks(self, label: str) -> list[tuple[str, Mapping[str, str]]]:
        self._answer("networks")
        return []


def reconciled_by(engine: FlakyEngine, root: Path, task: DesiredTask) -> TaskReconciler:
    """A reconciler for a task that has just been ordered."""
    node_id = uuid4()
    shared = SharedState(
        node_id=node_id,
        options=Options(),
        paths=task_paths.make(root, node_id, VolumeFolders(root)),
        networks=Networks(node_id, wanted=False),
        changed=lambda: None,
        term=lambda: 1,
        memory_bytes=2**30,
        engine=cast(Engine, engine),
        fetcher=cast(Images, engine),
    )
    shared.paths.task(task.task_id).mkdir()
    reconciler = TaskReconciler(shared, record.of(task, "boot"), task)
    engine.tell = reconciler.notify
    return reconciler


async def is_over(reconciler: TaskReconciler) -> None:
    await eventually(lambda: reconciler.record.removed, "the end")


async def test_an_end_is_recorded_when_the_engine_stops_at_the_last_step(tmp_path: Path):
    task = order("work")
    reconciler = reconciled_by(FlakyEngine(networks=1), tmp_path, task)
    reconciler.begin()
    reconciler.stop(0, "requested")
    await is_over(reconciler)
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert [data async for data in reconciler.logs("main", LogSelection())] == []
    await reconciler.close()
    stored = read(tmp_path / "containers" / str(task.task_id) / "task.json", TaskRecord)
    assert stored is not None
    assert stored.removed


async def test_a_connection_that_breaks_once_leaves_no_task_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reconcilers, "_RETRY_SECONDS", 0.01)
    reconciler = reconciled_by(FlakyEngine(pull=1), tmp_path, order("work"))
    reconciler.begin()
    await eventually(lambda: reconciler.observed().status == "RUNNING", "the second try")
    await reconciler.close()


@pytest.mark.parametrize("call", ["create", "start"])
async def test_a_half_started_container_is_recreated_when_the_engine_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
):
    monkeypatch.setattr(reconcilers, "_RETRY_SECONDS", 0.01)
    reconciler = reconciled_by(FlakyEngine(**{call: 1}), tmp_path, order("work"))
    reconciler.begin()
    found = await eventually(lambda: reconciler.observed() if reconciler.observed().status != "PREPARING" else None)
    assert (found.status, found.restarts) == ("RUNNING", 0)
    await reconciler.close()


async def test_a_failed_liveness_probe_kills_the_container_even_if_the_engine_was_away_at_first(tmp_path: Path):
    probe = ProbeSpec(command=["alive"], interval_seconds=0, failures=1)
    reconciler = reconciled_by(FlakyEngine(signal=1), tmp_path, order(containers=[container("work", liveness=probe)]))
    reconciler.begin()
    await is_over(reconciler)
    await reconciler.close()
    assert reconciler.observed().code == "unhealthy"


async def test_a_task_with_a_container_that_does_not_run_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    engine, starting = FlakyEngine(), asyncio.Event()

    async def start(_: str) -> None:
        starting.set()
        await asyncio.Event().wait()

    task = order("work", restart="always", max_restarts=5)
    reconciler = reconciled_by(engine, tmp_path, task)
    reconciler.begin()
    await eventually(lambda: reconciler.observed().ready, "its being ready")
    monkeypatch.setattr(engine, "start", start)
    await engine.crash(name_of(task.task_id, "main"))
    await eventually(lambda: not reconciler.observed().ready, "its not being ready")
    async with asyncio.timeout(DEADLINE_SECONDS):
        await starting.wait()
    assert (reconciler.observed().status, reconciler.observed().ready) == ("RUNNING", False)
    await reconciler.close()


async def test_on_a_full_disk_a_task_can_be_stopped_and_its_containers_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reconcilers, "_RETRY_SECONDS", 0.01)
    engine = FlakyEngine()
    reconciler = reconciled_by(engine, tmp_path, order("work"))
    reconciler.begin()
    await eventually(lambda: reconciler.observed().ready, "its being ready")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(record, "write", full)
        patched.setattr(output, "RotatedFile", full)
        with pytest.raises(OSError, match="No space"):
            reconciler.stop(0, "requested")
        await eventually(lambda: not engine.found, "the removal of its container")
    await is_over(reconciler)
    assert reconciler.observed().status == "CANCELLED"
    await reconciler.close()
