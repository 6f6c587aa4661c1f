"""Restrictions of tenants' tasks on a node whose agent runs as root."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from mooring.agent.runtimes.process.identity import IdentityRefused
from tests.agent.builders import container, eventually, order, owner
from tests.agent.conftest import Node, needs_root

pytestmark = needs_root


async def output_of(node: Node, *command: str, project: int = 7) -> str:
    task = order(*command, owner=owner(project))
    await node.run(task)
    return await node.output(task)


async def test_a_task_runs_as_its_projects_own_user(node: Node):
    assert (await output_of(node, "sh", "-c", "id -u; id -g; id -G", project=41)).split() == ["200041"] * 3


async def test_a_task_has_no_privileges_and_can_gain_none(node: Node):
    status = dict(
        line.split(":\t") for line in (await output_of(node, "cat", "/proc/self/status")).splitlines() if ":\t" in line
    )
    assert status["NoNewPrivs"] == "1"
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0


async def test_a_task_inherits_no_open_file(node: Node):
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        # 3 is the folder that the listing itself has open
        assert (await output_of(node, "ls", "/proc/self/fd")).split() == ["0", "1", "2", "3"]
    finally:
        os.close(reader)
        os.close(writer)


async def test_a_task_mapped_to_root_is_refused(node: Node):
    task = order("id", owner=owner(os_user="root"))
    with pytest.raises(IdentityRefused):
        await node.runtime.start(task)
    assert not node.folder(task).exists()


async def test_a_task_mapped_to_an_account_runs_as_it(node: Node):
    task = order("id", "-un", owner=owner(os_user="nobody"))
    await node.run(task)
    assert await node.output(task) == "nobody\n"


async def test_a_task_cannot_become_root_through_a_set_user_program(node: Node):
    task = order("su", "-c", "id -u", "root")
    found = await node.run(task)
    assert found.exit_code != 0
    assert "0\n" not in await node.output(task)


async def test_a_task_reads_neither_the_agents_files_nor_another_tenants(node: Node):
    secret = node.root / "credential.json"
    secret.write_text("the credential")
    secret.chmod(0o600)
    victim = order(
        owner=owner(1),
        containers=[
            container("sh", "-c", "echo private > note; echo up; sleep 1000", environment={"PASSWORD": "pearl"})
        ],
    )
    await node.runtime.start(victim)
    log = node.folder(victim) / "output-0.log"
    await eventually(lambda: log.exists() and log.read_bytes() == b"up\n")
    pid = node.state(victim)["processes"][0]["pid"]
    work = node.root / "work" / str(victim.task_id)
    assert (work / "note").read_text() == "private\n"
    environ = Path("/proc", str(pid), "environ")
    assert b"PASSWORD=pearl" in await asyncio.to_thread(environ.read_bytes)
    for target in (
        secret,
        log,
        node.folder(victim) / "spec.json",
        work / "note",
        environ,
        f"/proc/{node.state(victim)['pid']}/environ",
        f"/proc/{os.getpid()}/environ",
    ):
        thief = order("cat", str(target), owner=owner(2))
        found = await node.run(thief)
        assert found.exit_code == 1, target
        # In the namespaces of its own most of these do not even exist.
        assert re.search("denied|No such file", await node.output(thief))
    for folder in (node.root, node.root / "work", node.root / "tasks", work):
        assert (await node.run(order("ls", str(folder), owner=owner(2)))).exit_code != 0
    assert (await node.run(order("kill", "-0", str(pid), owner=owner(2)))).exit_code != 0


async def test_a_task_cannot_leave_its_cgroup(node: Node):
    cgroups = node.runtime._processes.cgroups
    if cgroups is None:
        pytest.skip("this machine offers no cgroup v2 hierarchy")
    task = order("sh", "-c", f"cat /proc/self/cgroup; echo $$ > {cgroups.base.parent}/cgroup.procs")
    found = await node.run(task)
    assert found.exit_code != 0
    assert str(task.task_id) in await node.output(task)


GREEDY = "data = bytearray(400 * 1024 * 1024); print('got it')"


async def test_a_task_gets_no_more_memory_than_it_asked_for(node: Node):
    slots = {"memory": 100 * 1024 * 1024}
    task = order(containers=[container("python3", "-c", GREEDY, slots=slots)])
    found = await node.run(task)
    assert found.status == "FAILED"
    assert "got it" not in await node.output(task)
    roomy = order(containers=[container("python3", "-c", GREEDY, slots={"memory": 1024**3})])
    assert (await node.run(roomy)).status == "SUCCEEDED"


async def test_the_number_of_processes_of_a_task_is_limited(node_folder: Path):
    node = Node(node_folder, max_processes=20)
    await node.runtime.open()
    task = order("sh", "-c", "for i in $(seq 60); do sleep 1000 & done; echo all", owner=owner(99))
    found = await node.run(task)
    assert found.status == "FAILED"
    assert "all" not in (await node.output(task)).split()
    await node.runtime.close()


async def test_work_folders_move_where_tenants_can_reach_them(node_folder: Path):
    closed = node_folder / "home" / "agent"
    closed.parent.mkdir(mode=0o700)
    shared = node_folder / "shared"
    node = Node(closed, shared_work_root=shared)
    await node.runtime.open()
    task = order("pwd")
    assert (await node.run(task)).status == "SUCCEEDED"
    assert await node.output(task) == f"{shared / str(node.node_id) / str(task.task_id)}\n"
    await node.runtime.close()
