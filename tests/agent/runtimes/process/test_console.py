"""The console of process tasks: a terminal or an input that users attach to, detach from and attach to again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from mooring.agent.runtimes.contract import TaskChannel
from mooring.model.errors import MooringError
from mooring.wire.agents.agent_protocol import Attach
from mooring.wire.agents.desired_tasks import DesiredTask
from tests.agent.builders import DEADLINE_SECONDS, container, eventually, order
from tests.agent.conftest import Node


async def start(node: Node, *command: str, restart: str = "never", max_restarts: int = 0, **fields: Any) -> DesiredTask:
    task = order(containers=[container(*command, **fields)], restart=restart, max_restarts=max_restarts)
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


async def rest(attached: TaskChannel) -> bytes:
    said = b""
    while (piece := await attached.read()) is not None:
        said += piece[0]
    return said


async def test_a_terminal_follows_the_size_of_the_window_and_passes_ctrl_c_on(node: Node):
    task = await start(node, "sh", terminal=True, terminal_rows=33, terminal_columns=101)
    attached = await attach(node, task, replay=True)
    await attached.write(b"stty size; tty; echo $TERM\n")
    said = await read_until(attached, b"xterm-256color")
    assert (b"33 101" in said, b"/dev/pts/" in said) == (True, True)
    await attached.resize(44, 90)
    await attached.write(b"stty size\n")
    await read_until(attached, b"44 90")
    await attached.write(b"sh -c 'echo beg''un; exec sleep 1000'\n")
    await read_until(attached, b"begun")
    await attached.write(b"\x03")
    await attached.write(b"echo code $?; exit 3\n")
    assert b"code 130" in await rest(attached)
    assert await attached.exit_code() == 3
    assert (await node.end(task)).exit_code == 3
    assert "code 130" in await node.output(task)


async def test_a_process_keeps_running_between_two_attached_users(node: Node):
    task = await start(node, "sh", "-c", "echo before; while read line; do echo heard $line; done", terminal=True)
    for word in (b"one", b"two"):
        attached = await attach(node, task)
        await attached.write(word + b"\n")
        await read_until(attached, b"heard " + word)
        await attached.write(b"")
        await attached.close()
    again = await attach(node, task, replay=True)
    said = await read_until(again, b"heard two")
    assert said.index(b"before") < said.index(b"heard one") < said.index(b"heard two")
    await again.close()
    assert "before" in (await node.output(task)).splitlines()


async def test_the_console_survives_a_restart_of_the_agent(node: Node, node_folder: Path):
    task = await start(node, "sh", "-c", "while read line; do echo heard $line; done", terminal=True)
    first = await attach(node, task)
    await first.write(b"one\n")
    await read_until(first, b"heard one")
    await first.close()
    await node.runtime.close()
    successor = Node(node_folder, node.node_id)
    await successor.runtime.open()
    try:
        attached = await attach(successor, task, replay=True)
        await attached.write(b"two\n")
        said = await read_until(attached, b"heard two")
        assert b"heard one" in said
        await attached.close()
    finally:
        await successor.runtime.close()
        await node.runtime.open()


async def test_input_reaches_the_process_unchanged_and_its_end_closes_it(node: Node):
    given = os.urandom(1_000_000)
    task = await start(node, "sh", "-c", "cat > copy; wc -c < copy", stdin=True)
    attached = await attach(node, task, output=False)
    await attached.write(given)
    await attached.write(b"")
    assert await rest(attached) == b""
    assert await attached.exit_code() == 0
    assert (await node.end(task)).exit_code == 0
    assert (await node.output(task)).strip() == "1000000"
    assert (node.runtime._folders.work_root / str(task.task_id) / "copy").read_bytes() == given


async def test_a_lost_connection_does_not_end_the_input(node: Node):
    task = await start(node, "sh", "-c", "while read line; do echo heard $line; done; echo over", stdin=True)
    lost = await attach(node, task)
    await lost.write(b"one\n")
    await read_until(lost, b"heard one\n")
    await lost.close()
    attached = await attach(node, task)
    await attached.write(b"two\n")
    assert await read_until(attached, b"heard two\n") == b"heard two\n"
    await attached.write(b"")
    assert await rest(attached) == b"over\n"


async def test_a_process_that_is_restarted_after_the_end_of_its_input_finds_it_ended(node: Node):
    task = await start(node, "sh", "-c", "cat; echo once; exit 1", stdin=True, restart="on-failure", max_restarts=1)
    attached = await attach(node, task)
    await attached.write(b"given ")
    await attached.write(b"")
    assert await rest(attached) == b"given once\n"
    await node.end(task)
    assert await node.output(task) == "given once\nonce\n"


@pytest.mark.slow
async def test_a_user_who_reads_nothing_delays_the_process_no_longer_than_the_limit(node: Node):
    task = await start(node, "sh", "-c", "read go; head -c 3000000 /dev/zero; echo written", stdin=True)
    slow = await attach(node, task)
    await slow.write(b"\n")
    await slow.write(b"")
    assert (await node.end(task)).exit_code == 0
    assert (await node.output(task, tail=1)).endswith("written\n")
    await slow.close()


async def test_input_that_nobody_reads_is_bounded_and_the_process_can_still_be_stopped(node: Node):
    task = await start(node, "sleep", "1000", stdin=True)
    attached = await attach(node, task)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await attached.write(bytes(10_000_000))
    assert psutil.Process(node.state(task)["pid"]).memory_info().rss < 60_000_000
    await attached.close()
    await node.runtime.stop(task.task_id, 0, "requested")
    assert (await node.end(task)).status == "CANCELLED"


async def test_a_shell_on_a_terminal_ends_at_once_when_it_is_stopped(node: Node):
    task = await start(node, "bash", "-i", terminal=True)
    attached = await attach(node, task, replay=True)
    await attached.write(b"echo re''ady\n")
    await read_until(attached, b"ready")
    await node.runtime.stop(task.task_id, 1000, "requested")
    await rest(attached)
    assert (await node.end(task)).status == "CANCELLED"


async def test_a_process_without_input_cannot_be_attached_to(node: Node):
    task = await start(node, "sleep", "1000")
    with pytest.raises(MooringError, match="mooring exec") as refused:
        await attach(node, task)
    assert refused.value.code == "not-attachable"
    assert not list(node.folder(task).glob("attach-*"))


async def test_the_socket_is_private_to_the_agent(node: Node):
    task = await start(node, "sleep", "1000", stdin=True)
    [socket] = await eventually(lambda: list(node.folder(task).glob("attach-*")), "the socket")
    assert (socket.stat().st_uid, socket.stat().st_mode & 0o077) == (os.getuid(), 0)
    assert node.folder(task).stat().st_mode & 0o077 == 0
