"""Containers in every state, while agents are killed and the engine restarts: all of them continue."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mooring.agent.runtimes.container.specification import name_of
from mooring.client import Client
from mooring.client.applying import Result
from mooring.wire.cluster.nodes import NodeView
from mooring.wire.cluster.pools import PoolRequest
from mooring.wire.workloads.tasks import TaskView
from mooring.wire.workloads.volumes import NewVolumeRequest
from tests.engine import BUSYBOX, Engine
from tests.system.conftest import Servers
from tests.system.containers.conftest import person, write
from tests.system.containers.site import at_revision, forwarding, listed, page, replicas, site
from tests.system.servers import Cli, eventually, everything_in

SERVING = """
until grep -q beside /shared/order; do :; done
cat /shared/order /run/secrets/key
mkdir /tmp/www
echo $REVISION > /tmp/www/index.html
[ $REVISION = 2 ] || touch /tmp/www/up
httpd -p 127.0.0.1:8080 -h /tmp/www
trap 'exit 0' TERM
"""
SITE = site(
    SERVING,
    drain_seconds=1,
    server="""
    secrets: {key: token}
    mounts: [{volume: shared, path: /shared, read_only: true}]
    readiness: {path: /up, port: 8080, interval_seconds: 1}
    liveness: {port: 8080, interval_seconds: 1, failures: 60}
""",
    rest=f"""
  - name: helper
    image: {BUSYBOX}
    pull: never
    command: [sleep, "1000"]
    readiness: {{command: ["true"], interval_seconds: 5, timeout_seconds: 5}}
init_containers:
  - name: prepare
    image: {BUSYBOX}
    pull: never
    command: [sh, -c, "echo prepared >> /shared/order"]
    mounts: [{{volume: shared, path: /shared}}]
  - name: beside
    sidecar: true
    image: {BUSYBOX}
    pull: never
    command: [sh, -c, "echo beside >> /shared/order; exec sleep 1000"]
    mounts: [{{volume: shared, path: /shared}}]
volumes:
  - name: shared
stop_grace_seconds: 1
""",
)
SESSION = f"""
kind: session
name: %s
stop_grace_seconds: 0
containers:
  - image: {BUSYBOX}
    pull: never
    command: [sh, -c, "%s"]
    resources: {{cpu: 100m}}
