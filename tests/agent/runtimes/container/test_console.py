"""The console of real containers: a terminal with the user's size, and an input that ends."""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import Any

from mooring.agent.runtimes.contract import TaskChannel
from mooring.wire.agents.agent_protocol import Attach
from mooring.wire.agents.desired_tasks import DesiredTask
from tests.agent.builders import DEADLINE_SECONDS
from tests.agent.runtimes.container.conftest import Node, container, order


async def start(node: Node, *command: str, **fields: Any) -> DesiredTask:
    task = order(containers=[container(*command, **fields)])
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    return task


async def attach(node: Node, task: DesiredTask, **how: Any) -> TaskChannel:
    return await node.runtime.reach(task.task_id, None, Attach(**how))


async def read_until(attached: TaskChannel, wanted: bytes) -> bytes:
    said = b""
    while wanted not in said:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                piece = await attached.read()
        except TimeoutError:
            piece = None
        assert piece is not None, f"{wanted!r} did not appear in {said!r}"
        said += piece[0]
    return said


async def test_a_terminal_starts_with_the_user_s_size_and_follows_it(node: Node) -> None:
    script = "stty size; while read line; do stty size; echo heard $line; done"
    task = await start(node, "sh", "-c", script, terminal=True, terminal_rows=33, terminal_columns=101)
    attached = await attach(node, task, replay=True)
    await read_until(attached, b"33 101")
    await attached.resize(44, 90)
    await attached.write(b"one\n")
    assert b"44 90" in await read_until(attached, b"heard one")
    await attached.close()
    again = await attach(node, task, replay=True)
    assert b"heard one" in await read_until(again, b"44 90\r\nheard one")
    await again.close()


async def test_ctrl_c_interrupts_the_foreground_of_a_terminal(node: Node) -> None:
    task = await start(node, "sh", terminal=True)
    attached = await attach(node, task)
    await attached.write(b"sh -c 'echo beg''un; exec sleep 1000'\n")
    await read_until(attached, b"begun")
    await attached.write(b"\x03")
    await attached.write(b"echo code $?; exit 3\n")
    await read_until(attached, b"code 130")
    assert (await node.end(task)).exit_code == 3


async def test_input_reaches_the_container_unchanged_and_its_end_closes_it(node: Node) -> None:
    given = os.urandom(500_000)
    task = await start(node, "sh", "-c", "md5sum; echo over", stdin=True)
    attached = await attach(node, task, output=False)
    await attached.write(given)
    await attached.write(b"")
    assert (await node.end(task)).exit_code == 0
    await attached.close()
    assert await node.output(task) == f"{hashlib.md5(given).hexdigest()}  -\nover\n"
