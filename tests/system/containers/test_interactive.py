"""Interactive work in real containers: a terminal, full-screen programs, standard input and a shell."""

from __future__ import annotations

import pytest

from tests.cli.terminal import run_on_terminal
from tests.engine import BUSYBOX
from tests.system.containers.conftest import Box

IMAGE = ("--image", BUSYBOX, "--pull", "never", "--cpu", "100m")


@pytest.fixture(autouse=True)
def login(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in box.mooring.environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
def test_a_container_runs_on_the_user_s_terminal_and_draws_itself_again_after_attach(box: Box) -> None:
    with run_on_terminal("run", "--name", "desk", "-it", *IMAGE, "--", "sh", size=(33, 101)) as shell:
        shell.expect_hidden_input()
        # Attaching changes the size for a moment, so that full-screen programs draw themselves.
        shell.type("sleep 1; stty size\n")
        shell.expect("33 101")
        shell.resize(44, 90)
        shell.type("sleep 1; stty size; vi\n")
        shell.expect("44 90")
        shell.expect("~")
        shell.type("\x10\x11")
        assert shell.exit_code() == 0
    with run_on_terminal("attach", "desk", size=(24, 80)) as shell:
        shell.expect("~")
        shell.type(":q!\rtop\n")
        shell.expect("PID")
        shell.interrupt()
        shell.type("exit 5\n")
        shell.exit_code()
    assert box.mooring("wait", "desk").returncode != 0
    assert box.client.workload("desk").tasks[0].exit_code == 5


@pytest.mark.slow
def test_a_container_reads_the_input_of_a_pipe_to_its_end(box: Box) -> None:
    assert box.mooring.out("run", *IMAGE, "--", "tr", "a-z", "A-Z", given="ahoy\n") == "AHOY\n"


@pytest.mark.slow
def test_a_shell_opens_in_an_image(box: Box) -> None:
    with run_on_terminal("shell", *IMAGE) as shell:
        shell.expect_hidden_input()
        shell.type("tty; exit 3\n")
        shell.expect("/dev/")
        assert shell.exit_code() == 3
