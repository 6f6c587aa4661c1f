"""The web console: a page and its assets. It is a client of the API like any other, and its files are public."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from mooring.api.middleware.outermost import CONSOLE_FILES
from mooring.api.page_headers import PAGE_HEADERS
from mooring.console import files
from mooring.model.tenancy.access import not_there

_PAGES = ("login", "overview", "workloads", "nodes", "sharing", "timeline", "new", "admin")
"""First parts of the paths that the console shows pages for."""
_IMMUTABLE = "public, max-age=31536000, immutable"
router = APIRouter(include_in_schema=False)


async def page(request: Request) -> Response:
    """Return the console's page, which shows the part that the path names."""
    return await _file(request, files.INDEX)


router.add_api_route("/", page, methods=["GET"])
for _page in _PAGES:
    router.add_api_route(f"/{_page}", page, methods=["GET"])
    router.add_api_route(f"/{_page}/{{rest:path}}", page, methods=["GET"])


@router.get(CONSOLE_FILES + "{name}")
async def asset(request: Request, name: str) -> Response:
    """Return a file of the console."""
    if name not in files.names():
        raise not_there(f"console file {name[:63]!r}")
    return await _file(request, name)


async def _file(request: Request, name: str) -> Response:
    # The first reader of a file waits while a thread compresses it.
    found = await asyncio.to_thread(files.read, name)
    headers = {
        **PAGE_HEADERS,
        "ETag": found.tag,
        "Cache-Control": _IMMUTABLE if found.named_by_content else "no-cache",
    }
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.compressed, media_type=found.media_type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(found.body, media_type=found.media_type, headers=headers)
