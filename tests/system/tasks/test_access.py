"""Access to process tasks through real servers and agents: commands, ports, files, and permissions."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import tarfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mooring.client import AsyncClient, Client
from mooring.client.channels import Channel
from mooring.client.credentials import CredentialStore
from mooring.model.errors import Conflict, InvalidInput, NotFound, Unavailable
from mooring.wire.cluster.nodes import JoinTokenRequest
from mooring.wire.tenancy.users import UserRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.cli.terminal import run_on_terminal
from tests.servers import free_port
from tests.system.conftest import Servers, running_servers
from tests.system.servers import PASSWORD, Cli, NodeAgent, Server, eventually, process_of

SERVING = """
mkdir www; echo ahoy > www/index.html
exec python3 -m http.server -d www -b 127.0.0.1 "${MOORING_PORTS%,*}"
"""
APART = {"place": "apart"}
LONG_SECONDS = 180.0


@dataclass
class Harness:
    """A server with an agent of its own and one apart, and a task that serves HTTP."""

    servers: Servers
    server: Server
    apart: NodeAgent
    web: str
    """The id of its task."""

    def client(self, username: str = "admin") -> AsyncClient:
        token = self.server.credential(username)["Authorization"].removeprefix("Bearer ")
        return AsyncClient(self.server.url, token=token, store=CredentialStore(self.servers.folder / "no-logins.json"))


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with running_servers() as servers:
        server = servers.start("--node-name", "here")
        with server.client() as client:
            client.create_user(UserRequest(username="eve", password=PASSWORD))
            token = client.create_join_token(JoinTokenRequest(name="apart", labels=APART)).token
            apart = servers.agent(server, "apart", token)
            eventually(lambda: len([node for node in client.nodes().nodes if node.status == "READY"]) == 2)
        # It listens on the port that it names: any given one may be in use by other tests on this machine.
        ports = {"host_ports": [{"port": (port := free_port())}], "ports": 1}
        web = task(server, "web", SERVING, placement=ports)
        eventually(lambda: _listens(port))
        yield Harness(servers, server, apart, web)


def task(server: Server, name: str, script: str, **more: Any) -> str:
    """The id of a task that runs this."""
    container = {"command": ["sh", "-c", script], "resources": {"cpu": "100m"}}
    with server.client() as client:
        asked = {"name": name, "containers": [container], "stop_grace_seconds": 0, **more}
        client.submit(WorkloadRequest.model_validate(asked))
        eventually(lambda: client.workload(name).status == "RUNNING")
        return str(client.workload(name).tasks[0].id)


@pytest.fixture
async def client(harness: Harness) -> AsyncIterator[AsyncClient]:
    async with asyncio.timeout(LONG_SECONDS), harness.client() as made:
        yield made


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


async def said(channel: Channel) -> dict[bool, bytes]:
    """Everything that comes, by whether it is standard error."""
    found = {False: b"", True: b""}
    while (piece := await channel.read()) is not None:
        found[piece[1]] += piece[0]
    return found


@pytest.mark.slow
async def test_ten_megabytes_are_transferred_unchanged(harness: Harness, client: AsyncClient) -> None:
    given = os.urandom(10_000_000)
    async with client.run_command(harness.web, ["sh", "-c", "echo oops >&2; cat; exit 42"]) as channel:

        async def hand_in() -> None:
            await channel.write(given)
            await channel.write(b"")

        handing_in = asyncio.create_task(hand_in())
        found = await said(channel)
        await handing_in
        assert (found[False] == given, found[True], await channel.exit_code()) == (True, b"oops\n", 42)


@pytest.mark.slow
async def test_a_slow_reader_does_not_delay_others(harness: Harness, client: AsyncClient) -> None:
    async with client.run_command(harness.web, ["sh", "-c", "cat /dev/zero"]) as slow:
        first = await slow.read()
        assert first is not None
        for _ in range(3):
            async with client.run_command(harness.web, ["head", "-c", "3000000", "/dev/zero"]) as quick:
                assert len((await said(quick))[False]) == 3_000_000
        assert (await slow.read()) is not None


async def test_a_command_ends_when_its_client_disconnects(harness: Harness, client: AsyncClient) -> None:
    async with client.run_command(harness.web, ["sh", "-c", "echo $MOORING_TASK_ID; exec sleep 1001"]) as channel:
        piece = await channel.read()
        assert piece is not None
        process = Path("/proc", str(await asyncio.to_thread(process_of, piece[0], "sleep", "1001")))
        assert await asyncio.to_thread(process.exists)
    await asyncio.to_thread(eventually, lambda: not process.exists())


async def test_tasks_without_exec_permission_are_not_found(harness: Harness, client: AsyncClient) -> None:
    async with harness.client("eve") as eve:
        for opening in (
            eve.run_command(harness.web, ["id"]),
            eve.attach(harness.web),
            eve.forward_to_task(harness.web),
            eve.forward("web"),
            client.run_command("00000000-0000-0000-0000-000000000000", ["id"]),
        ):
            with pytest.raises(NotFound):
                async with opening:
                    pass
        with pytest.raises(NotFound):
            await anext(aiter(eve.fetch_files(harness.web, "www")))
        with pytest.raises(NotFound):
            await eve.store_files(harness.web, "www", pieces(b""))
    with pytest.raises(Conflict, match="started without an input"):
        async with client.attach(harness.web):
            pass
    for command, complaint in (
        (["a" * 30_000] * 3, "at most 65536 bytes"),
        ([], "command"),
        (["a\0b"], "not allowed here"),
    ):
        with pytest.raises(InvalidInput, match=complaint):
            async with client.run_command(harness.web, command):
                pass


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def test_every_exec_is_recorded_with_user_and_command(harness: Harness, client: AsyncClient) -> None:
    async with client.run_command(harness.web, ["echo", "for the record"]) as channel:
        await said(channel)
    newest = (await client.actions(noun="task", object="web/0")).actions[0]
    assert (newest.username, newest.action, newest.address) == ("admin", "exec", "127.0.0.1")
    assert newest.after is not None
    assert newest.after["command"] == '["echo","for the record"]'
    assert newest.after["task"] == harness.web


async def test_files_are_copied_in_and_out_and_path_tricks_are_rejected(harness: Harness, client: AsyncClient) -> None:
    content = os.urandom(5_000_000)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("large.bin")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    sent = packed.getvalue()
    await client.store_files(harness.web, "in", pieces(*(sent[at : at + 65536] for at in range(0, len(sent), 65536))))
    back = b"".join([piece async for piece in client.fetch_files(harness.web, "in/large.bin")])
    with tarfile.open(fileobj=io.BytesIO(back)) as archive:
        file = archive.extractfile("large.bin")
        assert file is not None
        assert file.read() == content
    for path in ("../../..", "/etc/passwd", "nothing"):
        with pytest.raises(InvalidInput):
            await anext(aiter(client.fetch_files(harness.web, path)))
    with pytest.raises(InvalidInput, match="not a tar archive"):
        await client.store_files(harness.web, "in", pieces(b"x" * 4096))


async def test_fifty_connections_at_once_are_forwarded(harness: Harness, client: AsyncClient) -> None:
    async def get() -> bytes:
        async with client.forward("web") as channel:
            await channel.write(b"GET / HTTP/1.0\r\n\r\n")
            return (await said(channel))[False]

    answers = await asyncio.gather(*(get() for _ in range(50)))
    assert all(answer.startswith(b"HTTP/1.0 200") and answer.endswith(b"\r\n\r\nahoy\n") for answer in answers)
    with pytest.raises(Conflict, match="not assigned to the task"):
        async with client.forward("web", 22):
            pass


@pytest.fixture
def mooring(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command of the admin; also for commands on a terminal."""
    token = harness.server.credential("admin")["Authorization"].removeprefix("Bearer ")
    environment = {"MOORING_SERVER": harness.server.url, "MOORING_TOKEN": token}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Cli(harness.servers.folder / "person", environment)


