"""Tasks of real containers: what they get, how they end, and what survives agents and engines that do not."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from mooring.agent.node import host_ports
from mooring.agent.node.host_ports import PortInUse
from mooring.agent.runtimes.container.engine import Engine as ContainerEngine
from mooring.agent.runtimes.container.engine import EngineRefused, ListedContainer
from mooring.agent.runtimes.container.specification import name_of
from mooring.wire.agents.desired_tasks import (
    DesiredTask,
    EndWarning,
    MountSpec,
    Owner,
    ProbeSpec,
    Secret,
    VolumeSpec,
)
from tests.agent import builders
from tests.agent.runtimes.container.conftest import Node, container, order
from tests.engine import BUSYBOX, Engine
from tests.servers import free_port

MIB = 1024 * 1024


def names(task: DesiredTask) -> set[str]:
    every = (*task.init_containers, *task.containers)
    return {name_of(task.task_id, each.name) for each in every}


_NAMESPACES_OF_NODE = {str(Path(f"/proc/self/ns/{each}").readlink()) for each in ("net", "pid", "ipc")}
_STATUS_OF_NODE = Path("/proc/self/status").read_text()
_LOOK_AROUND = """
until grep -q beside /shared/order; do :; done
cat /shared/order /run/secrets/key /proc/1/oom_score_adj
grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status
cd /sys/fs/cgroup
if [ -d memory ]; then cat memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us pids/pids.max
else cat memory.max; cut -d' ' -f1 cpu.max; cat pids.max; fi
df -k /dev/shm | awk 'NR == 2 { print $2 }'
touch /forbidden 2>&1
echo $OLDPWD $GREETING $MOORING_INDEX $CUDA_VISIBLE_DEVICES $MOORING_TASK_ID
for each in net pid ipc; do readlink /proc/self/ns/$each; done
exit 3
"""


async def test_a_task_is_limited_to_its_allocation(node: Node):
    shares = [MountSpec(volume="shared", path="/shared")]
    beside = "echo beside >> /shared/order; trap 'exit 0' TERM; while :; do sleep 0.1; done"
    task = order(
        init_containers=[
            container("sh", "-c", "echo prepared > /shared/order", name="prepare", mounts=shares),
            container("sh", "-c", beside, name="beside", mounts=shares, sidecar=True),
        ],
        containers=[
            container(
                *("sh", "-c", _LOOK_AROUND),
                mounts=shares,
                secrets={"key": "token"},
                user="1000:1000",
                read_only=True,
                working_folder="/tmp",
                shared_memory=16 * MIB,
                environment={"GREETING": "hello", "MOORING_TASK_ID": "forged"},
                slots={"cpu": 500, "memory": 64 * MIB},
            )
        ],
        secrets=[Secret(name="token", value=b"sesame\n")],
        volumes=[VolumeSpec(name="shared")],
        devices={"gpu": [(2, 1000)]},
        quality="BestEffort",
    )
    found = await node.run(task)
    assert (found.status, found.exit_code, found.code, found.ran) == ("FAILED", 3, "exited", True)
    assert found.reason == "container 'main': exited with code 3"
    assert found.digests["main"]
    *said, network, processes, memory = (await node.output(task)).splitlines()
    assert not {network, processes, memory} & _NAMESPACES_OF_NODE
    assert said == [
        *("prepared", "beside", "sesame", "1000"),
        *("CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"),
        *(str(64 * MIB), "50000", "2048"),
        str(16 * 1024),
        "touch: /forbidden: Read-only file system",
        f"/tmp hello 0 2 {task.task_id}",
    ]
    assert not names(task) & node.engine.containers()
    assert not orphans(node, task)


async def test_a_privileged_container_has_all_capabilities_of_the_node(node: Node):
    task = order(containers=[container("grep", "CapEff", "/proc/self/status", privileged=True)])
    assert (await node.run(task)).status == "SUCCEEDED"
    assert await node.output(task) in _STATUS_OF_NODE


def orphans(node: Node, task: DesiredTask) -> list[Path]:
    """Return the remaining secrets and scratch volumes of the task."""
    folder = node.root / "containers" / str(task.task_id)
    assert "sesame" not in (folder / "task.json").read_text()
    memory = [path for root in ("/run", "/dev/shm") for path in Path(root).glob(f"mooring-{node.node_id}/*")]
    return [*memory, *folder.glob("scratch")]


async def test_a_task_that_ignores_the_signal_is_killed_after_the_grace_period(node: Node):
    deaf = order("sh", "-c", "trap 'echo ignored' TERM; echo up; while :; do sleep 0.1; done", grace_seconds=60)
    await node.runtime.start(deaf)
    await node.until(deaf, "RUNNING")
    await eventually_said(node, deaf, "up")
    await node.runtime.warn(deaf.task_id, EndWarning(at=0.0, signal="TERM"))
    await eventually_said(node, deaf, "ignored")
    await node.runtime.stop(deaf.task_id, None, "requested")
    await eventually_said(node, deaf, "ignored\nignored")
    await node.runtime.stop(deaf.task_id, 1, "requested")
    found = await node.end(deaf)
    assert (found.status, found.code, found.exit_code) == ("CANCELLED", "stopped", 137)
    assert (await node.output(deaf)).count("ignored") == 2


async def test_a_paused_container_ends_like_any_other(node: Node):
    waits = "trap 'exit 7' TERM; echo up; while :; do sleep 0.1; done"
    tasks = [order("sh", "-c", waits, grace_seconds=grace) for grace in (60, 0)]
    for task in tasks:
        await node.runtime.start(task)
        await eventually_said(node, task, "up")
        node.engine.run("pause", *names(task))
        await node.runtime.stop(task.task_id, None, "requested")
    assert [(await node.end(task)).exit_code for task in tasks] == [7, 137]


async def test_the_stop_signal_of_the_image_is_used(node: Node):
    image = node.engine.build("localhost/gentle:1", "STOPSIGNAL SIGQUIT")
    waits = "trap 'exit 3' QUIT; trap 'exit 4' TERM; echo up; while :; do sleep 0.1; done"
    gentle = order(containers=[container("sh", "-c", waits, image=image)], grace_seconds=60)
    await node.runtime.start(gentle)
    await eventually_said(node, gentle, "up")
    await node.runtime.stop(gentle.task_id, None, "requested")
    assert (await node.end(gentle)).exit_code == 3


@pytest.mark.slow
async def test_an_oom_kill_differs_from_a_crash(node: Node):
    waiting = "until [ -e /tmp/go ]; do sleep 0.1; done; x=0123456789abcdef; while :; do x=$x$x; done"
    tasks = [order(containers=[container("sh", "-c", waiting, slots={"memory": 16 * MIB})]) for _ in range(4)]
    for task in tasks:
        await node.runtime.start(task)
        await node.until(task, "RUNNING")

    def starve(task: DesiredTask) -> None:
        node.engine.run("exec", *names(task), "touch", "/tmp/go")

    def end_alone(starving: DesiredTask, killed: DesiredTask) -> None:
        starve(starving)
        node.engine.run("kill", *names(killed))
        node.engine.run("wait", *names(starving), *names(killed))

    started, adopted, alone, killed = tasks
    starve(started)
    await node.end(started)
    await node.next_agent()
    starve(adopted)
    await node.end(adopted)
    await node.next_agent(lambda: end_alone(alone, killed))
    ends = [await node.end(task) for task in tasks]
    assert [(found.status, found.exit_code) for found in ends] == [("FAILED", 137)] * 4
    assert [found.code for found in ends] == ["out-of-memory"] * 3 + ["killed"]
    crashed = container("sh", "-c", "kill -9 $$; sleep 1; exit 137", slots={"memory": 16 * MIB})
    found = await node.run(order(containers=[crashed], restart="on-failure", max_restarts=1))
    assert (found.status, found.code, found.restarts) == ("FAILED", "killed", 1)


async def test_the_next_agent_resumes_running_tasks_and_starts_nothing_twice(node: Node):
    another = ("--name", "foreign", "--label", "io.mooring.node=another")
    node.engine.run("run", "--detach", *another, BUSYBOX, "sleep", "1000")
    task = order("sh", "-c", "echo started; while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 5", grace_seconds=0)
    ended = order("sh", "-c", "exit 4")
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    await node.run(ended)
    await node.next_agent()
    assert (await node.until(task, "RUNNING")).ran
    await node.runtime.start(task)
    assert (await node.end(ended)).exit_code == 4
    await node.runtime.acknowledge(ended.task_id)
    node.engine.restart()
    await node.next_agent()
    assert ended.task_id not in await node.runtime.observe(set())
    node.engine.run("exec", *names(task), "touch", "/tmp/go")
    found = await node.end(task)
    assert (found.status, found.exit_code, found.restarts) == ("FAILED", 5, 0)
    assert await node.output(task) == "started\n"
    assert "foreign" in node.engine.containers()
    node.engine.remove("foreign")


async def test_tasks_continue_while_the_engine_is_unavailable(node: Node):
    task = order("sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.1; done")
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    node.engine.stop(signal.SIGKILL)
    await node.runtime.stop(task.task_id, None, "requested")
    assert not (await node.runtime.observe(set()))[task.task_id].ended
    preparing = asyncio.create_task(node.runtime.prepare(order("true")))
    await asyncio.sleep(0.01)
    node.engine.start()
    await preparing
    assert (await node.end(task)).exit_code == 7


async def test_an_engine_that_refuses_to_list_its_containers_once_is_not_left(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []

    async def refuse(_: object, label: str) -> list[ListedContainer]:
        asked.append(label)
        raise EngineRefused("a container was removed while they were listed", 500)

    async with Node(tmp_path, engine, scan_seconds=0.01) as node:
        own = node.runtime._shared.engine
        with monkeypatch.context() as patched:
            patched.setattr(ContainerEngine, "listed", refuse)
            await builders.eventually(lambda: len(asked) > 3)
        assert node.runtime._shared.engine is own


async def test_a_container_without_a_task_is_removed_by_the_next_agent(node: Node):
    task = order("sleep", "1000")
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    (node.root / "containers" / str(task.task_id) / "task.json").unlink()
    await node.next_agent()
    assert not names(task) & node.engine.containers()
    assert not await node.runtime.observe({task.task_id})


async def test_neither_a_flood_of_output_nor_of_processes_harms_the_node(engine: Engine, tmp_path: Path):
    flood = order("sh", "-c", "i=0; while [ $i -lt 30000 ]; do echo line $i; i=$((i+1)); done")
    bomb = order("sh", "-c", "n=0; while [ $n -lt 60 ]; do sleep 600 & n=$((n+1)); done; echo survived")
    async with Node(tmp_path, engine, log_bytes=20_000, max_processes=20) as node:
        await node.runtime.start(bomb)
        assert (await node.run(flood)).status == "SUCCEEDED"
        said = await node.output(flood)
        assert said.endswith("line 29999\n")
        assert len(said) <= 3 * 20_000
        assert (await node.output(flood, tail=2)) == "line 29998\nline 29999\n"
        assert (await node.end(bomb)).status == "FAILED"
        assert "can't fork" in await node.output(bomb)


@pytest.mark.parametrize("terminal", [False, True])
async def test_output_has_the_times_at_which_the_engine_received_it(node: Node, terminal: bool):
    """Live from the engine, and after the end from the saved files. Podman tells its times to the second."""
    long_line = "head -c 40000 /dev/zero | tr '\\0' y; echo"
    script = f"echo one; printf two; sleep 1.5; echo 2; echo '2020-01-01T00:00:00Z x'; {long_line}; sleep 60"
    task = order(containers=[container("sh", "-c", script, terminal=terminal)])
    began = time.time()
    await node.runtime.start(task)
    await eventually_said(node, task, "yyy\r\n" if terminal else "yyy\n")
    live = await node.output(task, timestamps=True)
    late = began_of(live.splitlines()[2])
    live_since = await node.output(task, since=late)
    await node.runtime.stop(task.task_id, 0, "requested")
    await node.end(task)
    saved, plain = await node.output(task, timestamps=True), await node.output(task)
    assert [line.partition(" ")[2] for line in saved.splitlines()] == plain.splitlines()
    assert plain.splitlines()[:3] == ["one", "two2", "2020-01-01T00:00:00Z x"]
    assert len(plain.splitlines()[3]) == 40000
    for text in (live, saved):
        moments = [began_of(line) for line in text.splitlines()[:3]]
        assert began - 1 <= moments[0] <= moments[1] <= moments[2] <= time.time()
        assert moments[2] - moments[0] >= 1
    for text in (live_since, await node.output(task, since=late)):
        assert "one" not in text
        assert text.endswith(plain.partition("two2")[2].lstrip())


def began_of(line: str) -> float:
    return datetime.fromisoformat(line.partition(" ")[0]).timestamp()


@pytest.mark.slow
async def test_readiness_probes_set_ready_and_liveness_probes_kill(node: Node):
    serve = "mkdir /tmp/www; echo yes > /tmp/www/well; httpd -p 8080 -h /tmp/www; sleep 1000"
    quick: dict[str, Any] = {"interval_seconds": 1, "failures": 1, "timeout_seconds": 30}
    asked = container(
        *("sh", "-c", serve),
        readiness=ProbeSpec(path="/well", port=8080, **quick),
        liveness=ProbeSpec(port=8080, **quick, delay_seconds=5),
    )
    beside = container("sleep", "1000", name="beside", readiness=ProbeSpec(command=["test", "-e", "/tmp/up"], **quick))
    task = order(containers=[asked, beside], grace_seconds=0)
    await node.runtime.start(task)
    assert not (await node.until(task, "RUNNING")).ready
    inside = [name_of(task.task_id, each) for each in ("main", "beside")]
    node.engine.run("exec", inside[1], "touch", "/tmp/up")
    await node.until_seen(task, lambda found: found.ready)
    await node.next_agent()
    assert (await node.until(task, "RUNNING")).ready
    node.engine.run("exec", inside[0], "rm", "/tmp/www/well")
    await node.until_seen(task, lambda found: not found.ready)
    node.engine.run("exec", inside[0], "killall", "httpd")
    found = await node.end(task)
    assert (found.status, found.code, found.exit_code) == ("FAILED", "unhealthy", 137)


@pytest.mark.slow
async def test_a_workload_has_a_network_of_its_own(engine: Engine, tmp_path: Path):
    async with Node(tmp_path, engine, container_networks=True) as node:
        serving = "exec nc -ll -p 8080 -e echo found"
        server = order(containers=[container("sh", "-c", serving, ports=[8080])], ports=[free_port()], grace_seconds=0)
        await node.runtime.start(server)
        address = (await node.until(server, "RUNNING")).address
        if address is None:
            pytest.skip("the engine makes no networks on this machine")
        ask = f"until nc -w 5 {address} 8080 </dev/null; do :; done; nc -w 1 169.254.169.254 80 </dev/null"
        peer = order("sh", "-c", f"{ask} || echo no way", workload_id=server.workload_id)
        await node.run(peer)
        assert (await node.output(peer)).splitlines()[0] == "found"
        assert "no way" in await node.output(peer)
        stranger = order("sh", "-c", f"nc -w 1 {address} 8080 </dev/null 2>&1 || echo no way")
        await node.run(stranger)
        assert (await node.output(stranger)).splitlines()[-1] == "no way"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
        assert await reader.readline() == b"found\n"
        writer.close()
        dropped = [int(count) for count in re.findall(rf"{_bridge(server)} -c (\d+) \d+ -j DROP", _rules("raw"))]
        assert sum(dropped) > 0
    assert _bridge(server) not in _rules("raw") + _rules("filter")
    assert server.workload_id.hex not in engine.run("network", "ls")


async def test_the_ports_of_a_container_are_reserved_while_it_lives_also_by_the_next_agent(node: Node):
    port = free_port()
    task = order("sleep", "1000", ports=[port], grace_seconds=0)
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    for _ in range(2):
        with pytest.raises(PortInUse, match=f"port {port}/TCP .* reserved for a task of another agent"):
            await node.runtime.start(order("true", ports=[port]))
        await node.next_agent()
    await node.runtime.stop(task.task_id, 0, "requested")
    await node.end(task)
    assert ("TCP", port) not in host_ports.reserved_ports()


async def test_a_container_is_not_prepared_or_started_on_a_port_in_use(node: Node):
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        task = order("true", ports=[foreign.getsockname()[1]])
        with pytest.raises(PortInUse):
            await node.runtime.prepare(task)
        with pytest.raises(PortInUse):
            await node.runtime.start(task)
    assert (await node.run(task)).status == "SUCCEEDED"


def _bridge(task: DesiredTask) -> str:
    return f"moor{task.workload_id.hex[-11:]}"


def _rules(table: str) -> str:
    command = ["iptables", "--wait", "--table", table, "--list-rules", "--verbose"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


async def test_a_host_folder_behind_a_link_is_not_mounted(node: Node):
    folder = node.root.parent / f"{node.root.name}-data"
    folder.mkdir()
    (folder / "link").symlink_to("/etc")
    folder.chmod(0o777)

    def using(path: Path) -> DesiredTask:
        mounts = [MountSpec(volume="data", path="/data")]
        volumes = [VolumeSpec(name="data", kind="host", path=str(path))]
        return order(containers=[container("touch", "/data/made", mounts=mounts)], volumes=volumes)

    assert (await node.run(using(folder))).status == "SUCCEEDED"
    assert (folder / "made").exists()
    assert (await node.run(using(folder / "link"))).code == "host-path-refused"
    assert (await node.run(using(folder / "nothing"))).code == "volume-missing"
    assert (await node.run(using(node.root))).code == "volume-refused"
    assert (await node.run(using(node.engine.folder))).code == "volume-refused"


async def test_files_in_a_volume_are_there_for_later_tasks_of_the_same_project_only(node: Node):
    volume = VolumeSpec(name="data", kind="named", volume_id=uuid4())
    disk = node.root.parent / f"{node.root.name}-disk"
    disk.mkdir()
    shared = VolumeSpec(name="all", kind="shared", volume_id=uuid4(), path=str(disk))
    mounts = [MountSpec(volume="data", path="/data"), MountSpec(volume="all", path="/all")]

    def doing(script: str, owner: Owner, *, read_only: bool = False) -> DesiredTask:
        mounted = [msgspec.structs.replace(mount, read_only=read_only) for mount in mounts]
        asked = container("sh", "-c", script, mounts=mounted, user="1000:1000")
        return order(containers=[asked], volumes=[volume, shared], owner=owner)

    ours, theirs = builders.owner(), builders.owner()
    assert (await node.run(doing("echo hello > /data/file && echo you > /all/file", ours))).status == "SUCCEEDED"
    reads = doing("cat /data/file /all/file; touch /data/other 2>&1", ours, read_only=True)
    assert (await node.run(reads)).exit_code == 1
    assert await node.output(reads) == "hello\nyou\ntouch: /data/other: Read-only file system\n"
    looks = doing("ls /data /all", theirs)
    assert (await node.run(looks)).status == "SUCCEEDED"
    assert "file" not in await node.output(looks)


async def eventually_said(node: Node, task: DesiredTask, text: str) -> None:
    said = b""
    async for data in node.runtime.logs(task.task_id, "main", None, True):
        said += data
        if text.encode() in said:
            return
    raise AssertionError(f"{text!r} was not said")
