"""The health program: what it says, how it is ended, and that it can neither hang nor flood the agent."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
import uvloop

from mooring.agent.node.health import run
from mooring.wire.agents.agent_protocol import HealthProgram
from tests.agent.builders import eventually


def program(*command: str, timeout_seconds: float = 60) -> HealthProgram:
    return HealthProgram(command=list(command), interval_seconds=1, timeout_seconds=timeout_seconds)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        pytest.param("exit 0", None, id="it passed"),
        pytest.param("echo fine; exit 0", None, id="what it says when it passed is nobody's problem"),
        pytest.param("echo 'gpu 3 is gone'; echo more; exit 1", "gpu 3 is gone", id="the first line is the reason"),
        pytest.param("echo; echo '  no disk' >&2; exit 1", "no disk", id="errors count, empty lines do not"),
        pytest.param("printf 'a\\033[31mb\\000c'; exit 1", "a[31mbc", id="nothing that a terminal would act on"),
        pytest.param("exit 7", "exit code 7", id="silent"),
        pytest.param("kill -9 $$", "exit code -9", id="killed"),
        pytest.param("yes | head -c 1000000; exit 1", "y", id="a flood"),
        pytest.param("yes | tr -d '\\n' | head -c 1000000; exit 1", "y" * 200, id="a flood in one line"),
    ],
)
async def test_exit_code_zero_is_healthy_and_all_else_is_a_problem(script: str, problem: str | None):
    assert await run(program("sh", "-c", script)) == (problem and f"health program: {problem}")


async def test_a_program_that_is_not_there_is_a_problem():
    assert (await run(program("/no/such/program")) or "").startswith("health program: cannot be started")


async def test_no_shell_reads_the_command_and_no_variable_of_the_agent_reaches_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MOORING_JOIN_TOKEN", "mj-secret")
    assert await run(program("test", "$HOME", "=", "$HOME")) is None
    assert await run(program("sh", "-c", "env | grep -q secret")) == "health program: exit code 1"


@pytest.mark.slow
async def test_a_program_that_takes_too_long_is_killed_with_all_its_processes(tmp_path: Path):
    note = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {note}; echo working; wait"
    assert await run(program("sh", "-c", script, timeout_seconds=4)) == "health program: working"
    child = int(note.read_text())
    await eventually(lambda: not _alive(child))
    assert await run(program("sleep", "600", timeout_seconds=0.1)) == "health program: no answer within 0.1 s"


async def test_nothing_of_it_outlives_the_agent(tmp_path: Path):
    note = tmp_path / "pid"
    life = asyncio.create_task(run(program("sh", "-c", f"echo $$ > {note}; exec sleep 600", timeout_seconds=600)))
    await eventually(lambda: note.exists() and note.read_text().strip())
    life.cancel()
    await asyncio.gather(life, return_exceptions=True)
    await eventually(lambda: not _alive(int(note.read_text())))


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_its_verdict_counts_although_a_child_holds_its_output(loop: Callable[[Awaitable[str | None]], str | None]):
    assert loop(run(program("sh", "-c", "sleep 600 & exit 0"))) is None


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
