"""The way into process tasks: commands beside them, their own ports, and the files of their folder only."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mooring.agent.access.commands import CommandNotStarted, spawn
from mooring.agent.runtimes.contract import TaskChannel
from mooring.agent.runtimes.process.access import FileTransfer
from mooring.model.errors import MooringError
from mooring.wire.agents.agent_protocol import Attach, Dial, Exec, FetchFiles, StoreFiles
from mooring.wire.agents.desired_tasks import DesiredTask
from tests.agent.builders import DEADLINE_SECONDS, container, eventually, order
from tests.agent.conftest import Node, needs_root
from tests.servers import free_port

SLEEPING = ("sleep", "1000")


@pytest.fixture
async def task(node: Node) -> AsyncIterator[DesiredTask]:
    """One that runs, with two ports of its own, the first of them asked for as 8080."""
    own = container(*SLEEPING, environment={"GREETING": "ahoy"}, ports=[8080])
    task = order(containers=[own], ports=[free_port(), free_port()])
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    yield task
    await node.runtime.stop(task.task_id, 0, "requested")


async def run(node: Node, task: DesiredTask, *command: str, given: bytes = b"", **how: Any) -> tuple[bytes, bytes, int]:
    """Return the output of a command on both streams, and its exit code."""
    reached = await node.runtime.reach(task.task_id, None, Exec(command=list(command), **how))
    async with asyncio.timeout(DEADLINE_SECONDS):
        feeding = asyncio.create_task(feed(reached, given))
        said = {False: b"", True: b""}
        while (piece := await reached.read()) is not None:
            said[piece[1]] += piece[0]
        code = await reached.exit_code()
        feeding.cancel()
        await reached.close()
    assert code is not None
    return said[False], said[True], code


async def feed(reached: TaskChannel, given: bytes) -> None:
    await reached.write(given)
    await reached.write(b"")


async def fetch(node: Node, task: DesiredTask, path: str) -> bytes:
    reached = await node.runtime.reach(task.task_id, None, FetchFiles(path=path))
    try:
        return b"".join([piece[0] async for piece in pieces(reached)])
    finally:
        await reached.close()


async def store(node: Node, task: DesiredTask, path: str, archive: bytes) -> None:
    reached = await node.runtime.reach(task.task_id, None, StoreFiles(path=path))
    try:
        await feed(reached, archive)
        async for _ in pieces(reached):
            pass
    finally:
        await reached.close()


async def pieces(reached: TaskChannel) -> AsyncIterator[tuple[bytes, bool]]:
    while (piece := await reached.read()) is not None:
        yield piece


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def member(name: str, **fields: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def work_folder(node: Node, task: DesiredTask) -> Path:
    return node.runtime._folders.work_root / str(task.task_id)


async def test_a_command_has_the_task_s_environment_folder_user_and_limits(node: Node, task: DesiredTask):
    script = 'echo "$GREETING $MOORING_TASK_ID"; pwd; id -u; ulimit -c; cat /proc/self/cgroup; exit 7'
    out, errors, code = await run(node, task, "sh", "-c", script)
    greeting, folder, uid, core, *groups = out.decode().splitlines()
    assert (greeting, folder) == (f"ahoy {task.task_id}", str(work_folder(node, task)))
    assert (int(uid), core) == (200_007 if os.getuid() == 0 else os.getuid(), "0")
    if node.runtime._processes.cgroups is not None:
        assert f"/{task.task_id}/0" in "".join(groups)
    assert (errors, code) == (b"", 7)


async def test_input_output_and_errors_are_separate_and_a_missing_command_is_reported(node: Node, task: DesiredTask):
    given = os.urandom(3_000_000)
    out, errors, code = await run(node, task, "sh", "-c", "echo oops >&2; cat", given=given)
    assert (out == given, errors, code) == (True, b"oops\n", 0)
    assert (await run(node, task, "sh", "-c", "kill -9 $$"))[2] == 137
    with pytest.raises(CommandNotStarted) as refused:
        await run(node, task, "no-such-program")
    assert (refused.value.exit_code, refused.value.message) == (
        127,
        "cannot start 'no-such-program': no such file or directory",
    )


async def test_a_terminal_has_the_size_that_is_asked_for_and_follows_its_changes(node: Node, task: DesiredTask):
    reached = await node.runtime.reach(task.task_id, None, Exec(command=["sh"], terminal=True, rows=33, columns=101))
    await reached.write(b"stty size; tty\n")
    said = b""
    while b"33 101" not in said or b"/dev/pts" not in said:
        piece = await reached.read()
        assert piece is not None
        said += piece[0]
    await reached.resize(44, 90)
    await reached.write(b"stty size; exit 3\n")
    async for piece in pieces(reached):
        said += piece[0]
    assert (b"44 90" in said, await reached.exit_code()) == (True, 3)
    await reached.close()


@pytest.mark.parametrize("cgroups", [True, False])
async def test_a_command_ends_with_its_client_and_with_its_task(node: Node, cgroups: bool):
    if not cgroups:
        node.runtime._processes.cgroups = None
    task = order(*SLEEPING)
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    seconds = f"1000.{task.task_id.int % 10**9}"
    command = Exec(command=["sh", "-c", f"sleep {seconds} & exec sleep {seconds}"])

    def running() -> list[int]:
        """Both, as the machine counts processes: in the task's namespace they have other numbers."""
        found = psutil.process_iter(["cmdline"])
        return [process.pid for process in found if process.info["cmdline"] == ["sleep", seconds]]

    for ending in ("hang up", "task"):
        reached = await node.runtime.reach(task.task_id, None, command)
        await eventually(lambda: len(running()) == 2, "the command")
        if ending == "hang up":
            await reached.close()
            await reached.close()
        else:
            await node.runtime.stop(task.task_id, 0, "requested")
            assert await reached.read() is None
            await reached.close()
        await eventually(lambda: not running(), "its end")
    await node.end(task)
    with pytest.raises(MooringError, match="not-running"):
        await node.runtime.reach(task.task_id, None, command)


