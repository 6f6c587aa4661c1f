"""The way into real containers: commands, their own input and output, ports of their own network, files."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import pytest

from mooring.agent.access.commands import CommandNotStarted
from mooring.agent.runtimes.contract import TaskChannel
from mooring.model.errors import MooringError
from mooring.wire.agents.agent_protocol import Attach, Dial, Exec, FetchFiles, Purpose, StoreFiles
from mooring.wire.agents.desired_tasks import DesiredTask, ProbeSpec
from tests.agent.builders import DEADLINE_SECONDS
from tests.agent.runtimes.container.conftest import Node, container, order

SERVING = "mkdir /tmp/www; echo ahoy > /tmp/www/index.html; exec httpd -f -p 127.0.0.1:8080 -h /tmp/www"
ECHOING = "while read line; do echo heard $line; done"


@pytest.fixture
async def task(node: Node) -> AsyncIterator[DesiredTask]:
    """One that serves HTTP, and beside it one that answers on its terminal."""
    answers = ProbeSpec(port=8080, interval_seconds=1)
    main = container("sh", "-c", SERVING, environment={"GREETING": "ahoy"}, ports=[8080], readiness=answers)
    task = order(containers=[main, container("sh", "-c", ECHOING, name="echo", terminal=True)])
    await node.runtime.start(task)
    await node.until_seen(task, lambda found: found.ready)
    async with asyncio.timeout(DEADLINE_SECONDS):
        yield task


async def everything(reached: TaskChannel, given: bytes | None = None) -> tuple[bytes, bytes, int | None]:
    """Return the output on both streams, and the exit code."""

    async def feed() -> None:
        if given is not None:
            await reached.write(given)
        await reached.write(b"")

    feeding = asyncio.create_task(feed())
    said = {False: b"", True: b""}
    try:
        while (piece := await reached.read()) is not None:
            said[piece[1]] += piece[0]
        return said[False], said[True], await reached.exit_code()
    finally:
        feeding.cancel()
        await reached.close()


async def test_commands_have_the_environment_of_the_container_and_end_with_their_user(
    node: Node, task: DesiredTask
) -> None:
    async def reach(purpose: Purpose, name: str | None = None) -> TaskChannel:
        return await node.runtime.reach(task.task_id, name, purpose)

    given = bytes(range(256)) * 12_000 + os.urandom(500_000)
    out, errors, code = await everything(
        await reach(Exec(command=["sh", "-c", "echo $GREETING >&2; cat; exit 7"])), given
    )
    assert (out == given, errors, code) == (True, b"ahoy\n", 7)
    terminal = await reach(Exec(command=["sh"], terminal=True, rows=33, columns=101), "echo")
    assert b"33 101" in (await everything(terminal, b"stty size\nexit\n"))[0]
    try:
        _, errors, code = await everything(await reach(Exec(command=["no-such-program"])))
    except CommandNotStarted as problem:
        errors, code = problem.message.encode(), problem.exit_code
    assert (b'"no-such-program": executable file not found' in errors, code) == (True, 127)
    # Nobody reads what it is given.
    assert (await everything(await reach(Exec(command=["sh", "-c", "exit 3"])), given))[2] == 3
    sleeping = await reach(Exec(command=["sh", "-c", "echo $$; exec sleep 1000"]))
    piece = await sleeping.read()
    assert piece is not None
    await sleeping.close()
    left = Exec(command=["test", "-d", f"/proc/{int(piece[0])}"])
    assert (await everything(await reach(left)))[2] == 1
    with pytest.raises(MooringError, match="no container 'none'; there are: main, echo"):
        await reach(Exec(command=["id"]), "none")


async def test_a_container_s_own_terminal_is_attached_and_left_as_it_is(node: Node, task: DesiredTask) -> None:
    for word in (b"one", b"two"):
        attached = await node.runtime.reach(task.task_id, "echo", Attach())
        await attached.write(word + b"\n")
        heard = b""
        while b"heard " + word not in heard:
            piece = await attached.read()
            assert piece is not None
            heard += piece[0]
        await attached.close()


async def test_ports_are_reached_inside_the_container_s_own_network(node: Node, task: DesiredTask) -> None:
    for port in (8080, 0):
        dialled = await node.runtime.reach(task.task_id, None, Dial(port=port))
        answer, _, code = await everything(dialled, b"GET / HTTP/1.0\r\n\r\n")
        assert (answer.endswith(b"ahoy\n"), code) == (True, None)
    with pytest.raises(MooringError, match="port-not-answering"):
        await node.runtime.reach(task.task_id, None, Dial(port=22))
    # Its process has ended meanwhile, and another container has got the number.
    reconciler = node.runtime._reconcilers[task.task_id]
    reconciler.seen["main"] = replace(reconciler.seen["main"], id=uuid4().hex)
    with pytest.raises(MooringError, match="has ended"):
        await node.runtime.reach(task.task_id, None, Dial(port=8080))


async def test_files_come_out_as_they_went_in_and_paths_stay_inside(node: Node, task: DesiredTask) -> None:
    content = os.urandom(700_000)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("one.bin")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    await everything(await node.runtime.reach(task.task_id, None, StoreFiles(path="/tmp")), packed.getvalue())
    back, _, _ = await everything(await node.runtime.reach(task.task_id, None, FetchFiles(path="/tmp/one.bin")))
    with tarfile.open(fileobj=io.BytesIO(back)) as found:
        file = found.extractfile("one.bin")
        assert file is not None
        assert file.read() == content
    link = Exec(command=["ln", "-s", str(node.root), "/tmp/out"])
    await everything(await node.runtime.reach(task.task_id, None, link))
    for purpose in (
        FetchFiles(path="/nothing"),
        FetchFiles(path="/tmp/../../etc"),
        FetchFiles(path="/tmp/out/agent"),
        StoreFiles(path="/tmp/out/in"),
        StoreFiles(path="../in"),
    ):
        with pytest.raises(MooringError):
            await everything(await node.runtime.reach(task.task_id, None, purpose), packed.getvalue())
    assert not await asyncio.to_thread(lambda: list(node.root.rglob("one.bin")))
