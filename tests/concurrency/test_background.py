"""A background task never ends unnoticed: it is logged, counted and started again."""

import ast
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import mooring
from mooring.concurrency.background import BackgroundTasks
from mooring.telemetry import metrics

SUPERVISED_ELSEWHERE = {
    "concurrency/background.py": "the supervisor itself",
    "agent/node_tasks.py": "the preparation of one task, which cannot raise",
    "agent/connection/channels.py": "one channel",
    "agent/access/commands.py": "the end of one command",
    "agent/runtimes/container/task_reconciler.py": "one task's containers; it survives every error of an iteration",
    "agent/runtimes/container/probes.py": "one probe",
    "agent/runtimes/container/pulls.py": "one image",
    "agent/runtimes/container/access.py": "one stream",
    "agent/runtimes/container/runtime.py": "two parts of one connection to the engine; either end ends both",
    "agent/connection/log_streams.py": "one stream of output",
    "api/streams/first_completed.py": "the parts of one request",
    "api/streams/event_feed.py": "while somebody reads; the next reader starts it again",
    "api/streams/open_connections.py": "one connection",
    "api/routes/workloads/workloads.py": "one request",
    "binding/binder.py": "one commit",
    "cli/commands/tasks/forward.py": "one connection of a command",
    "cli/interaction/terminal.py": "one command",
    "cli/interaction/follow_all_tasks.py": "one command",
    "client/channels.py": "one channel",
    "controllers/leadership/controller_manager.py": "a loop of one term, which survives its errors",
    "controllers/leadership/leader.py": "one term; its end is a new campaign",
    "coordination/etcd/guarded.py": "one campaign",
    "services/submission/hooks.py": "one call of a hook",
    "services/submission/group_commit.py": "the submissions that wait now; the next one starts it again",
    "server/process.py": "the API itself, whose end is the end of the process, and the wait for a signal",
    "store/core/postgres.py": "the end of one connection",
    "store/core/sqlite.py": "one copy of SQLite's log",
}


@pytest.fixture
async def tasks(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BackgroundTasks]:
    monkeypatch.setattr("mooring.concurrency.background._FIRST_SECONDS", 0.01)
    monkeypatch.setattr("mooring.concurrency.background._MAX_SECONDS", 0.02)
    tasks = BackgroundTasks()
    yield tasks
    await tasks.close()


async def _raises() -> None:
    raise RuntimeError("injected\nand the values of a row")


async def _returns() -> None:
    return None


async def _is_cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("fails", "reason"),
    [(_raises, "RuntimeError: injected"), (_returns, "it returned"), (_is_cancelled, "it was cancelled")],
)
async def test_a_task_that_ends_is_logged_counted_and_started_again(
    tasks: BackgroundTasks,
    fails: Callable[[], Awaitable[None]],
    reason: str,
):
    starts = 0
    again = asyncio.Event()

    async def work() -> None:
        nonlocal starts
        starts += 1
        if starts == 1:
            await fails()
            return
        again.set()
        await asyncio.Event().wait()

    counted = metrics.background_failures.labels("odd")._value.get()
    with capture_logs() as logged:
        state = tasks.start("odd", work)
        await asyncio.wait_for(again.wait(), 30)
    assert (state.failures, state.error, state.status) == (1, reason, "restarting")
    assert metrics.background_failures.labels("odd")._value.get() == counted + 1
    assert [entry["event"].partition(";")[0] for entry in logged] == ["Background task odd ended"]


async def test_a_task_that_fails_again_and_again_is_failing_until_it_runs_steadily(
    tasks: BackgroundTasks, monkeypatch: pytest.MonkeyPatch
):
    tries = asyncio.Semaphore(0)
    well = asyncio.Event()

    async def work() -> None:
        tries.release()
        if not well.is_set():
            raise OSError("no disk")
        await asyncio.Event().wait()

    state = tasks.start("odd", work)
    for _ in range(4):
        await tries.acquire()
    assert _status(tasks) == "failing"
    well.set()
    await tries.acquire()
    monkeypatch.setattr("mooring.concurrency.background._STEADY_SECONDS", 0)
    assert _status(tasks) == "running"
    assert state.error == "OSError: no disk"


def _status(tasks: BackgroundTasks) -> str:
    return tasks.states[0].status


async def test_a_fatal_error_of_a_task_ends_its_siblings(tasks: BackgroundTasks):
    ended = asyncio.Event()

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def work() -> None:
        raise ConnectionError("gone")

    tasks.start("connection", work, fatal=(ConnectionError,))
    with pytest.raises(ConnectionError, match="gone"):
        await tasks.run_with(main())
    assert ended.is_set()


async def test_a_fatal_error_while_the_scope_ends_is_no_failure_of_the_task(tasks: BackgroundTasks):
    gone, raised = asyncio.Event(), asyncio.Event()

    async def main() -> None:
        return None

    async def work() -> None:
        await gone.wait()
        raised.set()
        raise ConnectionError("gone")

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
            await raised.wait()
            # The supervisor of the other task has seen the error by then.
            await asyncio.sleep(0.01)

    state = tasks.start("connection", work, fatal=(ConnectionError,))
    tasks.start("slow", slow)
    with capture_logs() as logged:
        await tasks.run_with(main())
        await tasks.close()
    assert raised.is_set()
    assert (state.failures, logged) == (0, [])


async def test_closing_ends_every_task_the_last_first_even_one_that_covers_its_cancellation(
    tasks: BackgroundTasks, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mooring.concurrency.background._CANCELLED_SECONDS", 0.01)
    ended: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("covered")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("stubborn")

    async def plain() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("plain")

    tasks.start("plain", plain)
    tasks.start("stubborn", stubborn)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await tasks.close()
    assert ended == ["covered", "stubborn", "plain"]


def test_no_task_is_started_without_a_supervisor_unless_it_is_known_to_be_short():
    root = Path(mooring.__file__).parent
    found = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("create_task", "ensure_future")
    }
    assert found == set(SUPERVISED_ELSEWHERE)
