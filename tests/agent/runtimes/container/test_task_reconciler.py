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

from mooring.agent.containers import keeper as keepers
from mooring.agent.containers import output, places, record
from mooring.agent.containers.course import Seen
from mooring.agent.containers.engine import Engine, EngineGone, EngineRefused
from mooring.agent.containers.keeper import Keeper, Shared
from mooring.agent.containers.networks import Networks
from mooring.agent.containers.pulls import Images, Pulled
from mooring.agent.containers.record import TaskRecord
from mooring.agent.containers.specification import Abilities, name_of
from mooring.agent.options import Options
from mooring.agent.records import read
from mooring.agent.volumes import VolumeFolders
from mooring.wire.agent import DesiredTask, ProbeSpec
from tests.agent.builders import DEADLINE_SECONDS, eventually
from tests.agent.containers.conftest import container, order


class FlakyEngine:
    """An engine in memory, whose containers run until they are told to end. `fails`: how often, and at what."""

    def __init__(self, **fails: int) -> None:
        self.abilities = Abilities()
        self.found: dict[str, Seen] = {}
        self.tell: Callable[[], None] = lambda: None
        self._fails = fails
        self._ids = itertools.count()
        self._half_made: set[str] = set()
        """Names that are taken by nothing that it knows of."""
        self._half_started: set[str] = set()

    def _answer(self, call: str) -> None:
        if self._fails.get(call, 0) > 0:
            self._fails[call] -= 1
            raise EngineGone("the engine went away")

    async def of_task(self, task: DesiredTask) -> dict[str, Pulled]:
        self._answer("pull")
        return {each.name: Pulled("sha256:0", "sha256:0") for each in task.containers}

    def progress_of(self, task: DesiredTask) -> str:
        return ""

    async def seen(self, name: str) -> Seen | None:
        return self.found.get(name)

    async def create(self, name: str, config: Mapping[str, Any]) -> None:
        """Refused where it was cut short before."""
        if name in self._half_made:
            raise EngineRefused("that name is already in use", 500)
        self._half_made.add(name)
        self._answer("create")
        self._half_made.clear()
        self.found[name] = Seen(f"{next(self._ids)}", "created", labels=config["Labels"])

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


def kept_by(engine: FlakyEngine, root: Path, task: DesiredTask) -> Keeper:
    """A keeper for a task whose order has just come."""
    node_id = uuid4()
    shared = Shared(
        node_id=node_id,
        options=Options(),
        places=places.make(root, node_id, VolumeFolders(root)),
        networks=Networks(node_id, wanted=False),
        changed=lambda: None,
        term=lambda: 1,
        memory_bytes=2**30,
        engine=cast(Engine, engine),
        fetcher=cast(Images, engine),
    )
    shared.places.task(task.task_id).mkdir()
    keeper = Keeper(shared, record.of(task, "boot"), task)
    engine.tell = keeper.wake
    return keeper


async def is_over(keeper: Keeper) -> None:
    await eventually(lambda: keeper.record.removed, "the end")


async def test_an_end_is_kept_though_the_engine_goes_away_at_the_very_last_step(tmp_path: Path):
    task = order("work")
    keeper = kept_by(FlakyEngine(networks=1), tmp_path, task)
    keeper.begin()
    keeper.stop(0, "requested")
    await is_over(keeper)
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert [data async for data in keeper.logs("main", None, False)] == []
    await keeper.close()
    kept = read(tmp_path / "containers" / str(task.task_id) / "task.json", TaskRecord)
    assert kept is not None
    assert kept.removed


async def test_a_connection_that_breaks_once_leaves_no_task_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keepers, "_RETRY_SECONDS", 0.01)
    keeper = kept_by(FlakyEngine(pull=1), tmp_path, order("work"))
    keeper.begin()
    await eventually(lambda: keeper.observed().status == "RUNNING", "the second try")
    await keeper.close()


@pytest.mark.parametrize("call", ["create", "start"])
async def test_who_was_half_started_when_the_engine_went_away_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
):
    monkeypatch.setattr(keepers, "_RETRY_SECONDS", 0.01)
    keeper = kept_by(FlakyEngine(**{call: 1}), tmp_path, order("work"))
    keeper.begin()
    found = await eventually(lambda: keeper.observed() if keeper.observed().status != "PREPARING" else None)
    assert (found.status, found.restarts) == ("RUNNING", 0)
    await keeper.close()


async def test_who_is_not_alive_is_killed_also_where_the_engine_was_away_at_first(tmp_path: Path):
    probe = ProbeSpec(command=["alive"], interval_seconds=0, failures=1)
    keeper = kept_by(FlakyEngine(signal=1), tmp_path, order(containers=[container("work", liveness=probe)]))
    keeper.begin()
    await is_over(keeper)
    await keeper.close()
    assert keeper.observed().code == "unhealthy"


async def test_nobody_is_sent_to_a_task_of_which_something_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    engine, starting = FlakyEngine(), asyncio.Event()

    async def start(_: str) -> None:
        starting.set()
        await asyncio.Event().wait()

    task = order("work", restart="always", max_restarts=5)
    keeper = kept_by(engine, tmp_path, task)
    keeper.begin()
    await eventually(lambda: keeper.observed().ready, "its being ready")
    monkeypatch.setattr(engine, "start", start)
    await engine.crash(name_of(task.task_id, "main"))
    await eventually(lambda: not keeper.observed().ready, "its not being ready")
    async with asyncio.timeout(DEADLINE_SECONDS):
        await starting.wait()
    assert (keeper.observed().status, keeper.observed().ready) == ("RUNNING", False)
    await keeper.close()


async def test_on_a_full_disk_a_task_can_be_stopped_and_its_containers_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(keepers, "_RETRY_SECONDS", 0.01)
    engine = FlakyEngine()
    keeper = kept_by(engine, tmp_path, order("work"))
    keeper.begin()
    await eventually(lambda: keeper.observed().ready, "its being ready")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(record, "write", full)
        patched.setattr(output, "RotatedFile", full)
        with pytest.raises(OSError, match="No space"):
            keeper.stop(0, "requested")
        await eventually(lambda: not engine.found, "the removal of its container")
    await is_over(keeper)
    assert keeper.observed().status == "CANCELLED"
    await keeper.close()
