"""Attacks of a process task on other tenants and on the machine, and the isolation that stops them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mooring.agent.access.commands import Command
from mooring.agent.access.port_connections import PortConnection
from mooring.agent.node import limits
from mooring.agent.runtimes.process import isolation
from mooring.wire.agents.agent_protocol import Dial, Exec
from mooring.wire.agents.desired_tasks import DesiredTask
from tests.agent.builders import DEADLINE_SECONDS, container, eventually, order, owner
from tests.agent.conftest import Node, _end_supervisors, needs_root, node, node_folder

__all__ = ["node", "node_folder"]

pytestmark = needs_root
MIB = 1024 * 1024


async def said(node: Node, *command: str, project: int = 7, **fields: object) -> str:
    task = order(*command, owner=owner(project), **fields)
    await node.run(task)
    return await node.output(task)


async def running(node: Node, *command: str, project: int = 1) -> DesiredTask:
    """A task that has printed `up` and keeps running."""
    task = order("sh", "-c", f"{' '.join(command)}; echo up; exec sleep 1000", owner=owner(project))
    await node.runtime.start(task)
    log = node.folder(task) / "output-0.log"
    await eventually(lambda: log.exists() and b"up\n" in log.read_bytes(), "the task's output")
    await node.until(task, "RUNNING")
    return task


async def executed(node: Node, task: DesiredTask, *command: str, terminal: bool = False) -> tuple[str, int | None]:
    """Return the output and exit code of a command in the task."""
    reached = await node.runtime.reach(task.task_id, None, Exec(command=list(command), terminal=terminal))
    assert isinstance(reached, Command)
    output = b""
    while (piece := await reached.read()) is not None:
        output += piece[0]
    code = await reached.exit_code()
    await reached.close()
    return output.decode(), code


def namespace(pid: int, name: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{name}").readlink())


def python(source: str) -> tuple[str, ...]:
    return ("python3", "-c", source)


# --- processes -----------------------------------------------------------------------------------------------------


@pytest.fixture
def careless_server() -> Iterator[None]:
    """A process of root with a password in its command line."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "--database=hunter2"]) as server:
        yield
        server.kill()


