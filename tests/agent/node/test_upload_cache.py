"""The cache of uploads: each chunk is downloaded once, verified, and evicted only while no task needs any."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from mooring.agent.connection.uploads import DownloadFailed
from mooring.agent.node import upload_cache
from mooring.agent.node.upload_cache import UploadCache
from mooring.model.errors import MooringError, Unavailable
from mooring.wire.workloads.uploads import Entry, digest_of, encode_manifest, positions, read_manifest

UPLOAD = UUID(int=1)
CONTENT = {"a": os.urandom(1000), "b": os.urandom(2000)}


class Source:
    """A server that has one upload. `damaged`: it sends other content; `failures`: its next answers."""

    def __init__(self) -> None:
        entries = [Entry(path=name, size=len(data), chunks=[digest_of(data)]) for name, data in CONTENT.items()]
        self.content = encode_manifest(entries)
        self.asked: list[str] = []
        self.damaged = False
        self.failures: Iterator[MooringError | None] = iter(())

    async def manifest(self, upload_id: UUID) -> bytes:
        return self.content

    async def chunks(self, upload_id: UUID, asked: str) -> AsyncIterator[bytes]:
        self.asked.append(asked)
        if (failure := next(self.failures, None)) is not None:
            raise failure
        known = {digest_of(data): data for data in CONTENT.values()}
        chunks = read_manifest(self.content).chunks()
        data = b"".join(known[chunks[position].digest] for position in positions(asked, len(chunks)))
        data = bytes(len(data)) if self.damaged else data
        # In pieces that do not end where chunks end.
        for start in range(0, len(data), 700):
            await asyncio.sleep(0)
            yield data[start : start + 700]


@pytest.fixture
def source() -> Source:
    return Source()


def cache_of(folder: Path, source: Source, max_bytes: int = 10**6) -> UploadCache:
    return UploadCache(folder, source, max_bytes=max_bytes, changed=lambda: None)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def fetch(cache: UploadCache) -> None:
    async with cache.fetched(UPLOAD):
        for data in CONTENT.values():
            assert cache.path(digest_of(data)).read_bytes() == data


async def test_many_tasks_share_one_download(tmp_path: Path, source: Source):
    cache = cache_of(tmp_path, source)
    await asyncio.gather(*(fetch(cache) for _ in range(5)))
    assert source.asked == ["0-1"]
    # The next agent finds it, and only what is missing is downloaded again.
    cache.path(digest_of(CONTENT["b"])).unlink()
    await fetch(cache_of(tmp_path, source))
    assert source.asked == ["0-1", "1"]


async def test_content_that_the_manifest_does_not_name_is_refused_and_not_kept(tmp_path: Path, source: Source):
    source.damaged = True
    with pytest.raises(MooringError, match="does not match"):
        await fetch(cache_of(tmp_path, source))
    assert files_in(tmp_path) == []


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without a pause."""
    monkeypatch.setattr(upload_cache, "_FIRST_RETRY_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_a_download_that_the_server_refuses_fails_after_some_attempts(tmp_path: Path, source: Source):
    source.failures = itertools.repeat(DownloadFailed("parts of the upload are missing"))
    with pytest.raises(MooringError, match="12 attempts: parts of the upload are missing") as refused:
        await fetch(cache_of(tmp_path, source))
    assert refused.value.code == "files-unavailable"
    assert len(source.asked) == upload_cache._ATTEMPTS


@pytest.mark.usefixtures("at_once")
async def test_a_server_that_is_away_is_awaited_and_its_failures_are_not_counted(tmp_path: Path, source: Source):
    source.failures = itertools.chain([Unavailable("connection refused")] * 50, [None])
    await fetch(cache_of(tmp_path, source))
    assert len(source.asked) == 51


@pytest.mark.usefixtures("at_once")
async def test_attempts_that_bring_a_chunk_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Stumbling(Source):
        """Ends each download after its first chunk, and fails in between."""

        async def chunks(self, upload_id: UUID, asked: str) -> AsyncIterator[bytes]:
            if len(self.asked) % 2:
                self.asked.append(asked)
                raise DownloadFailed("not now")
            async for piece in super().chunks(upload_id, asked.split("-")[0]):
                yield piece

    monkeypatch.setattr(upload_cache, "_ATTEMPTS", 2)
    source = Stumbling()
    await fetch(cache_of(tmp_path, source))
    assert source.asked == ["0", "1", "1"]


async def test_damaged_chunks_are_found_and_only_they_are_downloaded_again(tmp_path: Path, source: Source):
    cache = cache_of(tmp_path, source)
    async with cache.fetched(UPLOAD) as manifest:
        damaged = cache.path(digest_of(CONTENT["b"]))
        damaged.write_bytes(bytes(len(CONTENT["b"])))
        await cache.repair(UPLOAD, manifest)
        assert damaged.read_bytes() == CONTENT["b"]
    assert source.asked == ["0-1", "1"]


async def test_a_cancelled_download_closes_its_file_after_the_write_in_progress(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
):
    writing, go_on = threading.Event(), threading.Event()
    write = os.write
    failed: list[OSError] = []

    def slow(descriptor: int, data: bytes) -> int:
        writing.set()
        go_on.wait()
        try:
            return write(descriptor, data)
        except OSError as error:
            failed.append(error)
            raise

    cache = cache_of(tmp_path, source)
    downloading = asyncio.create_task(fetch(cache))
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", slow)
        await asyncio.to_thread(writing.wait)
        downloading.cancel()
        await asyncio.sleep(0)
        too_early = downloading.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await downloading
    assert not too_early
    assert failed == []
    assert files_in(tmp_path) == []


async def test_chunks_used_longest_ago_go_first_and_none_while_a_task_needs_them(tmp_path: Path, source: Source):
    cache = cache_of(tmp_path, source, max_bytes=2500)
    async with cache.fetched(UPLOAD):
        os.utime(cache.path(digest_of(CONTENT["a"])), (1, 1))
        await cache.clean_up()
        assert cache.path(digest_of(CONTENT["a"])).exists()
    await cache.clean_up()
    assert not cache.path(digest_of(CONTENT["a"])).exists()
    assert cache.path(digest_of(CONTENT["b"])).exists()
