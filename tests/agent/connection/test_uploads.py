"""Downloads of uploads: which answers of a server are worth waiting for, and which are failures."""

from __future__ import annotations

from uuid import UUID

import pytest
from aiohttp import web

from mooring.agent.connection.stream import Server
from mooring.agent.connection.uploads import DownloadFailed, UploadSource
from mooring.model.errors import MooringError, Unavailable
from tests.servers import free_port

UPLOAD = UUID(int=1)


async def download(answer: web.StreamResponse | None) -> bytes:
    """Download from a server that gives this answer, and breaks off a stream; None: there is no server."""

    async def handle(request: web.Request) -> web.StreamResponse:
        assert answer is not None
        if not isinstance(answer, web.Response):
            await answer.prepare(request)
            await answer.write(b"a part")
            assert request.transport is not None
            request.transport.abort()
        return answer

    port = free_port()
    app = web.Application()
    app.router.add_get("/{rest:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        if answer is not None:
            await web.TCPSite(runner, "127.0.0.1", port).start()
        source = UploadSource(Server([f"http://127.0.0.1:{port}"]), "mn-1")
        return b"".join([piece async for piece in source.chunks(UPLOAD, "0")])
    finally:
        await runner.cleanup()


def problem(status: int, code: str) -> web.Response:
    return web.json_response({"code": code, "message": "as the server says", "details": {}}, status=status)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, Unavailable),
        (web.Response(status=502, text="<html>"), Unavailable),
        (problem(503, "unavailable"), Unavailable),
        (problem(429, "too-many-requests"), Unavailable),
        (problem(503, "upload-damaged"), DownloadFailed),
        (problem(503, "uploads-not-shared"), DownloadFailed),
        (problem(500, "internal"), DownloadFailed),
        (problem(401, "credential-refused"), DownloadFailed),
        (web.StreamResponse(), DownloadFailed),
        (problem(404, "not-found"), MooringError),
    ],
)
async def test_a_failure_says_whether_the_server_is_away_or_does_not_have_the_files(
    answer: web.StreamResponse | None, error: type[MooringError]
):
    with pytest.raises(MooringError) as failed:
        await download(answer)
    assert type(failed.value) is error


async def test_the_reason_is_the_servers():
    with pytest.raises(DownloadFailed, match="as the server says"):
        await download(problem(503, "upload-damaged"))
    assert await download(web.Response(body=b"content")) == b"content"
