"""Hooks are asked and told; one that raises or hangs is named and hurts nobody."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select

from mooring import hooks as hooks_module
from mooring.intake.hooks import Hooks, RefusedByHook
from mooring.intake.intake import Intake
from mooring.model.errors import Unavailable
from mooring.store.tables import workloads
from tests.intake.test_intake import outcomes, request
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

pytestmark = on_sqlite


async def names(harbour: Harbour) -> list[str]:
    return [row.name for row in await harbour.rows(select(workloads.c.name).order_by(workloads.c.name))]


async def test_a_hook_may_refuse_and_is_told_what_was_written(harbour: Harbour):
    seen: list[dict[str, Any]] = []
    told = asyncio.Queue[list[str]]()
    loop = asyncio.get_running_loop()

    class Manners:
        def pre_enqueue(self, facts: dict[str, Any]) -> str | None:
            seen.append(facts)
            return "say please" if facts["name"] == "rude" else None

        def post_enqueue(self, ids: list[str]) -> None:
            loop.call_soon_threadsafe(told.put_nowait, ids)

    intake = Intake(harbour.database, Hooks({"manners": Manners()}))
    with pytest.raises(RefusedByHook, match="say please"):
        await intake.submit(harbour.principal, request("rude"))
    accepted = await intake.submit(harbour.principal, request("kind"))
    assert await told.get() == [str(accepted.id)]
    assert await names(harbour) == ["kind"]
    assert (seen[1]["name"], seen[1]["user"], seen[1]["tasks"]) == ("kind", "admin", 1)


async def test_of_a_batch_only_those_are_refused_that_the_hook_refuses(harbour: Harbour):
    hook = SimpleNamespace(pre_enqueue=lambda facts: "no" if facts["name"] == "b" else None)
    intake = Intake(harbour.database, Hooks({"picky": hook}))
    sent = [{"name": name, "containers": [{"command": ["true"]}]} for name in "abc"]
    answer = await intake.submit_batch(harbour.principal, sent)
    assert (answer.accepted, answer.refused) == (2, 1)
    assert answer.workloads[1].error is not None
    assert (answer.workloads[1].error.code, answer.workloads[1].error.details) == ("refused-by-hook", {"hook": "picky"})
    assert await names(harbour) == ["a", "c"]


async def test_a_hook_that_raises_refuses_and_is_named(harbour: Harbour):
    def broken(_facts: object) -> None:
        raise KeyError("quota service")

    intake = Intake(harbour.database, Hooks({"broken": SimpleNamespace(pre_enqueue=broken)}))
    with pytest.raises(Unavailable, match="the hook 'broken' raised KeyError: 'quota service'"):
        await intake.submit(harbour.principal, request("w"))
    assert await names(harbour) == []


async def test_a_hook_with_a_wrong_answer_is_named(harbour: Harbour):
    intake = Intake(harbour.database, Hooks({"odd": SimpleNamespace(pre_enqueue=lambda facts: False)}))
    with pytest.raises(Unavailable, match="the hook 'odd' answered with a bool"):
        await intake.submit(harbour.principal, request("w"))


async def test_a_hook_that_hangs_is_named_and_the_server_goes_on(harbour: Harbour):
    released = threading.Event()
    intake = Intake(
        harbour.database, Hooks({"slow": SimpleNamespace(pre_enqueue=lambda facts: released.wait())}, seconds=0.01)
    )
    with pytest.raises(Unavailable, match=r"the hook 'slow' did not answer within 0\.01 s"):
        await intake.submit(harbour.principal, request("w"))
    with pytest.raises(Unavailable, match="the hook 'slow' still hangs"):
        await intake.submit(harbour.principal, request("w"))
    released.set()


async def test_what_becomes_of_a_hook_that_is_told_changes_nothing(harbour: Harbour):
    called = threading.Event()

    def broken(_ids: object) -> None:
        called.set()
        raise RuntimeError("nobody listens")

    intake = Intake(harbour.database, Hooks({"broken": SimpleNamespace(post_enqueue=broken)}))
    assert await outcomes(intake, harbour.principal, request("w")) == ["w"]
    assert await asyncio.to_thread(called.wait, 10)
    assert await outcomes(intake, harbour.principal, request("v")) == ["v"]


async def test_hooks_of_installed_packages_are_found(harbour: Harbour, monkeypatch: pytest.MonkeyPatch):
    entry = SimpleNamespace(name="closed", load=lambda: SimpleNamespace(pre_enqueue=lambda facts: "closed today"))
    monkeypatch.setattr(hooks_module, "entry_points", lambda group: [entry] if group == "mooring.hooks" else [])
    assert await outcomes(Intake(harbour.database), harbour.principal, request("w")) == ["refused-by-hook"]
