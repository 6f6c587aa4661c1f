"""Measured usage: readings of cgroups and processes, and the averages sent to the server."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from mooring.agent.node import limits, usage_counters
from mooring.agent.node.measurement import Meter
from mooring.agent.node.usage_counters import Usage
from mooring.model.resources.task_resources import oom_score
from mooring.wire.agents.agent_protocol import TaskMeasure
from tests.agent.builders import DEADLINE_SECONDS, container, order
from tests.agent.conftest import Node

UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
OLD = (
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
BUSY = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
HALF = 500


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_a_v2_cgroup_has_all_measurements(tmp_path):
    folder = write(
        tmp_path / "task",
        cpu__stat="usage_usec 2500000\nuser_usec 2000000\n",
        memory__current="1000000\n",
        memory__stat="anon 5\ninactive_file 400000\n",
        io__stat="8:0 rbytes=4096 wbytes=100 rios=1 wios=1\n8:16 rbytes=4 wbytes=0 rios=1 wios=0\n",
    )
    # the part of the page cache that would be given back does not count
    assert usage_counters.of_cgroup({usage_counters.UNIFIED: folder}) == Usage(2_500_000, 600_000, 4100, 100)


def test_v1_controllers_take_precedence_over_the_v2_half_of_a_hybrid_machine(tmp_path):
    folders = {
        "cpuacct": write(tmp_path / "cpuacct", cpuacct__usage="3000000000\n"),
        "memory": write(
            tmp_path / "memory", memory__usage_in_bytes="9000\n", memory__stat="cache 1\ntotal_inactive_file 1000\n"
        ),
        "blkio": write(
            tmp_path / "blkio",
            blkio__throttle__io_service_bytes_recursive="8:0 Read 10\n8:0 Write 20\n8:0 Total 30\nTotal 30\n",
        ),
        usage_counters.UNIFIED: write(tmp_path / "unified", cpu__stat="usage_usec 7\n"),
    }
    assert usage_counters.of_cgroup(folders) == Usage(3_000_000, 8000, 10, 20)
    assert usage_counters.of_cgroup({usage_counters.UNIFIED: folders[usage_counters.UNIFIED]}) == Usage(
        7, None, None, None
    )


def test_a_sum_with_an_unknown_part_is_unknown():
    assert usage_counters.total([Usage(1, 2, None, 4), Usage(1, 2, 3, 4)]) == Usage(2, 4, None, 8)
    assert Usage(1, None, 3, None).or_else(Usage(9, 9, 9, 9)) == Usage(1, 9, 3, 9)


def test_hierarchies_are_found_where_they_are_mounted():
    assert usage_counters.mounts_of(UNIFIED) == {usage_counters.UNIFIED: (Path("/sys/fs/cgroup"), "/")}
    found = usage_counters.mounts_of(OLD)
    assert found["cpuacct"] == (Path("/sys/fs/cgroup/cpu,cpuacct"), "/")
    assert found["memory"] == (Path("/sys/fs/cgroup/memory"), "/docker/abc")
    assert usage_counters.UNIFIED not in found


def test_a_counter_becomes_the_average_since_the_last_look():
    meter, old, new = Meter(), uuid4(), uuid4()
    assert meter.measures({old: Usage(5_000_000, 10, 0, 0)}, 100.0) == []
    # 4 s of a processor in 8 s are half a core; what began since has worked for 2 s of them
    first = {m.task_id: m for m in meter.measures({old: Usage(9_000_000, 20, 7, 8), new: Usage(2_000_000)}, 108.0)}
    assert (first[old].cpu_millicores, first[new].cpu_millicores) == (HALF, HALF // 2)
    assert (first[old].memory_bytes, first[old].read_bytes, first[old].written_bytes) == (20, 7, 8)
    # counters start over at a restart, and usage is never negative
    (again,) = meter.measures({old: Usage(1_000_000, 20, 0, 0)}, 116.0)
    assert again.cpu_millicores == 0


async def test_a_running_process_is_measured_and_an_ended_one_is_not(node):
    busy = order("python3", "-c", BUSY)
    calm = order(containers=[container("sleep", "60"), container("sleep", "60", name="second")])
    for task in (busy, calm):
        await node.runtime.start(task)
        await node.until(task, "RUNNING")
    await node.runtime.measures()
    found = await _once_apart(node, busy.task_id, calm.task_id)
    assert found.keys() == {busy.task_id, calm.task_id}
    assert found[busy.task_id].memory_bytes > found[calm.task_id].memory_bytes > 0
    await node.runtime.stop(busy.task_id, 0, "requested")
    await node.end(busy)
    assert [measure.task_id for measure in await node.runtime.measures()] == [calm.task_id]


async def _once_apart(node: Node, busy: UUID, calm: UUID) -> dict[UUID, TaskMeasure]:
    """The measures once one works and the other does not: to start is work, too."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            await asyncio.sleep(0.05)
            found = {measure.task_id: measure for measure in await node.runtime.measures()}
            if found[calm].cpu_millicores < HALF / 5 < found[busy].cpu_millicores:
                return found


def test_the_work_of_children_that_ended_stays_counted():
    child = "import os, time\nif os.fork() == 0:\n    while time.process_time() < 0.1: pass\nelse:\n    os.wait()\n"
    command = ["python3", "-c", f"{child}    print('done', flush=True)\n    time.sleep(60)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"done\n"
        used = usage_counters.Processes().below(os.getpid()).cpu_microseconds
        parent.kill()
    assert used is not None
    assert used >= 100_000


@pytest.mark.parametrize(
    ("quality", "memory", "score"),
    [
        ("Guaranteed", 1 << 30, -997),
        ("BestEffort", 0, 1000),
        ("Burstable", 0, 999),
        # a quarter of the node's memory: 1000 - 250
        ("Burstable", 1 << 30, 750),
        ("Burstable", 4 << 30, 2),
    ],
)
def test_the_quality_of_a_task_decides_its_oom_score(quality, memory, score):
    assert oom_score(quality, memory, 4 << 30) == score


async def test_a_process_carries_the_score_of_its_quality(node):
    task = order("sh", "-c", "cat /proc/self/oom_score_adj", quality="BestEffort")
    await node.run(task)
    assert await node.output(task) == "1000\n"


async def test_a_guaranteed_process_is_spared_where_that_is_allowed(node):
    task = order("sh", "-c", "cat /proc/self/oom_score_adj", quality="Guaranteed")
    await node.run(task)
    spared = limits.can_lower_oom_score() and node.runtime.enforces["memory"] == "cgroup"
    assert await node.output(task) == ("-997\n" if spared else "0\n")
