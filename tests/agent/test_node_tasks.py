"""Tasks with uploaded files: right content or a clear failure."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from mooring.agent.connection.uploads import DownloadFailed
from mooring.agent.node import upload_cache
from mooring.agent.node.upload_cache import UploadCache
from mooring.agent.node_tasks import NodeTasks
from mooring.agent.reconcile import Plan
from mooring.agent.runtimes.contract import Observed
from mooring.wire.agents.desired_tasks import DesiredTask
from mooring.wire.workloads.uploads import digest_of
from tests.agent.builders import eventually, order
from tests.agent.conftest import Node
from tests.agent.node.test_upload_cache import CONTENT, UPLOAD, Source


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def cache(node: Node, source: Source) -> UploadCache:
    return UploadCache(node.root, source, max_bytes=10**6, changed=node.changed.set)


@pytest.fixture
def tasks(node: Node, cache: UploadCache) -> NodeTasks:
    tasks = NodeTasks("n1", changed=node.changed.set, disk_full=lambda: None)
    tasks.runtimes["process"] = node.runtime
    tasks.uploads = cache
    return tasks


async def failed(tasks: NodeTasks, task: DesiredTask) -> Observed:
    await tasks.act(Plan(start=(task,)))
    await eventually(lambda: tasks.is_known(task.task_id))
    found = (await tasks.observe({task.task_id}))[task.task_id]
    assert found.status == "FAILED"
    return found


async def test_a_task_gets_the_right_files_from_a_damaged_cache(
    node: Node, tasks: NodeTasks, cache: UploadCache, source: Source
):
    async with cache.fetched(UPLOAD):
        cache.path(digest_of(CONTENT["a"])).write_bytes(bytes(len(CONTENT["a"])))
        cache.path(digest_of(CONTENT["b"])).write_bytes(bytes(len(CONTENT["b"])))
    task = order("sha256sum", "a", "b", upload_id=UPLOAD)
    await tasks.act(Plan(start=(task,)))
    assert (await node.end(task)).status == "SUCCEEDED"
    assert (await node.output(task)).split()[::2] == [digest_of(data) for data in CONTENT.values()]
    assert source.asked == ["0-1", "0-1"]


async def test_a_node_that_damages_its_cache_again_fails_the_task(
    tasks: NodeTasks, cache: UploadCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def repair_without_success(*_: object) -> None:
        return

    async with cache.fetched(UPLOAD):
        cache.path(digest_of(CONTENT["b"])).write_bytes(bytes(len(CONTENT["b"])))
    monkeypatch.setattr(cache, "repair", repair_without_success)
    assert (await failed(tasks, order("true", upload_id=UPLOAD))).code == "files-damaged"


async def test_a_task_whose_files_the_server_has_lost_fails_with_the_reason(
    tasks: NodeTasks, source: Source, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(upload_cache, "_FIRST_RETRY_SECONDS", 0.0)
    source.failures = itertools.repeat(DownloadFailed("parts of the upload are missing; upload the folder again"))
    found = await failed(tasks, order("true", upload_id=UPLOAD))
    assert found.code == "files-unavailable"
    assert found.reason is not None
    assert "upload the folder again" in found.reason
