"""The API of uploads: declaration, content, use by workloads, quota, expiry, and nothing for other projects."""

from __future__ import annotations

import hashlib
import os
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest
from sqlalchemy import select, update

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.tenants import Role
from mooring.services.uploads import uploads as service
from mooring.services.uploads.expiry import expire
from mooring.store.core.engine import Connection
from mooring.store.tables import nodes, uploads
from mooring.store.tenancy import admin_actions, memberships, projects, users
from mooring.store.uploads import chunks as stored_chunks
from mooring.wire.workloads.uploads import CHUNK_BYTES, Entry, digest_of, encode_manifest
from tests.api.world import World
from tests.store.databases import on_sqlite

Headers = dict[str, str]
WEEK = timedelta(days=7)
SMALL, OTHER = b"print(1)\n", b"print(2)\n"


def manifest(**files: bytes) -> bytes:
    entries = []
    for name, content in files.items():
        parts = [content[start : start + CHUNK_BYTES] for start in range(0, len(content), CHUNK_BYTES)]
        entries.append(Entry(path=name, size=len(content), chunks=[digest_of(part) for part in parts]))
    return encode_manifest(entries)


async def declared(world: World, headers: Headers, described: bytes, **query: str) -> httpx2.Response:
    return await world.client.post("/api/uploads", content=described, headers=headers, params=query)


async def sent(world: World, headers: Headers, upload: str, chunks: str, body: bytes) -> httpx2.Response:
    path = f"/api/uploads/{upload}/content"
    return await world.client.put(path, content=body, headers=headers, params={"chunks": chunks})


async def uploaded(world: World, headers: Headers, content: bytes = SMALL) -> str:
    upload: str = (await declared(world, headers, manifest(file=content))).json()["id"]
    assert (await sent(world, headers, upload, "0", content)).status_code == 204
    done = await world.client.post(f"/api/uploads/{upload}/complete", headers=headers)
    assert done.json()["complete"], done.text
    return upload


async def submitted(world: World, headers: Headers, upload: str, **more: Any) -> httpx2.Response:
    container = {"command": ["python3", "file"], "resources": {"cpu": 1}}
    body = {"containers": [container], "files": {"upload": upload}, "pool": "default", **more}
    return await world.client.post("/api/workloads", json=body, headers=headers)


async def last_used(world: World, upload: str, age: timedelta) -> None:
    values = update(uploads).where(uploads.c.id == UUID(upload)).values(used_at=now() - age)
    await world.services.database.write(lambda c: c.execute(values))


async def with_credential(world: World, node: str, credential: str) -> None:
    hashed = hashlib.sha256(credential.encode()).hexdigest()
    known = update(nodes).where(nodes.c.name == node).values(credential_hash=hashed)
    await world.services.database.write(lambda c: c.execute(known))


async def expired(world: World) -> int:
    return await expire(world.services.database, world.services.uploads.content, WEEK)


async def joined(world: World, name: str, project: str) -> None:
    """Make a user a member of another project."""

    async def work(connection: Connection) -> None:
        of = await projects.find(connection, "default", project)
        user = await users.find(connection, name)
        await memberships.add(connection, of, user, Role.USER, actor=admin_actions.SERVER, now=now())

    await world.services.database.write(work)


def stored(world: World) -> list[str]:
    root = world.services.uploads.content._root
    return sorted(path.name for path in root.glob("*/*/*"))


@pytest.fixture
async def ann(world: World) -> Headers:
    return await world.user("ann", project="vision")


@on_sqlite
async def test_an_interrupted_upload_continues_and_the_same_folder_sends_nothing(world: World, ann: Headers):
    large = os.urandom(CHUNK_BYTES + 10)
    described = manifest(large=large, small=SMALL)
    first = (await declared(world, ann, described)).json()
    assert (first["complete"], first["missing"], first["files"]) == (False, "0-2", 2)

    broken = await sent(world, ann, first["id"], "0-2", large[: CHUNK_BYTES + 5])
    assert broken.status_code == 422
    second = (await declared(world, ann, described)).json()
    assert (second["id"], second["missing"]) == (first["id"], "1-2")

    assert (await sent(world, ann, first["id"], "1-2", large[CHUNK_BYTES:] + SMALL)).status_code == 204
    assert (await declared(world, ann, described)).json()["complete"]