def test_a_shell_on_a_terminal_and_exit_codes_passed_on(mooring: Cli) -> None:
    done = mooring("exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 9")
    assert (done.returncode, done.stdout, done.stderr) == (9, "out\n", "err\n")
    assert mooring("exec", "web", "-i", "--", "tr", "a-z", "A-Z", given="ahoy").stdout == "AHOY"
    missing = mooring("exec", "web", "--", "no-such-program")
    assert (missing.returncode, missing.stderr) == (127, "cannot start 'no-such-program': no such file or directory\n")
    with run_on_terminal("exec", "web", "-it", "--", "sh") as shell:
        shell.type("tty && stty size\n")
        shell.expect("/dev/pts/")
        shell.expect(" 200")
        # Only what has begun can be interrupted, and what is typed is shown before that.
        shell.type("sh -c 'echo beg''un; exec sleep 1000'\n")
        shell.expect("begun")
        shell.interrupt()
        shell.type("exit 5\n")
        assert shell.exit_code() == 5


@pytest.mark.slow
def test_files_are_copied_both_ways(mooring: Cli, tmp_path: Path) -> None:
    here = tmp_path / "notes"
    (here / "deep").mkdir(parents=True)
    (here / "deep" / "one.txt").write_text("one")
    mooring.out("cp", str(here), "web:copied")
    back = tmp_path / "back"
    back.mkdir()
    mooring.out("cp", "web:copied/notes", str(back))
    assert (back / "notes" / "deep" / "one.txt").read_text() == "one"
    assert (
        "www/index.html"
        in subprocess.run(
            ["tar", "-t"], input=mooring.out("cp", "web:www", "-"), capture_output=True, text=True, check=True
        ).stdout
    )
    for words, code in (
        (("web:../..", str(back)), "files-refused"),
        ((str(here), str(back)), "invalid-input"),
    ):
        refused = mooring("cp", *words)
        assert (refused.returncode, code in refused.stderr) == (2, True), refused.stderr


