"""Real processes: started, watched, stopped, found again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from mooring.agent.runtimes.process.orphan_cleanup import marked
from mooring.agent.runtimes.process.supervisor import record
from mooring.model.errors import MooringError, NotFound
from mooring.wire.agents.desired_tasks import DesiredTask
from tests.agent.builders import DEADLINE_SECONDS, container, eventually, order
from tests.agent.conftest import Node

FOREVER = ("sleep", "1000")


def uid_of(task: DesiredTask) -> int:
    return 200_000 + task.owner.project_number if os.getuid() == 0 else os.getuid()


def left(task: DesiredTask) -> list[int]:
    """The living processes of a task, by its mark in their environment."""
    return marked(task.task_id, uid_of(task))


async def said(node: Node, task: DesiredTask) -> None:
    """Wait until the task has said something."""
    log = node.folder(task) / "output-0.log"
    await eventually(lambda: log.exists() and log.read_bytes(), "the first output")


async def test_a_command_runs_and_its_output_is_stored(node: Node):
    task = order("python3", "-c", "print('hello')")
    found = await node.run(task)
    assert (found.status, found.exit_code, found.code) == ("SUCCEEDED", 0, "")
    assert await node.output(task) == "hello\n"


async def test_running_is_seen_before_the_end(node: Node):
    task = order(*FOREVER)
    await node.runtime.start(task)
    found = await node.until(task, "RUNNING")
    assert not found.gone


async def test_an_exit_code_is_a_failure_with_the_code(node: Node):
    task = order("sh", "-c", "exit 3")
    found = await node.run(task)
    assert (found.status, found.exit_code, found.reason) == ("FAILED", 3, "exited with code 3")


async def test_a_death_by_signal_is_named(node: Node):
    task = order("sh", "-c", "kill -KILL $$")
    found = await node.run(task)
    assert (found.status, found.exit_code, found.code) == ("FAILED", 137, "killed")
    assert found.reason == "killed by signal 9 (SIGKILL)"


async def test_both_output_streams_are_stored_in_order(node: Node):
    task = order("sh", "-c", "echo one; echo two >&2; echo three")
    await node.run(task)
    assert await node.output(task) == "one\ntwo\nthree\n"
    assert await node.output(task, tail=1) == "three\n"


async def test_output_without_end_is_rotated(node_folder: Path):
    node = Node(node_folder, log_bytes=1000, log_files=3)
    await node.runtime.open()
    task = order("sh", "-c", "seq 1 5000")
    await node.run(task)
    assert (await node.output(task, tail=2)) == "4999\n5000\n"
    assert sum(path.stat().st_size for path in node.folder(task).glob("output-0.log*")) <= 3000
    await node.runtime.close()


@pytest.mark.parametrize(
    ("command", "exit_code", "reason"),
    [
        ("no-such-program", 127, "cannot start 'no-such-program': no such file or directory"),
        ("/etc/passwd", 126, "cannot start '/etc/passwd': permission denied"),
    ],
)
async def test_a_command_that_cannot_be_started_says_why(node: Node, command, exit_code, reason):
    found = await node.run(order(command))
    assert (found.status, found.code, found.exit_code) == ("FAILED", "start-failed", exit_code)
    assert found.reason == reason
    assert not found.ran


async def test_a_working_folder_that_is_not_there_says_so(node: Node):
    found = await node.run(order(containers=[container("true", working_folder="missing")]))
    assert found.code == "start-failed"
    assert "cannot enter the working folder" in found.reason


async def test_a_task_without_a_command_is_refused(node: Node):
    with pytest.raises(MooringError, match="needs a command"):
        await node.runtime.start(order())


async def test_a_task_works_in_its_own_folder_with_a_clean_environment(node: Node, monkeypatch):
    monkeypatch.setenv("AGENT_SECRET", "hidden")
    script = "pwd; echo $HOME; touch $TMPDIR/x; env"
    task = order(containers=[container("sh", "-c", script, environment={"GREETING": "hi"})])
    found = await node.run(task)
    lines = (await node.output(task)).splitlines()
    assert found.exit_code == 0
    assert lines[0] == lines[1]
    assert lines[0].endswith(str(task.task_id))
    assert "GREETING=hi" in lines
    assert f"MOORING_TASK_ID={task.task_id}" in lines
    assert not any("AGENT_SECRET" in line for line in lines)


async def test_stopping_lets_a_process_end_in_order(node: Node):
    task = order("sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    await node.runtime.start(task)
    await said(node, task)
    await node.runtime.stop(task.task_id, 60, "requested")
    found = await node.end(task)
    assert (found.status, found.exit_code) == ("CANCELLED", 0)
    assert (await node.output(task)).endswith("bye\n")


async def test_a_process_that_ignores_the_request_is_killed_after_the_grace(node: Node):
    task = order("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    await node.runtime.start(task)
    await said(node, task)
    await node.runtime.stop(task.task_id, 60, "requested")
    waiting = await node.look(task)
    assert waiting is not None
    assert waiting.stop_grace_seconds == 60
    await node.runtime.stop(task.task_id, 1, "requested")
    found = await node.end(task)
    assert (found.status, found.exit_code) == ("CANCELLED", 137)
    assert left(task) == []


async def test_a_second_request_may_shorten_the_grace(node: Node):
    task = order("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    await node.runtime.stop(task.task_id, 1000, "requested")
    await node.runtime.stop(task.task_id, 0, "requested")
    assert (await node.end(task)).status == "CANCELLED"


async def test_a_stop_request_before_the_start_takes_effect(node: Node):
    task = order("sh", "-c", "echo ran; sleep 1000")
    await node.runtime.start(task)
    await node.runtime.stop(task.task_id, 1, "requested")
    found = await node.end(task)
    assert found.status == "CANCELLED"


async def test_a_stop_with_the_agent_differs_from_a_requested_stop(node: Node):
    task = order(*FOREVER)
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    await node.runtime.stop(task.task_id, None, "agent-stopped")
    found = await node.end(task)
    assert (found.status, found.code) == ("FAILED", "agent-stopped")


ESCAPE = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        open("escaped", "w").close()
        time.sleep(1000)
    os._exit(0)
while not os.path.exists("escaped"):
    time.sleep(0.01)
print("main ends", flush=True)
if len(sys.argv) > 1:
    time.sleep(1000)
"""