@on_sqlite
async def test_content_that_is_not_the_declared_one_is_not_kept(world: World, ann: Headers):
    upload = (await declared(world, ann, manifest(file=SMALL))).json()["id"]
    for chunks, body in (("0", OTHER), ("0", SMALL[:-1]), ("0", b""), ("1", SMALL)):
        assert (await sent(world, ann, upload, chunks, body)).json()["code"] in (
            "wrong-chunk",
            "invalid-chunks",
        )
    assert stored(world) == []
    assert not (await world.client.post(f"/api/uploads/{upload}/complete", headers=ann)).json()["complete"]


@on_sqlite
async def test_a_manifest_that_leads_out_of_its_folder_is_refused_and_leaves_nothing(world: World, ann: Headers):
    before = await world.counts()
    for path in ("../up", "/etc/passwd", "a/../../b"):
        refused = await declared(world, ann, encode_manifest([Entry(path=path)]))
        assert refused.json()["code"] == "invalid-manifest"
    assert await world.counts() == before


@on_sqlite
async def test_work_uses_only_a_complete_upload_of_its_own_project(world: World, ann: Headers):
    bob = await world.user("bob", project="speech")
    upload = await uploaded(world, ann)
    half = (await declared(world, ann, manifest(file=OTHER))).json()["id"]
    assert (await submitted(world, ann, upload)).status_code == 202
    assert (await submitted(world, ann, half)).status_code == 404
    assert (await submitted(world, bob, upload)).status_code == 404
    assert (await submitted(world, ann, upload, kind="deployment")).status_code == 422


@on_sqlite
async def test_another_project_learns_nothing_from_a_digest(world: World, ann: Headers):
    bob = await world.user("bob", project="speech")
    upload = await uploaded(world, ann)
    # The same content is missing for him, so that he has to have it to use it.
    own = (await declared(world, bob, manifest(file=SMALL))).json()
    assert (own["complete"], own["missing"]) == (False, "0")
    assert own["id"] != upload
    for method, path in (("PUT", "content?chunks=0"), ("POST", "complete")):
        refused = await world.client.request(method, f"/api/uploads/{upload}/{path}", headers=bob)
        unknown = await world.client.request(method, f"/api/uploads/{UUID(int=1)}/{path}", headers=bob)
        assert refused.status_code == unknown.status_code == 404
    assert (await world.client.delete(f"/api/uploads/{upload}", headers=bob)).status_code == 404
    assert [each["id"] for each in (await world.client.get("/api/uploads", headers=bob)).json()] == [own["id"]]


async def test_the_quota_of_a_project_refuses_what_exceeds_it_before_anything_is_sent(world: World, ann: Headers):
    large = os.urandom(15_000_000)
    assert (await declared(world, ann, manifest(file=large))).status_code == 200
    refused = await declared(world, ann, manifest(file=os.urandom(6_000_000)))
    assert (refused.status_code, refused.json()["code"]) == (409, "upload-quota")
    # Content that the project has already is not charged again.
    assert (await declared(world, ann, manifest(file=large, small=SMALL))).status_code == 200
    bob = await world.user("bob", project="speech")
    assert (await declared(world, bob, manifest(file=os.urandom(6_000_000)))).status_code == 200


async def test_the_quota_of_a_user_counts_all_projects_and_names_the_amounts(world: World, ann: Headers):
    await world.user("bob", project="speech")
    await joined(world, "ann", "speech")
    first = (await declared(world, ann, manifest(file=os.urandom(15_000_000)), project="vision")).json()["id"]
    other = manifest(file=os.urandom(12_000_000))
    refused = await declared(world, ann, other, project="speech")
    assert (refused.status_code, refused.json()["code"]) == (409, "upload-user-quota")
    assert "needs 12.0 MB more" in refused.json()["message"]
    assert "15.0 of 25.0 MB" in refused.json()["message"]
    assert refused.json()["details"]["quota_bytes"] == 25_000_000
    # The content of another member does not count.
    assert (await declared(world, await world.token("bob"), other)).status_code == 200
    assert (await declared(world, ann, other, project="speech")).status_code == 200
    assert (await declared(world, ann, manifest(file=os.urandom(12_000_000)), project="vision")).status_code == 409
    assert (await world.client.delete(f"/api/uploads/{first}", headers=ann)).status_code == 204
    assert (await declared(world, ann, manifest(file=os.urandom(12_000_000)), project="vision")).status_code == 200


