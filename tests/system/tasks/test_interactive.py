"""Interactive work on a real server: terminals, standard input, shells, and lost connections."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mooring.client import AsyncClient
from mooring.client.credentials import CredentialStore
from mooring.model.errors import NotAuthenticated, NotFound
from mooring.wire.tenancy.users import UserChange, UserRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.cli.terminal import MOORING, run_on_terminal
from tests.system.conftest import Servers, running_servers
from tests.system.servers import PASSWORD, Cli, Server, eventually

LONG_SECONDS = 180.0


@dataclass
class Harness:
    servers: Servers
    server: Server

    def client(self, username: str) -> AsyncClient:
        token = self.server.credential(username)["Authorization"].removeprefix("Bearer ")
        return AsyncClient(self.server.url, token=token, store=CredentialStore(self.servers.folder / "no-logins.json"))


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with running_servers() as servers:
        yield Harness(servers, servers.start("--node-name", "here"))


@pytest.fixture
def mooring(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command of the admin; also for commands on a terminal."""
    token = harness.server.credential("admin")["Authorization"].removeprefix("Bearer ")
    environment = {"MOORING_SERVER": harness.server.url, "MOORING_TOKEN": token}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Cli(harness.servers.folder / "person", environment)


def test_a_command_runs_on_the_user_s_terminal_until_it_exits(mooring: Cli) -> None:
    with run_on_terminal("run", "-it", "--cpu", "100m", "--", "sh", size=(33, 101)) as shell:
        shell.expect_hidden_input()
        shell.type("stty size; tty\n")
        shell.expect("33 101")
        shell.expect("/dev/pts/")
        shell.resize(44, 90)
        shell.type("sleep 0.2; stty size\n")
        shell.expect("44 90")
        shell.type("sh -c 'echo beg''un; exec sleep 1000'\n")
        shell.expect("begun")
        shell.interrupt()
        shell.type("echo code $?\n")
        shell.expect("code 130")
        shell.type("exit 5\n")
        assert shell.exit_code() == 5


def test_a_command_that_ends_at_once_has_the_size_of_the_window_and_shows_its_output(mooring: Cli) -> None:
    with run_on_terminal("run", "-it", "--cpu", "100m", "--", "stty", "size", size=(33, 101)) as terminal:
        terminal.expect("33 101")
        assert terminal.exit_code() == 0


def test_detach_keys_leave_the_session_running_and_attach_returns_to_it(harness: Harness, mooring: Cli) -> None:
    with run_on_terminal("run", "--name", "desk", "-it", "--cpu", "100m", "--", "sh", size=(24, 80)) as shell:
        shell.expect_hidden_input()
        shell.type("word=kept; echo st''ored\n")
        shell.expect("stored")
        shell.type("\x10\x11")
        shell.expect("`mooring attach desk` attaches again")
        assert shell.exit_code() == 0
    with run_on_terminal("attach", "desk", size=(30, 120)) as shell:
        shell.expect_hidden_input()
        shell.type("echo $word; stty size; exit 4\n")
        shell.expect("kept")
        shell.expect("30 120")
        assert shell.exit_code() == 4
    assert "stored" in mooring.out("logs", "desk")