async def test_a_daemonised_grandchild_ends_with_the_main_process(node: Node):
    task = order("python3", "-c", ESCAPE)
    found = await node.run(task)
    assert found.status == "SUCCEEDED"
    assert left(task) == []


async def test_a_daemonised_grandchild_does_not_survive_a_stop(node: Node):
    task = order("python3", "-c", ESCAPE, "stay")
    await node.runtime.start(task)
    await said(node, task)
    assert len(left(task)) >= 2
    await node.runtime.stop(task.task_id, 1, "requested")
    found = await node.end(task)
    assert found.gone
    assert left(task) == []


async def test_a_daemonised_grandchild_is_ended_also_without_cgroups(node: Node):
    node.runtime._processes.cgroups = None
    task = order("python3", "-c", ESCAPE)
    found = await node.run(task)
    assert found.status == "SUCCEEDED"
    assert left(task) == []
    stopped = order("python3", "-c", ESCAPE, "stay")
    await node.runtime.start(stopped)
    await said(node, stopped)
    await node.runtime.stop(stopped.task_id, 0, "requested")
    await node.end(stopped)
    assert left(stopped) == []


async def test_a_failing_command_is_started_again_as_the_policy_says(node: Node):
    task = order(
        "sh", "-c", "echo try; test -e second && exit 0; touch second; exit 1", restart="on-failure", max_restarts=3
    )
    found = await node.run(task)
    assert (found.status, found.restarts) == ("SUCCEEDED", 1)
    assert await node.output(task) == "try\ntry\n"


async def test_restarts_have_an_end(node: Node):
    found = await node.run(order("sh", "-c", "exit 4", restart="on-failure", max_restarts=1))
    assert (found.status, found.restarts, found.exit_code) == ("FAILED", 1, 4)
    assert found.reason == "exited with code 4 after 1 restart"


async def test_success_is_started_again_only_by_always(node: Node):
    assert (await node.run(order("true", restart="on-failure", max_restarts=1))).restarts == 0
    assert (await node.run(order("true", restart="always", max_restarts=1))).restarts == 1


async def test_a_task_that_waits_for_a_restart_is_not_ready_and_can_be_stopped(node: Node):
    task = order("sh", "-c", "exit 1", restart="always", max_restarts=100)
    await node.runtime.start(task)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (await node.until(task, "RUNNING")).ready:
            await node.changed.wait()
    await node.runtime.stop(task.task_id, 5, "requested")
    assert (await node.end(task)).status == "CANCELLED"


