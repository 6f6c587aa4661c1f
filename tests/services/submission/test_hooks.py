"""Hooks are called before and after a submission; one that raises or hangs is named and affects nothing else."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select

from mooring.extensions import hooks as hooks_module
from mooring.model.errors import Unavailable
from mooring.services.submission.hooks import Hooks, RefusedByHook
from mooring.services.submission.submission import SubmissionService
from mooring.store.tables import workloads
from tests.services.submission.test_submission import outcomes, request
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

pytestmark = on_sqlite


async def names(harness: Harness) -> list[str]:
    return [row.name for row in await harness.rows(select(workloads.c.name).order_by(workloads.c.name))]


async def test_a_hook_may_reject_and_receives_the_written_ids(harness: Harness):
    seen: list[dict[str, Any]] = []
    received = asyncio.Queue[list[str]]()
    loop = asyncio.get_running_loop()

    class Manners:
        def pre_enqueue(self, facts: dict[str, Any]) -> str | None:
            seen.append(facts)
            return "say please" if facts["name"] == "rude" else None

        def post_enqueue(self, ids: list[str]) -> None:
            loop.call_soon_threadsafe(received.put_nowait, ids)

    submissions = SubmissionService(harness.database, Hooks({"manners": Manners()}))
    with pytest.raises(RefusedByHook, match="say please"):
        await submissions.submit(harness.principal, request("rude"))
    accepted = await submissions.submit(harness.principal, request("kind"))
    assert await received.get() == [str(accepted.id)]
    assert await names(harness) == ["kind"]
    assert (seen[1]["name"], seen[1]["user"], seen[1]["tasks"]) == ("kind", "admin", 1)


async def test_a_hook_refuses_single_workloads_of_a_batch(harness: Harness):
    hook = SimpleNamespace(pre_enqueue=lambda facts: "no" if facts["name"] == "b" else None)
    submissions = SubmissionService(harness.database, Hooks({"picky": hook}))
    sent = [{"name": name, "containers": [{"command": ["true"]}]} for name in "abc"]
    answer = await submissions.submit_batch(harness.principal, sent)
    assert (answer.accepted, answer.refused) == (2, 1)
    assert answer.workloads[1].error is not None
    assert (answer.workloads[1].error.code, answer.workloads[1].error.details) == ("refused-by-hook", {"hook": "picky"})
    assert await names(harness) == ["a", "c"]


async def test_a_hook_that_raises_refuses_and_is_named(harness: Harness):
    def broken(_facts: object) -> None:
        raise KeyError("quota service")

    submissions = SubmissionService(harness.database, Hooks({"broken": SimpleNamespace(pre_enqueue=broken)}))
    with pytest.raises(Unavailable, match="the hook 'broken' raised KeyError: 'quota service'"):
        await submissions.submit(harness.principal, request("w"))
    assert await names(harness) == []


async def test_a_hook_with_a_wrong_answer_is_named(harness: Harness):
    submissions = SubmissionService(harness.database, Hooks({"odd": SimpleNamespace(pre_enqueue=lambda facts: False)}))
    with pytest.raises(Unavailable, match="the hook 'odd' returned a bool"):
        await submissions.submit(harness.principal, request("w"))


async def test_a_hook_that_hangs_is_named_and_the_server_continues(harness: Harness):
    released = threading.Event()
    submissions = SubmissionService(
        harness.database, Hooks({"slow": SimpleNamespace(pre_enqueue=lambda facts: released.wait())}, seconds=0.01)
    )
    with pytest.raises(Unavailable, match=r"the hook 'slow' did not answer within 0\.01 s"):
        await submissions.submit(harness.principal, request("w"))
    with pytest.raises(Unavailable, match="the hook 'slow' still hangs"):
        await submissions.submit(harness.principal, request("w"))
    released.set()


async def test_a_failing_post_enqueue_hook_changes_nothing(harness: Harness):
    called = threading.Event()

    def broken(_ids: object) -> None:
        called.set()
        raise RuntimeError("nobody listens")

    submissions = SubmissionService(harness.database, Hooks({"broken": SimpleNamespace(post_enqueue=broken)}))
    assert await outcomes(submissions, harness.principal, request("w")) == ["w"]
    assert await asyncio.to_thread(called.wait, 10)
    assert await outcomes(submissions, harness.principal, request("v")) == ["v"]


async def test_hooks_of_installed_packages_are_found(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    entry = SimpleNamespace(name="closed", load=lambda: SimpleNamespace(pre_enqueue=lambda facts: "closed today"))
    monkeypatch.setattr(hooks_module, "entry_points", lambda group: [entry] if group == "mooring.hooks" else [])
    assert await outcomes(SubmissionService(harness.database), harness.principal, request("w")) == ["refused-by-hook"]
