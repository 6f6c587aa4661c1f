"""The front page of a server that only schedules, and so has no console."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from mooring.api.auth.request_access import Served

router = APIRouter(include_in_schema=False)

_PAGE_HEADERS = {
    # A page without scripts, styles, forms or frames, which loads nothing.
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Mooring</title></head>
<body>
<h1>Mooring</h1>
<p>A multi-tenant cluster scheduler. This server is running, version {version}.</p>
<ul>
<li><a href="/docs">API documentation</a> (<a href="/openapi.json">OpenAPI</a>)</li>
<li><a href="/ready">Readiness</a> and <a href="/health">health</a></li>
</ul>
<p>Log in from a terminal:</p>
<pre>mooring login --server {url}</pre>
<p>Then <code>mooring run -- echo hello</code> runs a command, and <code>mooring --help</code> lists all commands.</p>
</body>
</html>
"""


@router.get("/")
async def front_page(services: Served) -> HTMLResponse:
    """Introduce the server to a person with a browser."""
    page = _PAGE.format(version=escape(services.version), url=escape(services.public_url.rstrip("/")))
    return HTMLResponse(page, headers=_PAGE_HEADERS)