async def test_a_task_that_waits_for_a_restart_reports_its_last_exit_and_the_time_of_the_restart(node: Node):
    task = order("sh", "-c", "exit 3", restart="always", max_restarts=100)
    began = time.time()
    await node.runtime.start(task)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (found := await node.until(task, "RUNNING")).ready:
            await node.changed.wait()
    assert found.last_exit is not None
    assert (found.last_exit.code, found.last_exit.reason, found.last_exit.exit_code) == (
        "exited",
        "exited with code 3",
        3,
    )
    assert found.last_exit.retry_at is not None
    assert found.last_exit.retry_at > began
    assert found.crashes >= 1
    await node.runtime.stop(task.task_id, 5, "requested")
    await node.end(task)


async def test_a_task_ends_when_all_its_containers_have_ended(node: Node):
    both = [container("echo", "a", name="first"), container("echo", "b", name="second")]
    task = order(containers=both)
    found = await node.run(task)
    assert found.status == "SUCCEEDED"
    assert await node.output(task, "first") == "a\n"
    assert await node.output(task, "second") == "b\n"


@pytest.mark.parametrize("with_cgroups", [True, False])
async def test_the_first_container_that_fails_ends_the_others(node: Node, with_cgroups):
    if not with_cgroups:
        node.runtime._processes.cgroups = None
    task = order(containers=[container(*FOREVER, name="web"), container("sh", "-c", "exit 5", name="work")])
    found = await node.run(task)
    assert (found.status, found.exit_code) == ("FAILED", 5)
    assert found.reason == "container 'work': exited with code 5"
    assert left(task) == []


async def test_starting_twice_starts_once(node: Node):
    task = order("sh", "-c", "echo started; sleep 0.3")
    await node.runtime.start(task)
    await node.runtime.start(task)
    await node.end(task)
    await node.runtime.start(task)
    assert await node.output(task) == "started\n"


async def test_a_supervisor_that_was_killed_leaves_nothing_behind(node: Node):
    task = order("python3", "-c", ESCAPE, "stay")
    await node.runtime.start(task)
    await said(node, task)
    os.kill(node.state(task)["pid"], signal.SIGKILL)
    found = await node.end(task)
    assert (found.status, found.code) == ("FAILED", "supervisor-died")
    assert left(task) == []


async def test_a_killed_supervisor_leaves_nothing_behind_also_without_cgroups(node: Node):
    node.runtime._processes.cgroups = None
    task = order("python3", "-c", ESCAPE, "stay")
    await node.runtime.start(task)
    await said(node, task)
    os.kill(node.state(task)["pid"], signal.SIGKILL)
    assert (await node.end(task)).code == "supervisor-died"
    assert left(task) == []


async def test_a_task_that_was_running_before_a_reboot_has_failed(node: Node):
    task = order(*FOREVER)
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    await node.runtime.close()
    after = Node(node.root, node.node_id)
    after.runtime._processes.boot_id = str(uuid4())
    await after.runtime.open()
    found = await after.look(task)
    assert found is not None
    assert (found.status, found.code, found.gone) == ("FAILED", "node-rebooted", True)
    await after.runtime.close()
    (node.folder(task) / record.EXIT).unlink()
    await node.runtime.open()


async def test_a_process_that_got_the_number_of_a_supervisor_is_not_taken_for_it(node: Node):
    task = order(*FOREVER)
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    state = node.state(task)
    stranger = begin("sleep", "1000")
    try:
        after = Node(node.root, node.node_id)
        # The supervisor's record now names a living process that began at another time.
        record.write(str(node.folder(task) / record.STATE), {**state, "pid": stranger.pid})
        await after.runtime.open()
        found = await after.end(task)
        assert found.code == "supervisor-died"
        assert stranger.poll() is None
        await after.runtime.close()
    finally:
        stranger.kill()
        stranger.wait()


def begin(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.PIPE)