async def test_the_task_s_own_ports_are_reached_and_no_others(node: Node, task: DesiredTask):
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    own = task.ports[0]
    async with await asyncio.start_server(echo, "127.0.0.1", own):
        for port in (own, 8080, 0):
            reached = await node.runtime.reach(task.task_id, None, Dial(port=port))
            await feed(reached, b"ahoy")
            assert [piece async for piece in pieces(reached)] == [(b"AHOY", False)]
            await reached.close()
    for port, code in ((22, "foreign-port"), (task.ports[1], "port-not-answering")):
        with pytest.raises(MooringError) as refused:
            await node.runtime.reach(task.task_id, None, Dial(port=port))
        assert refused.value.code == code
    with pytest.raises(MooringError, match="started without an input"):
        await node.runtime.reach(task.task_id, None, Attach())


async def test_files_come_out_as_they_went_in_also_after_the_end_of_the_task(node: Node, task: DesiredTask):
    content = os.urandom(200_000)
    archive = packed(
        (member("data", type=tarfile.DIRTYPE, mode=0o755), b""), (member("data/one.bin", mode=0o640), content)
    )
    await store(node, task, "in", archive)
    stored = work_folder(node, task) / "in" / "data" / "one.bin"
    assert stored.read_bytes() == content
    assert stored.stat().st_uid == (200_007 if os.getuid() == 0 else os.getuid())
    await node.runtime.stop(task.task_id, 0, "requested")
    await node.end(task)
    for path in ("in/data", str(stored.parent)):
        with tarfile.open(fileobj=io.BytesIO(await fetch(node, task, path))) as found:
            assert found.getnames() == ["data", "data/one.bin"]
            file = found.extractfile("data/one.bin")
            assert file is not None
            assert (file.read(), found.getmember("data").uname) == (content, "")


@pytest.mark.parametrize(
    "tricky",
    [
        member("../out"),
        member("/tmp/out"),
        member("a/../../out"),
        member("link", type=tarfile.SYMTYPE, linkname="/etc"),
        member("link", type=tarfile.SYMTYPE, linkname="../../.."),
        member("hard", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        member("device", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        member("pipe", type=tarfile.FIFOTYPE),
    ],
    ids=lambda tricky: f"{tricky.name} {tricky.linkname}".strip(),
)
async def test_archives_that_lead_out_of_the_folder_are_refused(node: Node, task: DesiredTask, tricky: tarfile.TarInfo):
    with pytest.raises(MooringError) as refused:
        await store(node, task, "in", packed((tricky, b"")))
    assert refused.value.code == "files-refused"
    assert list((work_folder(node, task) / "in").iterdir()) == []


async def test_paths_that_lead_out_of_the_folder_are_refused(node: Node, task: DesiredTask):
    await run(node, task, "sh", "-c", "ln -s /etc out; ln -s /etc/passwd users; mkfifo pipe; echo 1 > fine")
    for path in ("../..", "/etc/passwd", "out/passwd", "in/../../..", "nothing"):
        with pytest.raises(MooringError):
            await fetch(node, task, path)
    for path in ("../in", "/tmp", "out", "out/in"):
        with pytest.raises(MooringError):
            await store(node, task, path, packed((member("file"), b"x")))
    # A link is a link, whatever it leads to, and what is no file is left out.
    with tarfile.open(fileobj=io.BytesIO(await fetch(node, task, "."))) as found:
        assert sorted(found.getnames()) == [".", "./fine", "./out", "./tmp", "./users"]
        assert found.getmember("./users").issym()
    with pytest.raises(MooringError, match="not a tar archive"):
        await store(node, task, "in", b"x" * 2000)


@needs_root
async def test_archives_that_are_too_much_are_refused_before_they_are_written(node: Node, task: DesiredTask):
    huge = member("huge")
    huge.size = 20 * 1024**3
    with pytest.raises(MooringError, match="more than 16 GiB"):
        await store(node, task, "in", huge.tobuf() + b"\0" * 10240)
    assert list((work_folder(node, task) / "in").iterdir()) == []


async def test_the_reason_of_a_failed_transfer_is_bounded():
    words = [sys.executable, "-c", "import sys; sys.stderr.write('broken ' * 10**6); sys.exit(1)"]
    transfer = FileTransfer(spawn(lambda _: words, None))
    with pytest.raises(MooringError, match="broken") as refused:
        await transfer.read()
    assert refused.value.code == "files-refused"
    assert len(refused.value.message) <= 4000
    await transfer.close()
