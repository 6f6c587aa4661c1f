"""Uploads while something else happens to them: removal during content and submissions, crashes, lost files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, text, update

from mooring.clock import now
from mooring.model.errors import Conflict
from mooring.services.uploads import expiry
from mooring.services.uploads.content import ContentFolder
from mooring.store.core.engine import Connection, Database
from mooring.store.tables import projects, upload_chunks, uploads, users
from mooring.store.uploads import uploads as stored_uploads
from mooring.store.uploads.uploads import Declared, Quotas
from mooring.store.workloads import new_workloads
from mooring.wire.workloads.uploads import CHUNK_BYTES, digest_of
from tests.api.routes.workloads.test_uploads import (
    OTHER,
    SMALL,
    Headers,
    declared,
    expired,
    manifest,
    stored,
    submitted,
    uploaded,
)
from tests.api.world import World
from tests.store.databases import on_postgresql, on_sqlite


@pytest.fixture
async def ann(world: World) -> Headers:
    return await world.user("ann", project="vision")


async def removed(world: World, headers: Headers, upload: str) -> int:
    return (await world.client.delete(f"/api/uploads/{upload}", headers=headers)).status_code


async def rows(world: World) -> dict[str, int]:
    """The uses of each chunk."""
    async with world.services.database.read() as connection:
        found = await connection.execute(select(upload_chunks.c.digest, upload_chunks.c.uses))
        return dict(found.all())


async def until_waiting_for_a_lock(database: Database, task: asyncio.Task[Any]) -> None:
    """Wait until a transaction on PostgreSQL waits for another, or the task is done without that."""
    async with database.engine.connect() as watching:
        waiting = text(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        while not task.done() and not (await watching.execute(waiting)).scalar_one():
            await watching.rollback()


async def test_content_of_an_upload_that_is_removed_meanwhile_is_not_kept(world: World, ann: Headers):
    large = os.urandom(CHUNK_BYTES + 10)
    upload = (await declared(world, ann, manifest(file=large))).json()["id"]

    async def body() -> AsyncIterator[bytes]:
        yield large[: CHUNK_BYTES + 5]
        assert await removed(world, ann, upload) == 204
        yield large[CHUNK_BYTES + 5 :]

    answer = await world.client.put(
        f"/api/uploads/{upload}/content", content=body(), headers=ann, params={"chunks": "0-1"}
    )
    assert answer.status_code == 404
    assert stored(world) == []
    assert await rows(world) == {}


@on_sqlite
async def test_a_broken_request_for_an_upload_that_is_removed_meanwhile_leaves_nothing(world: World, ann: Headers):
    upload = (await declared(world, ann, manifest(a=SMALL, b=OTHER))).json()["id"]

    async def body() -> AsyncIterator[bytes]:
        yield SMALL
        assert await removed(world, ann, upload) == 204

    answer = await world.client.put(
        f"/api/uploads/{upload}/content", content=body(), headers=ann, params={"chunks": "0-1"}
    )
    assert answer.status_code == 404
    assert stored(world) == []


async def test_uses_are_counted_by_uploads_not_by_what_manifests_look_like(world: World, ann: Headers):
    one = await uploaded(world, ann, SMALL)
    shared = (await declared(world, ann, manifest(copy=SMALL, more=OTHER))).json()["id"]
    named = (await declared(world, ann, manifest(**{digest_of(OTHER): SMALL}))).json()["id"]
    assert await rows(world) == {digest_of(SMALL): 3, digest_of(OTHER): 1}
    # The same manifest again is the same upload.
    await declared(world, ann, manifest(copy=SMALL, more=OTHER))
    assert await rows(world) == {digest_of(SMALL): 3, digest_of(OTHER): 1}

    # Other manifests are not read: this one could not be.
    unreadable = update(uploads).where(uploads.c.id == UUID(named)).values(manifest=b"")
    await world.services.database.write(lambda c: c.execute(unreadable))
    assert await removed(world, ann, shared) == 204
    assert await rows(world) == {digest_of(SMALL): 2}
    assert await removed(world, ann, one) == 204
    assert await rows(world) == {digest_of(SMALL): 1}
    assert stored(world) == [digest_of(SMALL)]


async def test_many_chunks_are_counted_and_removed(world: World, ann: Headers):
    files = {f"f{number}": b"%d" % number for number in range(4500)}
    upload = (await declared(world, ann, manifest(**files))).json()["id"]
    part = dict(list(files.items())[:10])
    rest = (await declared(world, ann, manifest(**part))).json()["id"]
    assert sorted((await rows(world)).values()) == [1] * 4490 + [2] * 10
    assert await removed(world, ann, upload) == 204
    assert sorted((await rows(world)).values()) == [1] * 10
    assert await removed(world, ann, rest) == 204
    assert await rows(world) == {}


async def test_content_that_cannot_be_removed_stays_charged_until_it_is(
    world: World, ann: Headers, monkeypatch: pytest.MonkeyPatch
):
    upload = await uploaded(world, ann)
    with monkeypatch.context() as broken:

        def refuse(*_: object) -> None:
            raise OSError("the disk is read-only")

        broken.setattr(ContentFolder, "remove", refuse)
        assert await removed(world, ann, upload) == 500
    assert await rows(world) == {digest_of(SMALL): 0}
    assert stored(world) == [digest_of(SMALL)]
    # An upload of the same content uses it again; otherwise it is removed.
    again = await uploaded(world, ann)
    await expired(world)
    assert (await rows(world), stored(world)) == ({digest_of(SMALL): 1}, [digest_of(SMALL)])
    with monkeypatch.context() as broken:
        broken.setattr(ContentFolder, "remove", refuse)
        assert await removed(world, ann, again) == 500
    await expired(world)
    assert (await rows(world), stored(world)) == ({}, [])


async def test_a_removal_finds_the_submission_in_progress_that_uses_the_upload(
    world: World, ann: Headers, monkeypatch: pytest.MonkeyPatch
):
    database = world.services.database
    upload = await uploaded(world, ann)
    written, go_on = asyncio.Event(), asyncio.Event()
    submit: Callable[..., Awaitable[Any]] = new_workloads.submit

    async def paused(*given: Any, **options: Any) -> Any:
        result = await submit(*given, **options)
        written.set()
        await go_on.wait()
        return result

    monkeypatch.setattr(new_workloads, "submit", paused)
    submitting = asyncio.create_task(submitted(world, ann, upload))
    waiting = asyncio.create_task(written.wait())
    await asyncio.wait([submitting, waiting], return_when=asyncio.FIRST_COMPLETED)
    assert waiting.done()
    removing = asyncio.create_task(world.client.delete(f"/api/uploads/{upload}", headers=ann))
    if database.dialect == "postgresql":
        await until_waiting_for_a_lock(database, removing)
    go_on.set()
    assert (await submitting).status_code == 202
    assert (await removing).json()["code"] == "in-use"
    assert stored(world) == [digest_of(SMALL)]


@on_postgresql
async def test_two_declarations_of_one_user_in_two_projects_do_not_exceed_the_quota_together(
    world: World, ann: Headers
):
    await world.user("bob", project="speech")
    database = world.services.database
    async with database.read() as connection:
        ids = dict((await connection.execute(select(projects.c.name, projects.c.id))).all())
        user = (await connection.execute(select(users.c.id).where(users.c.name == "ann"))).scalar_one()

    async def declare(connection: Connection, project: str, content: bytes) -> None:
        new = Declared(
            project_id=ids[project],
            digest=digest_of(content),
            manifest=manifest(file=content),
            store_id="s",
            size=len(content),
            files=1,
            chunks=[(digest_of(content), 600_000)],
        )
        quotas = Quotas(project_bytes=10**7, user_bytes=10**6)
        await stored_uploads.declare(connection, new, quotas=quotas, user_id=user, now=now())

    async with database.engine.begin() as first:
        await declare(first, "vision", SMALL)
        second = asyncio.create_task(database.write(lambda c: declare(c, "speech", OTHER)))
        await until_waiting_for_a_lock(database, second)
    with pytest.raises(Conflict) as refused:
        await second
    assert refused.value.code == "upload-user-quota"


@on_sqlite
async def test_content_and_names_are_on_disk_before_an_upload_is_complete(
    world: World, ann: Headers, monkeypatch: pytest.MonkeyPatch
):
    root = world.services.uploads.content._root
    events: list[tuple[str, str]] = []
    fsync, replace, used = os.fsync, Path.replace, stored_uploads.used

    def sync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        fsync(descriptor)
        if path.is_relative_to(root):
            events.append(("synced", digest_of(path.read_bytes()) if path.is_file() else str(path.relative_to(root))))

    def rename(path: Path, target: Path) -> Path:
        events.append(("named", target.name))
        return replace(path, target)

    async def mark(connection: Connection, *given: Any, complete: bool | None = None) -> bool:
        if complete:
            events.append(("complete", ""))
        return await used(connection, *given, complete=complete)

    upload = (await declared(world, ann, manifest(a=SMALL, b=OTHER))).json()["id"]
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", rename)
    monkeypatch.setattr(stored_uploads, "used", mark)
    await world.client.put(
        f"/api/uploads/{upload}/content", content=SMALL + OTHER, headers=ann, params={"chunks": "0-1"}
    )
    assert (await world.client.post(f"/api/uploads/{upload}/complete", headers=ann)).json()["complete"]

    [project] = (UUID(folder.name) for folder in root.iterdir() if folder.is_dir())
    complete = events.index(("complete", ""))
    for digest in (digest_of(SMALL), digest_of(OTHER)):
        named = events.index(("named", digest))
        assert events.index(("synced", digest)) < named
        assert named < events.index(("synced", f"{project}/{digest[:2]}")) < complete
    assert {("synced", "."), ("synced", str(project))} <= set(events[:complete])


async def test_a_sweep_removes_content_that_no_upload_contains_and_nothing_else(world: World, ann: Headers):
    await uploaded(world, ann)
    content = world.services.uploads.content
    [file] = content._root.glob("*/*/*")
    own, gone = file.parent.parent, content._root / str(uuid4())
    strays = [folder / digest[:2] / digest for folder in (own, gone) for digest in [digest_of(b"stray")]]
    partial, arriving = own / "aa" / ".partial-1", own / "aa" / ".partial-2"
    for path in (*strays, partial, arriving):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    os.utime(partial, (1, 1))
    assert await expiry.sweep(world.services.database, content) == 2
    assert stored(world) == sorted([digest_of(SMALL), arriving.name])
    assert not gone.exists()