HOST = """
import asyncio, sys
from pathlib import Path
from uuid import UUID
import msgspec
from mooring.agent.options import Options
from mooring.agent.runtimes.process.runtime import ProcessRuntime
from mooring.agent.runtimes.contract import RuntimeContext
from mooring.wire.agents.desired_tasks import DesiredTask

async def main() -> None:
    root, node_id, task = Path(sys.argv[1]), UUID(sys.argv[2]), msgspec.json.decode(sys.argv[3], type=DesiredTask)
    runtime = ProcessRuntime(RuntimeContext(root, node_id, Options(), lambda: None))
    await runtime.open()
    await runtime.start(task)
    print("started", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_a_task_outlives_a_killed_agent_and_is_found_again_without_a_second_start(node_folder: Path):
    node_id = uuid4()
    task = order("sh", "-c", "echo started; while [ ! -e go ]; do sleep 0.05; done; exit 6")
    with begin(sys.executable, "-c", HOST, str(node_folder), str(node_id), msgspec.json.encode(task).decode()) as agent:
        assert agent.stdout is not None
        lines = iter(agent.stdout.readline, b"")
        assert await asyncio.to_thread(lambda: b"started\n" in lines)
        # Killed at once, whether or not the supervisor has written anything yet.
        agent.kill()
    after = Node(node_folder, node_id)
    await after.runtime.open()
    await after.until(task, "RUNNING")
    await after.runtime.start(task)
    work = Path(after.runtime._processes.known[task.task_id].spec.work_folder)  # type: ignore[union-attr]
    (work / "go").touch()
    found = await after.end(task)
    assert (found.status, found.exit_code) == ("FAILED", 6)
    assert await after.output(task) == "started\n"
    await after.runtime.close()


async def test_an_end_that_came_while_no_agent_ran_is_found(node: Node):
    task = order("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 9")
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    await node.runtime.close()
    (node.root / "work" / str(task.task_id) / "go").touch()
    await eventually((node.folder(task) / record.EXIT).exists)
    after = Node(node.root, node.node_id)
    await after.runtime.open()
    found = await after.look(task)
    assert found is not None
    assert found.exit_code == 9
    await after.runtime.close()
    await node.runtime.open()


async def test_an_acknowledged_end_stays_acknowledged_for_the_next_agent(node: Node):
    task = order("true")
    await node.run(task)
    await node.runtime.acknowledge(task.task_id)
    after = Node(node.root, node.node_id)
    await after.runtime.open()
    assert await after.runtime.observe(set()) == {}
    found = await after.look(task)
    assert found is not None
    assert found.acknowledged
    await after.runtime.close()


async def test_tidying_removes_acknowledged_ends_only(node_folder: Path):
    node = Node(node_folder, keep_bytes=0)
    await node.runtime.open()
    known, unknown, listed, running = order("true"), order("true"), order("true"), order(*FOREVER)
    for task in (known, unknown, listed):
        await node.run(task)
    await node.runtime.start(running)
    await node.until(running, "RUNNING")
    for task in (known, listed):
        await node.runtime.acknowledge(task.task_id)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while node.folder(known).exists():
            await node.look(running)
            await node.runtime.tidy({listed.task_id})
    assert not (node_folder / "work" / str(known.task_id)).exists()
    assert all(node.folder(task).exists() for task in (unknown, listed, running))
    with pytest.raises(NotFound):
        await node.output(known)
    await node.runtime.stop(running.task_id, 0, "requested")
    await node.end(running)
    await node.runtime.close()


async def test_a_start_that_a_crash_cut_short_is_tidied_away_or_tried_again(node: Node):
    task, forgotten = order("echo", "now"), order("true")
    for cut_short in (task, forgotten):
        node.folder(cut_short).mkdir()
    assert await node.look(task) is None
    assert (await node.run(task)).status == "SUCCEEDED"
    await node.runtime.tidy(set())
    assert not node.folder(forgotten).exists()
    assert node.folder(task).exists()


async def test_many_tasks_at_once_all_end(node: Node):
    tasks = [order("sh", "-c", f"exit {number % 3}") for number in range(12)]
    for task in tasks:
        await node.runtime.start(task)
    codes = [(await node.end(task)).exit_code for task in tasks]
    assert codes == [number % 3 for number in range(12)]


async def test_a_supervisor_whose_folder_was_removed_ends_with_its_task(node_folder: Path):
    node = Node(node_folder)
    await node.runtime.open()
    task = order("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done")
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    supervisor = node.state(task)["pid"]
    work = Path(node.runtime._processes.known[task.task_id].spec.work_folder)  # type: ignore[union-attr]
    shutil.rmtree(node.folder(task))
    (work / "go").touch()
    await eventually(lambda: record.start_time(supervisor) is None, "its end")
    await node.runtime.close()