@on_sqlite
async def test_a_list_has_the_uploads_used_last(world: World, ann: Headers, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service, "MAX_LISTED", 2)
    made = [(await declared(world, ann, manifest(file=b"%d" % number))).json()["id"] for number in range(3)]
    await last_used(world, made[1], WEEK)
    listed = (await world.client.get("/api/uploads", headers=ann)).json()
    assert [each["id"] for each in listed] == [made[2], made[0]]


@on_sqlite
async def test_a_small_manifest_is_charged_for_a_block(world: World, ann: Headers):
    empty = manifest()
    assert (await declared(world, ann, empty)).status_code == 200
    async with world.services.database.read() as connection:
        [(project, charged)] = (await connection.execute(select(uploads.c.project_id, uploads.c.manifest_bytes))).all()
        assert (
            await stored_chunks.charged_to_project(connection, project)
            == charged
            == stored_chunks.BLOCK_BYTES
            > len(empty)
        )


async def test_an_unused_upload_expires_with_its_content_but_not_what_others_share(world: World, ann: Headers):
    old = await uploaded(world, ann)
    both = (await declared(world, ann, manifest(file=SMALL, more=OTHER))).json()
    assert both["missing"] == "1"
    await sent(world, ann, both["id"], "1", OTHER)
    await last_used(world, old, WEEK * 2)
    assert await expired(world) == 1
    assert stored(world) == sorted([digest_of(SMALL), digest_of(OTHER)])
    await last_used(world, both["id"], WEEK * 2)
    assert await expired(world) == 1
    assert stored(world) == []
    counts = await world.counts()
    assert (counts["uploads"], counts["upload_chunks"]) == (0, 0)


async def test_an_upload_of_live_work_neither_expires_nor_is_removed(world: World, ann: Headers):
    upload = await uploaded(world, ann)
    work = (await submitted(world, ann, upload)).json()["id"]
    await last_used(world, upload, WEEK * 2)
    assert await expired(world) == 0
    assert (await world.client.delete(f"/api/uploads/{upload}", headers=ann)).json()["code"] == "in-use"
    assert stored(world) == [digest_of(SMALL)]
    assert (await world.client.delete(f"/api/workloads/{work}", headers=ann)).status_code == 202
    assert await expired(world) == 1
    assert stored(world) == []
    assert (await submitted(world, ann, upload)).status_code == 404


@on_sqlite
async def test_content_that_was_lost_on_disk_is_asked_for_again(world: World, ann: Headers):
    upload = await uploaded(world, ann)
    [file] = world.services.uploads.content._root.glob("*/*/*")
    file.unlink()
    again = (await declared(world, ann, manifest(file=SMALL))).json()
    assert (again["id"], again["complete"], again["missing"]) == (upload, False, "0")
    assert (await submitted(world, ann, upload)).status_code == 404


@on_sqlite
async def test_a_server_with_another_folder_says_that_it_has_to_be_shared(world: World, ann: Headers):
    upload = await uploaded(world, ann)
    other = update(uploads).values(store_id="another")
    await world.services.database.write(lambda c: c.execute(other))
    refused = await sent(world, ann, upload, "0", SMALL)
    assert (refused.status_code, refused.json()["code"]) == (503, "uploads-not-shared")


@on_sqlite
async def test_a_node_gets_only_the_uploads_of_its_own_tasks(world: World, ann: Headers):
    await world.add_node("n1")
    await world.add_node("n2")
    credentials = {name: {"Authorization": f"Bearer mn-{name}"} for name in ("n1", "n2")}
    for name in credentials:
        await with_credential(world, name, f"mn-{name}")
    upload = await uploaded(world, ann)
    work = (await submitted(world, ann, upload)).json()["id"]
    await world.move(work, TaskStatus.SCHEDULED)

    async def asked(what: str, headers: Headers) -> httpx2.Response:
        return await world.client.get(f"/api/agent/uploads/{upload}/{what}", headers=headers)

    assert (await asked("manifest", credentials["n1"])).content == manifest(file=SMALL)
    assert (await asked("content?chunks=0", credentials["n1"])).content == SMALL
    for what in ("manifest", "content?chunks=0"):
        assert (await asked(what, credentials["n2"])).status_code == 404
        assert (await asked(what, ann)).status_code == 401
        assert (await asked(what, {})).status_code == 401
