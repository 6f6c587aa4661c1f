"""Simulated tasks end by the time, with the exit code and under the load that their labels give them."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from mooring.clock import now as really_now
from mooring.controllers.leadership import loops
from mooring.controllers.leadership.topics import CHARGED, STARTED
from mooring.controllers.nodes import simulation
from mooring.controllers.nodes.simulation import SimulationLoop
from mooring.mirror.mirror import Mirror
from mooring.model.errors import InvalidInput
from mooring.model.events import Topics
from mooring.model.workloads.simulation import Behaviour, behaviour_of
from tests.store.harness import Harness


class Clock:
    def __init__(self) -> None:
        self.at = really_now()

    def __call__(self) -> datetime:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (simulation, loops):
        monkeypatch.setattr(module, "now", clock)
    return clock


async def started(harness: Harness, loop: SimulationLoop, **labels: str) -> UUID:
    """A workload of two cores that runs on a simulated node of eight."""
    named = {f"simulation/{key.replace('_', '-')}": value for key, value in labels.items()}
    work = await harness.set(await harness.submit(f"w{len(named)}{''.join(labels.values())}", cpu=2), labels=named)
    await harness.place()
    await loop.once()
    assert await harness.statuses(work) == ["RUNNING"]
    return work


async def test_a_task_with_a_duration_ends_when_it_is_over_and_not_before(harness: Harness, clock: Clock):
    await harness.node("sim", simulated=True)
    loop = SimulationLoop(harness.fenced)
    short = await started(harness, loop, seconds="30")
    failing = await started(harness, loop, seconds="60", exit_code="3")
    endless = await started(harness, loop)
    clock.at += timedelta(seconds=29)
    await loop.once()
    assert await harness.statuses(short) == ["RUNNING"]
    assert loop.alarm.wait_seconds(100) <= 1
    clock.at += timedelta(seconds=2)
    await loop.once()
    assert [await harness.statuses(each) for each in (short, failing)] == [["SUCCEEDED"], ["RUNNING"]]
    clock.at += timedelta(seconds=60)
    await loop.once()
    (task,) = await harness.tasks(failing, current=False)
    assert (task.status, task.exit_code) == ("FAILED", 3)
    assert await harness.statuses(endless) == ["RUNNING"]
    assert await harness.findings() == []


async def test_loads_of_tasks_add_up_to_the_load_of_their_node_and_go_with_them(harness: Harness, clock: Clock):
    node_id = await harness.node("sim", simulated=True)
    loop, mirror = SimulationLoop(harness.fenced), Mirror(harness.database)
    await started(harness, loop, load="50", seconds="10")
    await started(harness, loop, load="100", seconds="20")
    await loop.once()
    # Half of two cores and all of two others, of eight.
    assert (await harness.node_row(node_id)).cpu_percent == pytest.approx(37.5)
    await mirror.load()
    assert mirror.cluster.cpu_load.max() > 0
    clock.at += timedelta(seconds=15)
    await loop.once()
    await loop.once()
    assert (await harness.node_row(node_id)).cpu_percent == pytest.approx(25)
    clock.at += timedelta(seconds=15)
    await loop.once()
    # A new leader clears what its predecessor left.
    await SimulationLoop(harness.fenced).once()
    assert (await harness.node_row(node_id)).cpu_percent == 0


def test_labels_of_the_simulation_are_checked():
    assert behaviour_of({"simulation/seconds": "5", "team": "x"}) == Behaviour(seconds=5)
    for wrong in ({"simulation/second": "5"}, {"simulation/load": "101"}, {"simulation/exit-code": "-1"}):
        with pytest.raises(InvalidInput):
            behaviour_of(wrong)


async def test_start_has_only_topics_that_need_no_iteration_of_this_loop(harness: Harness):
    await harness.node("sim", simulated=True)
    loop = SimulationLoop(harness.fenced)
    await harness.submit("work")
    await harness.place()
    commits: list[Topics] = []
    harness.database.on_commit.append(commits.append)
    assert (await loop.once()).announced
    assert len(commits) == 1
    assert commits[0] is not None
    assert commits[0] <= STARTED | CHARGED
    assert not (await loop.once()).announced
