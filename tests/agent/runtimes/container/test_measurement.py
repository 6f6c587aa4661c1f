"""Usage of real containers, from their cgroups."""

from __future__ import annotations

import asyncio

from tests.agent.builders import DEADLINE_SECONDS
from tests.agent.runtimes.container.conftest import Node, container, order

MIB = 1 << 20
_BUSY = """
head -c 20000000 /dev/zero > /dev/shm/kept
while :; do :; done
"""


async def test_a_measurement_sums_the_running_containers_of_a_task(node: Node):
    beside = container("sleep", "60", name="beside")
    task = order(containers=[container("sh", "-c", _BUSY, shared_memory=64 * MIB), beside])
    calm = order("sleep", "60")
    for each in (task, calm):
        await node.runtime.start(each)
        await node.until(each, "RUNNING")
    assert await node.runtime.measures() == []
    async with asyncio.timeout(DEADLINE_SECONDS):
        busy = rest = None
        # To start is work, too: the other one is at rest only afterwards.
        while (
            busy is None
            or rest is None
            or busy.cpu_millicores < 100
            or busy.memory_bytes < 20_000_000
            or rest.cpu_millicores >= 50
        ):
            await asyncio.sleep(0.1)
            found = {measure.task_id: measure for measure in await node.runtime.measures()}
            busy, rest = found[task.task_id], found[calm.task_id]
    assert 0 < rest.memory_bytes < 20_000_000
    await node.runtime.stop(task.task_id, 0, "requested")
    await node.end(task)
    assert [measure.task_id for measure in await node.runtime.measures()] == [calm.task_id]
