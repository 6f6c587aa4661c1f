"""The files of the web console: public, cacheable by their content, and under a strict policy."""

import re

import pytest

from mooring.console import files
from tests.api.world import World
from tests.store.databases import on_sqlite


@on_sqlite
@pytest.mark.parametrize("path", ["/", "/login", "/workloads", "/workloads/web", "/nodes/n1"])
async def test_each_page_is_the_console_under_a_strict_policy(world: World, path: str):
    page = await world.client.get(path)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["cache-control"] == "no-cache"
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert page.headers["referrer-policy"] == "no-referrer"
    # No script in the page itself, and none from elsewhere.
    assert re.findall(r"<script[^>]*>[^<]", page.text) == []
    for address in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert address.startswith("/console/"), address
        assert (await world.client.get(address)).status_code == 200


@on_sqlite
async def test_a_file_named_by_its_content_is_cached_permanently(world: World):
    script = next(name for name in files.names() if name.endswith(".js"))
    answer = await world.client.get(f"/console/{script}", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.content == files.read(script).body
    plain = await world.client.get(f"/console/{script}", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    again = await world.client.get(f"/console/{script}", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@on_sqlite
@pytest.mark.parametrize("name", ["nothing.js", "..%2Ffiles.py", "%2e%2e/files.py", "files.py"])
async def test_no_other_file_is_served(world: World, name: str):
    answer = await world.client.get(f"/console/{name}")
    assert answer.status_code == 404