@pytest.mark.slow
@pytest.mark.parametrize("program", ["vi", "top"])
def test_a_full_screen_program_draws_itself_again_for_a_user_who_attaches(mooring: Cli, program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")
    drawn, leave = {"vi": ("~", ":q!\r"), "top": ("PID", "q")}[program]
    with run_on_terminal("run", "--name", program, "-it", "--cpu", "100m", "--", program, size=(24, 80)) as screen:
        screen.expect(drawn)
        screen.type("\x10\x11")
        assert screen.exit_code() == 0
    with run_on_terminal("attach", program, size=(24, 80)) as screen:
        screen.expect(drawn)
        screen.type(leave)
        assert screen.exit_code() == 0
    mooring.out("wait", program)


def test_input_of_a_pipe_is_passed_on_and_ends(mooring: Cli) -> None:
    assert mooring.out("run", "--cpu", "100m", "--", "cat", given="hi\n") == "hi\n"
    given = "".join(f"{number}\n" for number in range(200_000))
    digest = hashlib.md5(given.encode()).hexdigest()
    assert mooring.out("run", "-i", "--cpu", "100m", "--", "md5sum", given=given) == f"{digest}  -\n"
    done = mooring("run", "--cpu", "100m", "--", "sh", "-c", "read one; echo got $one; exit 6", given=given)
    assert (done.stdout, done.returncode) == ("got 0\n", 6)


@pytest.mark.slow
def test_without_input_the_command_reads_an_end_of_file(mooring: Cli) -> None:
    assert mooring.out("run", "--cpu", "100m", "--", "sh", "-c", "cat; echo end") == "end\n"
    with run_on_terminal("run", "--cpu", "100m", "--", "sh", "-c", "cat; echo end") as terminal:
        terminal.expect("end")
        assert terminal.exit_code() == 0


@pytest.mark.slow
def test_a_pipe_that_stays_open_does_not_delay_the_end(mooring: Cli) -> None:
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            [*MOORING, "run", "--cpu", "100m", "--", "echo", "done"],
            stdin=reader,
            capture_output=True,
            text=True,
            timeout=LONG_SECONDS,
            check=False,
        )
        assert (done.stdout, done.returncode) == ("done\n", 0)
    finally:
        os.close(reader)
        os.close(writer)


def test_a_shell_is_a_session_that_ends_with_it(harness: Harness, mooring: Cli) -> None:
    with run_on_terminal("shell", "--name", "seat", "--cpu", "100m", "--memory", "64Mi") as shell:
        shell.expect_hidden_input()
        shell.type("echo $MOORING_WORKLOAD; tty\n")
        shell.expect("seat")
        shell.expect("/dev/pts")
        with harness.server.client() as client:
            seen = client.workload("seat")
            assert (seen.type, seen.status, seen.containers[0].terminal) == ("interactive", "RUNNING", True)
        shell.type("exit 3\n")
        assert shell.exit_code() == 3
    with harness.server.client() as client:
        eventually(lambda: client.workload("seat").ended_at is not None)


@pytest.mark.slow
def test_a_shell_ends_when_its_window_is_closed(harness: Harness, mooring: Cli) -> None:
    with run_on_terminal("shell", "--name", "window", "--cpu", "100m") as shell:
        shell.expect_hidden_input()
        shell.type("echo re''ady\n")
        shell.expect("ready")
        shell.hang_up()
        shell.exit_code()
    with harness.server.client() as client:
        eventually(lambda: client.workload("window").status == "CANCELLED")


@pytest.mark.slow
def test_a_job_script_runs_on_a_node_that_does_not_have_it(mooring: Cli, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        '#!/bin/bash\n#MOORING --cpu 100m --name job --env GREETING=ahoy\necho "$GREETING ${@^^}"; exit 7\n'
    )
    assert mooring.out("submit", str(script), "one", "two") == "job\n"
    assert mooring("wait", "job").returncode != 0
    assert mooring.out("logs", "job") == "ahoy ONE TWO\n"


@pytest.mark.slow
async def test_an_attached_user_who_is_deactivated_is_disconnected_and_others_never_attach(harness: Harness) -> None:
    with harness.server.client() as admin:
        for username in ("mate", "eve"):
            admin.create_user(UserRequest(username=username, password=PASSWORD))
    container = {"command": ["sh"], "terminal": True, "resources": {"cpu": "100m"}}
    with harness.server.client("mate") as client:
        request = {"name": "watch", "containers": [container], "stop_grace_seconds": 0}
        workload = str(client.submit(WorkloadRequest.model_validate(request)).id)
        await asyncio.to_thread(eventually, lambda: client.workload(workload).status == "RUNNING")
        task = str(client.workload(workload).tasks[0].id)
    async with asyncio.timeout(LONG_SECONDS), harness.client("mate") as mate, harness.client("eve") as eve:
        with pytest.raises(NotFound):
            async with eve.attach(task, replay=True):
                pass
        async with mate.attach(task, replay=True) as attached:
            await attached.write(b"echo he''re\n")
            said = b""
            while b"here\r\n" not in said:
                piece = await attached.read()
                assert piece is not None
                said += piece[0]
            with harness.server.client() as admin:
                admin.change_user("mate", UserChange(active=False))
            while await attached.read() is not None:
                pass
            with pytest.raises(NotAuthenticated, match="access-revoked"):
                await attached.exit_code()