"""
TRAIN = SESSION % ("train", "echo $MOORING_PEERS; exec sleep 1000") + "replicas: 2\ngang: true\nmax_per_node: 1\n"
DATA = "    mounts: [{volume: data, path: /data}]\nvolumes: [{name: data, kind: named}]\n"
ONCE = SESSION % ("once", "echo started >> /data/starts; until [ -e /data/go ]; do sleep 0.1; done; exit 5") + DATA
COMMAND = ["sleep", f"{os.getpid()}000"]
DOOMED = SESSION % ("doomed", "exec sleep 1000")
# Both have to be on the node that has the volume.
LATE = SESSION % ("late", "cat /data/starts; exec sleep 1000") + DATA + "replicas: 2\n"


@pytest.mark.slow
def test_containers_survive_kills_and_restarts_of_every_part_and_start_only_once(
    servers: Servers, engine: Engine, tmp_path: Path
) -> None:
    # However long they are away.
    server = servers.start("--no-agent", environment={"MOORING_NODE_TIMEOUT_SECONDS": "600"})
    mooring = person(servers, server)
    with server.client() as client, foreign(engine) as strangers:
        client.create_pool(PoolRequest(name="boxes", runtimes=["container"]))
        agents = [servers.node(server, name, "--engine", engine.socket, pool="boxes") for name in ("one", "two")]
        client.put_secret("default", "token", b"sesame\n")
        client.create_volume(NewVolumeRequest(name="data", size="1Mi"))
        for text in (TRAIN, ONCE, DOOMED, SITE):
            assert write(client, tmp_path, text) is Result.CREATED
        eventually(lambda: all(client.workload(name).status == "RUNNING" for name in ("train", "once", "doomed")))
        eventually(lambda: len(listed(client)) == 2)
        # The new revision is not ready until the test says so: the update stays half-way.
        assert write(client, tmp_path, at_revision(SITE, 2)) is Result.UPDATED
        eventually(lambda: [task.status for task in replicas(client, 2)] == ["RUNNING"])
        before = running_containers(engine)
        with forwarding(mooring) as address:
            assert page(address) == "1"

            with inside(mooring):
                for agent in agents:
                    agent.kill()
            (starts,) = servers.folder.glob("*/agent/volumes/*/*/starts")
            engine.stop()
            starts.with_name("go").touch()
            client.remove("doomed")
            engine.start()
            once, doomed = (containers(client, name) for name in ("once", "doomed"))
            eventually(lambda: engine.run("inspect", "--format", "{{.State.Status}}", *once) == "exited\n")
            for agent in agents:
                agent.launch()
            eventually(lambda: client.workload("once").ended_at and client.workload("doomed").ended_at)
            [task] = client.workload("once").tasks
            assert (task.status, task.exit_code, task.attempt) == ("FAILED", 5, 1)
            assert starts.read_text() == "started\n"
            gone = {name: found for name, found in before.items() if name in {*once, *doomed}}
            eventually(lambda: not gone.keys() & engine.containers())
            assert before.items() - gone.items() == running_containers(engine).items()
            assert page(address) == "1"
            eventually(lambda: not commands_left())

            with inside(mooring):
                engine.stop(signal.SIGKILL)
            assert write(client, tmp_path, LATE) is Result.CREATED
            engine.start()
            assert client.wait("late", "running", timeout_seconds=60).status == "RUNNING"
            late = running_containers(engine)
            eventually(lambda: not commands_left())
            assert late.keys() - before.keys() == containers(client, "late")
            assert before.items() - gone.items() == {each for each in late.items() if each[0] in before}
            assert page(address) == "1"

            for task in (*replicas(client, 1), *replicas(client, 2)):
                assert output(client, "site", task) == "prepared\nbeside\nsesame\n"
            for task in client.workload("train").tasks:
                assert output(client, "train", task) == "main,sub1\n"
            found = client.workload("late").tasks
            eventually(lambda: [output(client, "late", task) for task in found] == ["started\n"] * 2)
            tasks = [task for name in ("site", "train", "late") for task in client.workload(name).tasks]
            assert {(task.attempt, task.restarts, task.ended_at) for task in tasks} == {(1, 0, None)}

            finish_update(client, engine)
            assert page(address) == "2"

        ids = [each.split()[0] for each in running_containers(engine).values()]
        for name in ("train", "late", "site"):
            client.remove(name)
        eventually(lambda: engine.containers() == strangers.keys())
        assert running_containers(engine) == strangers
        eventually(lambda: "mooring" not in engine.run("network", "ls"))
        for node in client.nodes().nodes:
            eventually(lambda node=node: not secrets_of(node))  # type: ignore[misc]
        for agent in agents:
            eventually(lambda agent=agent: "scratch" not in {each.name for each in everything_in(agent.data)})  # type: ignore[misc]
        foreigners = {each.split()[0] for each in strangers.values()}
        eventually(lambda: {each for each in ids if each in cgroups()} == foreigners)
        eventually(lambda: not client.volume("data").mounted_by)
        client.remove_volume("data")
        eventually(lambda: not client.volumes())


@contextlib.contextmanager
def foreign(engine: Engine) -> Iterator[dict[str, str]]:
    """Foreign containers: one without labels, one of another node."""
    for label in (), ("--label", "io.mooring.node=another"):
        engine.run("run", "--detach", *label, BUSYBOX, "sleep", "1000")
    found = running_containers(engine)
    try:
        yield found
    finally:
        engine.remove(*found)


def running_containers(engine: Engine) -> dict[str, str]:
    """Every container by its name: its id, its first process and when that was started."""
    received = "{{.Name}} {{.Id}} {{.State.Pid}} {{.State.StartedAt}}"
    names = engine.containers()
    lines = engine.run("inspect", "--format", received, *names) if names else ""
    return dict(line.removeprefix("/").split(" ", 1) for line in lines.splitlines())


def containers(client: Client, workload: str) -> set[str]:
    """The names that those of a session have in the engine."""
    return {name_of(task.id, "main") for task in client.workload(workload).tasks}


def output(client: Client, workload: str, task: TaskView) -> str:
    return b"".join(client.logs(workload, task=task.index)).decode()


@contextlib.contextmanager
def inside(mooring: Cli) -> Iterator[None]:
    """Runs a command in a container, which must not end within the block."""
    with mooring.begin("exec", "site", "--", "sh", "-c", f"echo in; exec {' '.join(COMMAND)}") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        yield
        assert process.wait(60) != 0


def commands_left() -> list[int]:
    """The processes of those commands, in whichever container they are."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline() == COMMAND:
                found.append(process.pid)
    return found


def secrets_of(node: NodeView) -> list[Path]:
    """Return the files in memory of a node's tasks."""
    return [file for memory in ("/run", "/dev/shm") for file in Path(memory).glob(f"mooring-{node.id}/*")]


def cgroups() -> str:
    return " ".join(each.name for each in everything_in(Path("/sys/fs/cgroup")))


def finish_update(client: Client, engine: Engine) -> None:
    """Tell the tasks of the new revision one after the other that they are ready."""
    received = set()

    def done() -> bool:
        for task in replicas(client, 2):
            if task.status == "RUNNING" and task.id not in received:
                received.add(task.id)
                engine.run("exec", name_of(task.id, "server"), "touch", "/tmp/www/up")
        rollout = client.workload("site").rollout
        return rollout is not None and rollout.phase == "done"

    eventually(done)
    assert len(received) == 2
    eventually(lambda: listed(client) == received)
