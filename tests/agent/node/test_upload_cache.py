"""The cache of uploads: each chunk is downloaded once, verified, and evicted only while no task needs any."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from mooring.agent.node.upload_cache import UploadCache
from mooring.model.errors import MooringError
from mooring.wire.workloads.uploads import Entry, digest_of, encode_manifest, positions, read_manifest

UPLOAD = UUID(int=1)
CONTENT = {"a": os.urandom(1000), "b": os.urandom(2000)}


class Source:
    """A server that has one upload, and sends other content for the digests in `damaged`."""

    def __init__(self) -> None:
        entries = [Entry(path=name, size=len(data), chunks=[digest_of(data)]) for name, data in CONTENT.items()]
        self.content = encode_manifest(entries)
        self.asked: list[str] = []
        self.damaged = False

    async def manifest(self, upload_id: UUID) -> bytes:
        return self.content

    async def chunks(self, upload_id: UUID, asked: str) -> AsyncIterator[bytes]:
        self.asked.append(asked)
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
    with pytest.raises(MooringError, match="other content"):
        await fetch(cache_of(tmp_path, source))
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