def test_a_forwarded_port_accepts_connections_of_any_program(mooring: Cli) -> None:
    with mooring.begin("forward", "web") as forwarding:
        assert forwarding.stdout is not None
        address = forwarding.stdout.readline().split()[0]
        try:
            for _ in range(3):
                with urllib.request.urlopen(address, timeout=60) as answer:
                    assert answer.read() == b"ahoy\n"
        finally:
            forwarding.send_signal(signal.SIGINT)
    assert mooring("forward", "web", "99999").returncode == 2


@pytest.mark.slow
def test_following_logs_includes_tasks_that_start_later(harness: Harness, mooring: Cli) -> None:
    script = 'echo "from $MOORING_INDEX"; sleep 1000'
    task(harness.server, "crew", script, kind="deployment", replicas=2)
    with mooring.begin("logs", "-f", "crew") as following:
        assert following.stdout is not None
        assert {following.stdout.readline() for _ in range(2)} == {"crew/0 | from 0\n", "crew/1 | from 1\n"}
        mooring.out("scale", "crew", "3")
        assert following.stdout.readline() == "crew/2 | from 2\n"
        mooring.out("rm", "crew", "--yes")
        assert following.stdout.readline() == ""
        assert following.wait(LONG_SECONDS) == 0


@pytest.mark.slow
async def test_a_killed_agent_ends_the_connection_with_a_reason(harness: Harness, client: AsyncClient) -> None:
    """Its node's tasks continue; connected users get an error, and can connect again when the agent is back."""
    away = await asyncio.to_thread(task, harness.server, "away", "sleep 1000", placement={"node_selector": APART})
    async with client.run_command(away, ["cat"]) as channel:
        await channel.write(b"ahoy")
        assert await channel.read() == (b"ahoy", False)
        harness.apart.kill()
        assert await channel.read() is None
        with pytest.raises(Unavailable, match="agent-lost"):
            await channel.exit_code()
    with pytest.raises(Unavailable, match="agent-unreachable"):
        async with client.run_command(away, ["id"]):
            pass
    harness.apart.launch()
    with harness.server.client() as waiting:
        await asyncio.to_thread(eventually, lambda: _answers(waiting, away))
    async with client.run_command(away, ["echo", "back"]) as channel:
        assert (await said(channel))[False] == b"back\n"