@pytest.mark.usefixtures("careless_server")
async def test_a_task_sees_no_process_but_its_own(node: Node) -> None:
    await running(node, "true", project=1)
    lines = (await said(node, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '", project=2)).lower()
    assert "hunter2" not in lines
    assert "sleep 1000" not in lines
    assert "cat /proc" in lines


async def test_a_task_cannot_signal_or_name_processes_of_others(node: Node) -> None:
    # Without a PID namespace the last signal would reach every process of this user on the machine.
    assert node.runtime.isolation.namespaces, node.runtime.isolation.reason
    victim = await running(node, "true", project=7)
    pid = node.state(victim)["processes"][0]["pid"]
    # Even of the same project, hence of the same user.
    assert (await node.run(order("kill", "-9", str(pid), owner=owner(7)))).exit_code != 0
    assert (await node.run(order("kill", "-9", "-1", owner=owner(7)))).gone
    assert psutil.pid_exists(pid)


async def test_the_first_process_reaps_orphans_and_takes_all_others_along(node: Node) -> None:
    # One that has ended and is not reaped stays in /proc.
    counting = "count() { set -- /proc/[0-9]*; echo $#; }; before=$(count)"
    reaped = "while [ $(count) -gt $before ]; do sleep 0.05; done"
    orphans = f"{counting}; for i in 1 2 3 4 5; do (true &) ; done; {reaped}; echo end"
    assert (await said(node, "sh", "-c", orphans)) == "end\n"
    seconds = f"1000.{os.getpid()}"
    daemons = f"for i in 1 2 3; do setsid sleep {seconds} & done; exit 9"
    found = await node.run(order("sh", "-c", daemons))
    assert (found.status, found.exit_code) == ("FAILED", 9)
    assert not [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", seconds]]


@pytest.mark.parametrize("cgroups", [True, False])
async def test_exit_codes_signals_and_restarts_are_reported(node: Node, cgroups: bool) -> None:
    if not cgroups:
        node.runtime._processes.cgroups = None
    assert (await node.run(order("sh", "-c", "exit 42"))).exit_code == 42
    assert (await node.run(order("sh", "-c", "kill -SEGV $$"))).exit_code == 128 + 11
    assert (await node.run(order("no-such-program"))).exit_code == 127
    again = await node.run(order("false", restart="on-failure", max_restarts=1))
    assert (again.exit_code, again.restarts) == (1, 1)
    stubborn = order("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    await node.runtime.start(stubborn)
    await node.until(stubborn, "RUNNING")
    await node.runtime.stop(stubborn.task_id, 0, "requested")
    assert (await node.end(stubborn)).status == "CANCELLED"
    polite = order("sh", "-c", "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done")
    await node.runtime.start(polite)
    log = node.folder(polite) / "output-0.log"
    await eventually(lambda: log.exists() and log.read_bytes() == b"up\n")
    await node.runtime.stop(polite.task_id, 60, "requested")
    assert (await node.end(polite)).exit_code == 3


async def test_a_killed_supervisor_takes_its_task_along(node: Node) -> None:
    task = await running(node, "true")
    state = node.state(task)
    os.kill(state["pid"], 9)
    assert (await node.end(task)).code == "supervisor-died"
    for pid in (state["inits"][0]["pid"], state["processes"][0]["pid"]):
        await eventually(lambda: not psutil.pid_exists(pid), "its end")  # noqa: B023


async def test_a_new_agent_adopts_and_enters_tasks_of_the_one_before(node: Node, node_folder: Path) -> None:
    task = await running(node, "echo mine > /tmp/note")
    await node.runtime.close()
    after = Node(node_folder, node.node_id)
    await after.runtime.open()
    await after.until(task, "RUNNING")
    assert await executed(after, task, "cat", "/tmp/note") == ("mine\n", 0)
    await after.runtime.stop(task.task_id, 0, "requested")
    assert (await after.end(task)).status == "CANCELLED"
    await after.runtime.close()


# --- commands beside a task ----------------------------------------------------------------------------------------


async def test_a_command_in_a_task_is_in_all_its_namespaces(node: Node) -> None:
    task = await running(node, "echo mine > /tmp/note; echo ours > /dev/shm/note")
    listing = "readlink /proc/self/ns/pid /proc/self/ns/mnt /proc/self/ns/ipc /proc/self/ns/uts"
    first = node.state(task)["inits"][0]["pid"]
    inside = {namespace(first, name) for name in ("pid", "mnt", "ipc")}
    output, code = await executed(node, task, "sh", "-c", f"cat /tmp/note /dev/shm/note; {listing}; id -u; exit 5")
    assert output.startswith("mine\nours\n")
    assert inside <= set(output.split())
    assert output.endswith("200001\n")
    assert code == 5
    status = (await executed(node, task, "cat", "/proc/self/status"))[0]
    assert "Seccomp:\t2" in status
    assert "NoNewPrivs:\t1" in status
    assert "CapBnd:\t0000000000000000" in status


async def test_a_terminal_in_a_task_has_job_control(node: Node) -> None:
    task = await running(node, "true")
    output, code = await executed(node, task, "sh", "-c", "tty; test -t 0 && echo terminal; exit 4", terminal=True)
    assert "/dev/pts/" in output
    assert "terminal" in output
    assert code == 4


# --- files and memory ----------------------------------------------------------------------------------------------


@pytest.fixture
def file_of_the_machine() -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(prefix="of-the-machine-", dir="/tmp") as file:
        Path(file.name).chmod(0o644)
        yield Path(file.name)


async def test_temporary_folders_are_private_and_empty(node: Node, file_of_the_machine: Path) -> None:
    name = f"of-a-tenant-{node.node_id}"
    await running(node, f"for d in /tmp /var/tmp /dev/shm; do echo x > $d/{name}; done", project=1)
    found = await said(node, "sh", "-c", "ls -A /tmp /var/tmp /dev/shm", project=1)
    assert file_of_the_machine.name not in found
    assert name not in found
    assert name not in os.listdir("/dev/shm")  # noqa: PTH208


async def test_shared_memory_of_system_v_is_private(node: Node) -> None:
    await running(node, "ipcmk --shmem 4096 --mode 0666")
    assert "0x" not in await said(node, "ipcs", "--shmems", project=2)


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm", "/var/tmp"])
async def test_files_in_memory_stay_within_the_memory_of_the_task(node: Node, folder: str) -> None:
    slots = {"memory": 32 * MIB}
    fill = f"dd if=/dev/zero of={folder}/file bs=1M count=256 status=none"
    found = await node.run(order(containers=[container("sh", "-c", fill, slots=slots)]))
    assert found.status == "FAILED"
    both = "dd if=/dev/zero of=/tmp/a bs=1M count=20 && dd if=/dev/zero of=/dev/shm/b bs=1M count=20"
    assert (await node.run(order(containers=[container("sh", "-c", both, slots=slots)]))).status == "FAILED"
    little = f"dd if=/dev/zero of={folder}/file bs=1M count=4 status=none"
    assert (await node.run(order(containers=[container("sh", "-c", little, slots=slots)]))).status == "SUCCEEDED"


async def test_files_in_memory_are_bounded_for_a_task_without_a_memory_request(node: Node) -> None:
    size = await said(node, "sh", "-c", "df -k /dev/shm | awk 'NR == 2 { print $2 }'")
    assert int(size) * 1024 == limits.TMPFS_DEFAULT_BYTES


async def test_the_sum_of_data_and_files_in_memory_stays_within_the_memory_of_the_task(node: Node) -> None:
    measure = "df -k /tmp | awk 'NR == 2 { print $2 }'; ulimit -d"
    names = ("main", "side")
    task = order(containers=[container("bash", "-c", measure, name=name, slots={"memory": 64 * MIB}) for name in names])
    assert (await node.run(task)).status == "SUCCEEDED"
    found = [(await node.output(task, name)).split() for name in names]
    if limits.enforcement(node.runtime._processes.cgroups, agent_uid=0)["memory"] == "cgroup":
        assert found == [[str(64 * 1024), "unlimited"]] * 2
    else:
        assert sum(int(size) for sizes in found for size in sizes) == 2 * 64 * 1024


async def test_files_in_memory_count_as_memory_that_a_task_uses(node: Node) -> None:
    task = await running(node, "dd if=/dev/zero of=/dev/shm/file bs=1M count=40 status=none")
    used = node.runtime._processes.uses()[task.task_id].memory_bytes
    assert used is not None
    assert 40 * MIB <= used < 60 * MIB


async def test_the_work_folder_is_where_it_was_and_survives_the_task(node: Node) -> None:
    task = order("sh", "-c", "pwd; echo kept > file; echo $TMPDIR; touch $TMPDIR/x")
    assert (await node.run(task)).status == "SUCCEEDED"
    work = node.root / "work" / str(task.task_id)
    assert (await node.output(task)).splitlines() == [str(work), f"{work}/tmp"]
    assert (work / "file").read_text() == "kept\n"


# --- system calls --------------------------------------------------------------------------------------------------

CALLS = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"mount": 165, "umount2": 166, "unshare": 272, "setns": 308, "pivot_root": 155, "bpf": 321, "keyctl": 250,
           "add_key": 248, "perf_event_open": 298, "userfaultfd": 323, "kexec_load": 246, "init_module": 175,
           "finit_module": 313, "reboot": 169, "swapon": 167, "iopl": 172, "process_vm_readv": 310, "fsopen": 430,
           "open_tree": 428, "move_mount": 429, "io_uring_setup": 425, "open_by_handle_at": 304, "pidfd_getfd": 438}
for name, number in numbers.items():
    result = libc.syscall(number, 0, 0, 0, 0, 0, 0)
    print(name, result, errno.errorcode.get(ctypes.get_errno()))
for what, arguments in {"ptrace attach": (101, 16, 1), "ptrace seize": (101, 0x4206, 1)}.items():
    print(what, libc.syscall(*arguments, 0, 0), errno.errorcode.get(ctypes.get_errno()))
for flag in (0x10000000, 0x20000000, 0x00020000):
    print("clone", libc.syscall(56, flag | 17, 0, 0, 0, 0), errno.errorcode.get(ctypes.get_errno()))
print("clone3", libc.syscall(435, 0, 0), errno.errorcode.get(ctypes.get_errno()))
"""
NEEDS_X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of system calls are those of x86-64")


@NEEDS_X86
async def test_system_calls_that_administer_the_machine_are_refused(node: Node) -> None:
    lines = (await said(node, *python(CALLS))).splitlines()
    assert len(lines) == 23 + 2 + 3 + 1
    for line in lines:
        assert line.endswith("-1 ENOSYS" if line.startswith("clone3") else "-1 EPERM"), line


ORDINARY = {
    "python": "python3 -c 'import subprocess, multiprocessing.pool as p, threading; "
    't = threading.Thread(target=print); t.start(); t.join(); subprocess.run(["true"], check=True); '
    "pool = p.Pool(2); assert pool.map(abs, [-1, 2]) == [1, 2]; pool.terminate()'",
    "shell": "bash -c 'set -o pipefail; for i in 1 2; do (echo $i) | cat; done; wait; kill -0 $$'",
    "git": "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log -1",
    "gcc and make": "echo 'int main(void){return 0;}' > a.c; printf 'a:\\n\\tgcc -o a a.c\\n' > Makefile; make; ./a",
    "node": 'node -e \'require("fs").writeFileSync("f", "x"); require("child_process").execSync("true"); '
    'new (require("worker_threads").Worker)("1", {eval: true})\'',
    "a debugger of its own program": "gdb -q -batch -ex run -ex quit --args true",
}


@pytest.mark.parametrize("name", ORDINARY)
async def test_ordinary_programs_work_as_before(node: Node, name: str) -> None:
    program = {"shell": "bash", "gcc and make": "gcc", "a debugger of its own program": "gdb"}.get(name, name)
    if shutil.which(program) is None and name != "python":
        pytest.skip(f"{program} is not installed")
    task = order("sh", "-ec", ORDINARY[name])
    found = await node.run(task)
    assert found.status == "SUCCEEDED", await node.output(task)


# --- network -------------------------------------------------------------------------------------------------------


async def test_tasks_without_network_have_a_loopback_of_their_own_that_people_can_reach(node_folder: Path) -> None:
    node = Node(node_folder, task_network="none")
    await node.runtime.open()
    assert (await said(node, "sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1")).split() == ["lo"]
    serve = "import socketserver as s\nclass H(s.StreamRequestHandler):\n def handle(self): self.wfile.write(b'ahoy')\n"
    serve += (
        "s.TCPServer.allow_reuse_address = True\nt = s.TCPServer(('127.0.0.1', 2000), H); print('up', flush=True)\n"
    )
    task = order(*python(serve + "t.serve_forever()"), ports=[2000])
    await node.runtime.start(task)
    log = node.folder(task) / "output-0.log"
    await eventually(lambda: log.exists() and log.read_bytes() == b"up\n")
    await node.until(task, "RUNNING")
    reached = await node.runtime.reach(task.task_id, None, Dial(port=2000))
    assert isinstance(reached, PortConnection)
    assert await reached.read() == (b"ahoy", False)
    await reached.close()
    _end_supervisors(node_folder)
    await node.end(task)
    await node.runtime.close()


# --- where the machine allows less -----------------------------------------------------------------------------------

PROBE = """
import json, os, sys
from pathlib import Path
from mooring.agent.runtimes.process import isolation
found = isolation.find(Path(sys.argv[1]), agent_uid=0, tenant_uid=200_000, network=sys.argv[2])
print(json.dumps({"level": found.level, "reason": found.reason, "namespaces": found.namespaces,
                  "filter": found.syscall_filter is not None}))
"""


def probe(folder: Path, *without: str, network: str = "host") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*without, sys.executable, "-c", PROBE, str(folder), network],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


NO_ADMIN = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")


def test_the_level_of_a_machine_with_everything_is_namespaces(tmp_path: Path) -> None:
    answer = probe(tmp_path)
    assert json.loads(answer.stdout.splitlines()[-1]) == {
        "level": "namespaces",
        "reason": "",
        "namespaces": "root",
        "filter": True,
    }
    assert "isolation=namespaces" in answer.stdout


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="taking a capability away needs setpriv")
def test_without_namespaces_a_node_says_so_and_offers_the_level_user(tmp_path: Path) -> None:
    answer = probe(tmp_path, *NO_ADMIN)
    found = json.loads(answer.stdout.splitlines()[-1])
    assert (found["level"], found["namespaces"], found["filter"]) == ("user", "", True)
    assert "Operation not permitted" in found["reason"]
    assert "process tasks are not fully isolated on this node" in answer.stdout
    assert "isolation=user" in answer.stdout


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="taking a capability away needs setpriv")
def test_a_node_that_cannot_keep_tasks_off_the_network_does_not_start(tmp_path: Path) -> None:
    answer = probe(tmp_path, *NO_ADMIN, network="none")
    assert answer.returncode != 0
    assert "isolation-unavailable" in answer.stderr
    assert "--task-network host" in answer.stderr


def test_without_libseccomp_a_node_says_so_and_offers_the_level_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    found = isolation.find(tmp_path, agent_uid=0, tenant_uid=200_000, network="host")
    assert (found.level, found.namespaces, found.syscall_filter) == ("user", "root", None)
    assert "install libseccomp2" in found.reason


async def test_tasks_run_where_there_are_no_namespaces(node: Node) -> None:
    whole = node.runtime._processes.isolation
    node.runtime._processes.isolation = isolation.Isolation("user", syscall_filter=whole.syscall_filter)
    listing = "grep Seccomp: /proc/self/status; ls -d /proc/1/cwd; readlink /proc/self/ns/pid; exit 7"
    task = order("sh", "-c", listing)
    assert (await node.run(task)).exit_code == 7
    output = await node.output(task)
    assert "Seccomp:\t2" in output
    assert namespace(os.getpid(), "pid") in output
    going = await running(node, "true")
    assert await executed(node, going, "sh", "-c", "echo here; exit 3") == ("here\n", 3)


AS_SOMEBODY = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups")
USER_PROBE = Path(isolation.__file__).parent / "supervisor" / "probe.py"


@pytest.mark.skipif(
    shutil.which("setpriv") is None or not Path("/usr/bin/python3").exists(),
    reason="becoming another user needs setpriv, and a Python that this user can run",
)
def test_an_agent_without_root_isolates_by_a_user_namespace(tmp_path: Path) -> None:
    maximum = Path("/proc/sys/user/max_user_namespaces")
    if maximum.exists() and maximum.read_text().strip() == "0":
        pytest.skip("this machine allows no user namespaces")
    script = "test $(ls -d /proc/[0-9]* | wc -l) -lt 6 && touch /tmp/x /dev/shm/x && test $(id -u) = 12345"
    spec = isolation._Probe(tmp_path, None, "host")._spec("user", None)
    spec["containers"][0]["command"] = ["sh", "-c", script]
    answer = subprocess.run(
        [*AS_SOMEBODY, "/usr/bin/python3", "-I", "-S", str(USER_PROBE), json.dumps(spec)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    assert not Path("/tmp/x").exists()
