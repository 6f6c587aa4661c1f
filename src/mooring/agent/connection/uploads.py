"""Download of uploads from the server, with the node's credential."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import aiohttp
import msgspec

from mooring.agent.connection.stream import Server
from mooring.model.errors import MooringError, Unavailable
from mooring.wire.workloads.uploads import DAMAGED, MAX_MANIFEST_BYTES, NOT_SHARED

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=60)
_PIECE_BYTES = 256 * 1024
_NOT_SERVING = frozenset({429, 502, 503, 504})
"""Answers of a server or proxy that cannot serve the request now, whatever the request."""


class DownloadFailed(Unavailable):
    """The server answers, but does not send the files."""


class _Problem(msgspec.Struct):
    code: str = ""
    message: str = ""


class UploadSource:
    def __init__(self, server: Server, credential: str) -> None:
        self._server = server
        self._credential = credential

    async def manifest(self, upload_id: UUID) -> bytes:
        async with self._answer(f"/api/agent/uploads/{upload_id}/manifest") as answer:
            content = b""
            while len(content) <= MAX_MANIFEST_BYTES and (piece := await answer.content.read(_PIECE_BYTES)):
                content += piece
            return content

    async def chunks(self, upload_id: UUID, positions: str) -> AsyncIterator[bytes]:
        async with self._answer(f"/api/agent/uploads/{upload_id}/content?chunks={positions}") as answer:
            async for piece in answer.content.iter_chunked(_PIECE_BYTES):
                yield piece

    @asynccontextmanager
    async def _answer(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a download.

        Raise Unavailable if no server serves requests now, DownloadFailed if one does not send the files, and
        MooringError if it does not have them.
        """
        url = self._server.next_url()
        answered = False
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT) as http,
                http.get(
                    f"{url}{path}",
                    headers={"Authorization": f"Bearer {self._credential}"},
                    ssl=self._server.tls,
                    allow_redirects=False,
                ) as answer,
            ):
                if answer.status in (400, 404, 422):
                    raise MooringError("the server no longer has the uploaded files", code="files-missing")
                if answer.status != 200:
                    problem = _problem(await answer.content.read(_PIECE_BYTES))
                    if answer.status in _NOT_SERVING and problem.code not in (DAMAGED, NOT_SHARED):
                        raise Unavailable(f"the server at {url} answered {answer.status}")
                    raise DownloadFailed(problem.message[:500] or f"the server at {url} answered {answer.status}")
                answered = True
                yield answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if answered:
                raise DownloadFailed(f"the server at {url} ended the download: {error}") from error
            raise Unavailable(f"the server at {url} cannot be reached: {error}") from error


def _problem(body: bytes) -> _Problem:
    try:
        return msgspec.json.decode(body, type=_Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Problem()