def _answers(client: Client, task_id: str) -> bool:
    """Return whether the task's node is connected, so that its folder can be listed."""
    try:
        return bool(b"".join(client.fetch_files(task_id, "tmp")))
    except Unavailable:
        return False


async def test_a_server_that_stops_says_so(harness: Harness, client: AsyncClient) -> None:
    async with client.run_command(harness.web, ["sleep", "1000"]) as channel:
        stopping = asyncio.create_task(asyncio.to_thread(harness.server.stop))
        with pytest.raises(Unavailable, match="server-stopping"):
            await channel.exit_code()
        await stopping


@pytest.mark.slow
async def test_a_server_without_the_agents_connection_proxies_to_the_one_that_has_it(
    servers: Servers, postgres_url: str
) -> None:
    """As behind a load balancer, which knows nothing of agents."""
    shared = {"MOORING_SIGNING_KEY": "one key that both of the servers share", "MOORING_HEARTBEAT_SECONDS": "0.2"}
    with_agent, other = (
        servers.start(*flags, "--database", postgres_url, name=name, environment=shared)
        for name, flags in (("with", ("--node-name", "here")), ("other", ("--role", "api")))
    )
    web = await asyncio.to_thread(task, with_agent, "web", "echo out; mkdir www; sleep 1000")
    token = with_agent.credential("admin")["Authorization"].removeprefix("Bearer ")
    store = CredentialStore(servers.folder / "no-logins.json")
    async with asyncio.timeout(LONG_SECONDS), AsyncClient(other.url, token=token, store=store) as client:
        given = os.urandom(1_000_000)
        async with client.run_command(web, ["sh", "-c", "cat; exit 6"]) as channel:
            handing_in = asyncio.create_task(channel.write(given))
            handing_in.add_done_callback(lambda _: asyncio.ensure_future(channel.write(b"")))
            assert (await said(channel))[False] == given
            assert await channel.exit_code() == 6
        assert b"".join([piece async for piece in client.logs("web")]) == b"out\n"
        archive = b"".join([piece async for piece in client.fetch_files(web, "www")])
        await client.store_files(web, "copy", pieces(archive))
        assert archive in [b"".join([piece async for piece in client.fetch_files(web, "copy/www")])]
        with pytest.raises(InvalidInput, match="leads out"):
            await client.store_files(web, "../..", pieces(archive))
        with other.client() as asking:
            await asyncio.to_thread(eventually, lambda: asking.task_use(name="web").tasks[0].measured_at)
        mooring = Cli(servers.folder / "person", {"MOORING_SERVER": other.url, "MOORING_TOKEN": token})
        [shown] = json.loads(await asyncio.to_thread(mooring.out, "top", "--output", "json"))["tasks"]
        assert (shown["workload"], shown["node"], shown["memory_bytes"] > 0) == ("web", "here", True)
        elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with (
            aiohttp.ClientSession(other.url, connector=elsewhere, headers=with_agent.credential("admin")) as person,
            person.get(f"/api/tasks/{web}/files", params={"path": "www"}) as answer,
        ):
            assert answer.status == 200
        newest, before, *_ = (await client.actions(noun="task")).actions
        assert (newest.address, before.address) == ("127.0.0.2", "127.0.0.1")
        await asyncio.to_thread(with_agent.kill)
        with pytest.raises(Unavailable, match="agent-unreachable"):
            async with client.run_command(web, ["id"]):
                pass
