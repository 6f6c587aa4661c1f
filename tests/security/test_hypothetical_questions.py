"""The process that answers what-if questions: what it receives, loads and tells, and what it costs its server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.tenancy.tenants import Principal, Role
from mooring.services.queries.queries import Queries
from mooring.services.what_if import reading, what_if
from mooring.services.what_if.what_if import WhatIf
from mooring.simulation.what_if.process import Bounds
from mooring.wire.cluster.what_if import WhatIfAnswer, WhatIfRequest
from tests.security.test_request_cost import Threads, threads
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

__all__ = ["threads"]

BOUNDS = Bounds(cpu_seconds=60, memory_bytes=4 << 30, niceness=0)


async def ask(harness: Harness, principal: Principal, **request: Any) -> WhatIfAnswer:
    return await WhatIf(Queries(harness.database), BOUNDS).ask(principal, WhatIfRequest(**request), (), ())


@on_sqlite
async def test_modules_in_the_working_directory_of_the_server_are_not_loaded(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    marker = tmp_path / "loaded"
    for module in ("pickle", "resource", "signal"):
        (tmp_path / f"{module}.py").write_text(f"open({str(marker)!r}, 'w').close()")
    monkeypatch.chdir(tmp_path)
    await harness.node("n1")
    await ask(harness, harness.principal)
    assert not marker.exists()


@on_sqlite
async def test_process_receives_no_secret_of_the_environment(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    secrets = ("MOORING_ADMIN_PASSWORD", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "CREDENTIALS_DIRECTORY")
    for name in secrets:
        monkeypatch.setenv(name, "hunter2")
    started, given = asyncio.create_subprocess_exec, dict[str, str]()

    async def recorded(*arguments: Any, env: dict[str, str], **options: Any) -> Any:
        given.update(env)
        return await started(*arguments, env=env, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", recorded)
    await harness.node("n1")
    await ask(harness, harness.principal)
    assert given["PYTHONPATH"]
    assert "hunter2" not in given.values()


@on_sqlite
async def test_scenario_is_made_off_the_event_loop(harness: Harness, threads: Threads):
    threads.watch(what_if, "scenario_of")
    threads.watch(what_if, "is_visible")
    await harness.node("n1", cpu=4)
    await harness.run(await harness.submit("running", cpu=2, memory=0))
    await ask(harness, harness.principal)
    assert threads.off_loop() == {"scenario_of", "is_visible"}


@on_sqlite
async def test_cluster_with_too_many_tasks_is_refused_before_they_are_read(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reading, "MOST_TASKS", 9)
    await harness.node("n1", cpu=4)
    running = await harness.submit("running", cpu=1, memory=0)
    await harness.run(running)
    await harness.submit("pending", replicas=8, cpu=4, memory=0)
    await ask(harness, harness.principal)
    await harness.submit("another", cpu=4, memory=0)
    with pytest.raises(InvalidInput, match="10 tasks"):
        await ask(harness, harness.principal)


@on_sqlite
async def test_the_answer_reveals_no_number_of_tasks_of_others(harness: Harness):
    await harness.node("n1", cpu=4)
    await harness.run(await harness.submit("endless", cpu=1, memory=0))
    other = Principal(UUID(int=7), "eve", Role.USER, UUID(int=8), harness.principal.domain_id, "key")

    async def notes_for(principal: Principal) -> set[str]:
        return {text for text in (await ask(harness, principal)).assumptions if "without a known end" in text}

    assert await notes_for(harness.principal) == {"1 running tasks without a known end run for the whole time"}
    assert await notes_for(other) == {"running tasks without a known end run for the whole time"}
