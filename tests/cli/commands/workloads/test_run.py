"""`mooring run`: as if the command ran here."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from tests.cli.conftest import Mooring
from tests.cli.terminal import MOORING, run_on_terminal
from tests.client.fake_server import (
    NOW,
    FakeServer,
    FakeWorkload,
    Refusal,
    failed,
    running,
    succeeded,
    task_view,
    waits,
)


def prepare(server: FakeServer, text: bytes, *, ends: bool = True, breaks: int = 0) -> None:
    def set_up(workload: FakeWorkload) -> None:
        workload.log, workload.log_ends, workload.breaks, workload.node_answers = text, ends, breaks, True

    server.prepare = set_up


def only(server: FakeServer) -> FakeWorkload:
    deadline = time.monotonic() + 60
    while not server.workloads and time.monotonic() < deadline:
        time.sleep(0.01)
    return next(iter(server.workloads.values()))


def test_the_output_and_the_exit_code_are_those_of_the_task(server: FakeServer, mooring: Mooring) -> None:
    prepare(server, b"out\n\xfe\n")
    server.plan = [waits("insufficient-resources", "no room"), running, failed(3, reason={"code": "exited"})]
    result = mooring("run", "--cpu", "1", "--workdir", "/srv", "--restart", "on-failure", "--", "make", "-j", "2")
    assert result.exit_code == 3
    assert result.stdout_bytes == b"out\n\xfe\n"
    assert "no room" in result.stderr
    assert "error" not in result.stderr
    assert server.last("POST", "/api/workloads").body == {
        "kind": "session",
        "containers": [{"command": ["make", "-j", "2"], "working_folder": "/srv", "resources": {"cpu": "1"}}],
        "restart": "on-failure",
    }


def test_options_end_where_the_command_begins(server: FakeServer, mooring: Mooring) -> None:
    server.plan = [running, succeeded]
    assert mooring("run", "ls", "-l", "--name", "x").exit_code == 0
    body = server.last("POST", "/api/workloads").body
    assert body["containers"][0]["command"] == ["ls", "-l", "--name", "x"]
    assert "name" not in body
    assert mooring("run").exit_code == 2


@pytest.mark.parametrize(("reported", "code"), [(137, 137), (-15, 143)])
def test_a_killed_task_ends_with_128_and_the_signal(
    server: FakeServer, mooring: Mooring, reported: int, code: int
) -> None:
    server.plan = [running, failed(reported)]
    assert mooring("run", "true").exit_code == code


def test_a_session_that_never_ran_says_why(server: FakeServer, mooring: Mooring) -> None:
    server.plan = [failed(None, reason={"code": "no-nodes", "message": "pool 'x' has no nodes"})]
    result = mooring("run", "true")
    assert result.exit_code == 1
    assert "error: no-nodes: pool 'x' has no nodes\nhint: choose another with --pool" in result.stderr


def test_detached_only_the_name_is_printed(server: FakeServer, mooring: Mooring) -> None:
    result = mooring("run", "-d", "--name", "later", "--", "true")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "later\n", "")
    assert server.find("later").view.status == "PENDING"


def test_an_interrupted_output_continues_without_loss_or_duplicates(
    server: FakeServer, mooring: Mooring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.cli.interaction.follow_output._PAUSE_SECONDS", 0.05)
    text = b"".join(b"line %d\n" % number for number in range(2000))
    prepare(server, text, breaks=2)
    server.plan = [running, succeeded]
    result = mooring("run", "true")
    assert result.exit_code == 0
    assert result.stdout_bytes == text
    assert "interrupted" in result.stderr


def test_the_output_of_a_try_that_failed_at_once_is_shown_before_that_of_the_next(
    server: FakeServer, mooring: Mooring
) -> None:
    def failed_and_replaced(workload: FakeWorkload) -> None:
        workload.earlier = {"1": b"first\n"}
        tried = workload.view.tasks[0].model_copy(
            update={"current": False, "status": "FAILED", "started_at": NOW, "ended_at": NOW, "exit_code": 3}
        )
        workload.become("PENDING", tasks=[tried, task_view(0, attempt=2)])

    def second_succeeds(workload: FakeWorkload) -> None:
        tried, again = workload.view.tasks
        ended = again.model_copy(update={"status": "SUCCEEDED", "started_at": NOW, "ended_at": NOW, "exit_code": 0})
        workload.become("SUCCEEDED", tasks=[tried, ended])

    prepare(server, b"second\n")
    server.plan = [failed_and_replaced, second_succeeds]
    result = mooring("run", "--retries", "1", "true")
    assert (result.exit_code, result.stdout_bytes) == (0, b"first\nsecond\n")


@pytest.mark.parametrize(("stored", "rest"), [(b"tail of it\nmore\n", b"more\n"), (b"all new\n", b"all new\n")])
def test_output_whose_oldest_part_is_gone_continues_after_the_written_part(
    server: FakeServer, mooring: Mooring, monkeypatch: pytest.MonkeyPatch, stored: bytes, rest: bytes
) -> None:
    monkeypatch.setattr("mooring.cli.interaction.follow_output._PAUSE_SECONDS", 0.05)
    monkeypatch.setattr("mooring.model.workloads.output._REMEMBERED_BYTES", len(b"tail of it\n"))
    first = b"x" * 1000 + b"tail of it\n"
    prepare(server, first * 2, breaks=1)

    def rotate(workload: FakeWorkload) -> None:
        # The stream has brought the first half and broken off; now less is stored than was written.
        workload.log = stored
        succeeded(workload)

    server.plan = [running, rotate]
    monkeypatch.setattr("mooring.cli.interaction.follow_output.time.sleep", lambda _: rotate(only(server)))
    assert mooring("run", "true").stdout_bytes == first + rest


def test_a_short_outage_of_the_server_does_not_end_the_wait(server: FakeServer, mooring: Mooring) -> None:
    server.plan = [running, succeeded]

    def away_at_first(workload: FakeWorkload) -> None:
        path = f"/api/workloads/{workload.view.id}"
        server.refuse_next["GET", path] = [Refusal(503, "unavailable", "no leader")] * 2

    server.prepare = away_at_first
    result = mooring("run", "true")
    assert result.exit_code == 0
    assert "the server does not answer" in result.stderr


def test_the_servers_notice_of_a_lost_node_is_no_output(
    server: FakeServer, mooring: Mooring, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mooring.cli.interaction.follow_output import _without_notice
    from mooring.model.errors import Unavailable

    notice = b"\n[mooring] the output is cut off here: the node is lost\n"
    assert list(_without_notice(iter([b"a", notice, b"b"]))) == [b"a", notice, b"b"]
    pieces = _without_notice(iter([b"a", notice]))
    assert next(pieces) == b"a"
    with pytest.raises(Unavailable, match="the node is lost"):
        next(pieces)


def test_a_session_whose_output_is_gone_still_has_its_exit_code(server: FakeServer, mooring: Mooring) -> None:
    server.plan = [running, failed(4)]

    def gone(workload: FakeWorkload) -> None:
        path = f"/api/workloads/{workload.view.id}/logs"
        server.refuse["GET", path] = Refusal(404, "output-gone", "its node was removed")

    server.prepare = gone
    result = mooring("run", "true")
    assert (result.exit_code, result.stdout) == (4, "")


def test_a_simulated_session_does_not_pretend(server: FakeServer, mooring: Mooring) -> None:
    server.simulated = True
    prepare(server, b"simulated: nothing runs\n")
    server.plan = [running, succeeded]
    result = mooring("run", "--image", "x", "true")
    assert result.stdout == "simulated: nothing runs\n"
    assert "running (simulated)" in result.stderr
    assert "runs on simulated nodes" in result.stderr
    assert "runs on simulated nodes" in mooring("run", "-d", "true").stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_a_terminal_an_interrupt_cancels(server: FakeServer, mooring: Mooring, number: signal.Signals) -> None:
    prepare(server, b"begun\n", ends=False)
    process = subprocess.Popen([*MOORING, "run", "--", "sleep", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(number)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert b"cancelling" in messages
    assert (only(server).view.status, only(server).view.removed) == ("CANCELLED", False)


def test_on_a_terminal_an_interrupt_may_detach(server: FakeServer, mooring: Mooring) -> None:
    prepare(server, b"begun\n", ends=False)
    with run_on_terminal("run", "--name", "job", "--", "sleep", "60") as terminal:
        terminal.expect("begun")
        terminal.interrupt()
        terminal.expect("[d]etach")
        terminal.type("nonsense\n")
        terminal.expect("[d]etach")
        terminal.type("d\n")
        assert terminal.exit_code() == 0
    assert "mooring logs -f job" in terminal.text
    assert only(server).view.status == "RUNNING"


def test_on_a_terminal_an_interrupt_may_cancel(server: FakeServer, mooring: Mooring) -> None:
    prepare(server, b"begun\n", ends=False)
    with run_on_terminal("run", "--name", "job", "--", "sleep", "60") as terminal:
        terminal.expect("begun")
        terminal.interrupt()
        terminal.expect("[c]ancel")
        terminal.type("c\n")
        assert terminal.exit_code() == 130
    assert (only(server).view.status, only(server).view.removed) == ("CANCELLED", False)


def test_a_second_interrupt_at_the_prompt_cancels(server: FakeServer, mooring: Mooring) -> None:
    prepare(server, b"begun\n", ends=False)
    with run_on_terminal("run", "--", "sleep", "60") as terminal:
        terminal.expect("begun")
        terminal.interrupt()
        terminal.expect("[d]etach")
        terminal.interrupt()
        assert terminal.exit_code() == 130
    assert (only(server).view.status, only(server).view.removed) == ("CANCELLED", False)


def test_a_client_that_stays_receives_the_rest_once(server: FakeServer, mooring: Mooring) -> None:
    prepare(server, b"begun\n", ends=False)
    with run_on_terminal("run", "--", "sleep", "60") as terminal:
        terminal.expect("begun")
        terminal.interrupt()
        terminal.expect("[s]tay")
        terminal.type("s\n")
        workload = only(server)
        workload.log += b"the rest\n"
        workload.become("SUCCEEDED", exit_code=0)
        assert terminal.exit_code() == 0
    assert terminal.text.count("begun") == 1
    assert terminal.text.count("the rest") == 1


def test_a_session_waits_on_a_terminal_with_one_moving_line(server: FakeServer, mooring: Mooring) -> None:
    server.plan = [waits("insufficient-resources", "[bold]no room[/bold]")]
    with run_on_terminal("run", "--name", "job", "--", "true") as terminal:
        terminal.expect("[bold]no room[/bold]")
        terminal.interrupt()
        terminal.expect("[d]etach")
        terminal.type("d\n")
        assert terminal.exit_code() == 0


def test_a_deployment_continues_after_an_interrupt_of_the_wait(server: FakeServer, mooring: Mooring) -> None:
    server.plan = [waits("insufficient-resources", "no room")]
    with run_on_terminal("deploy", "web", "--image", "x") as terminal:
        terminal.expect("no room")
        terminal.interrupt()
        assert terminal.exit_code() == 130
    assert "web continues in the background" in terminal.text
    assert not server.find("web").view.removed


@pytest.mark.parametrize("option", ["--memory", "--storage", "--gpu-memory"])
def test_an_amount_of_bytes_without_a_unit_is_refused_with_the_likely_meanings(
    mooring: Mooring, server: FakeServer, option: str
):
    result = mooring("run", option, "2048", "--", "true")
    assert result.exit_code == 2
    assert "2048 has no unit; write 2Gi, 2048Mi or 2048B" in result.stderr
    assert not server.workloads
