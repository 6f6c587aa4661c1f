"""The documentation of the API at `/docs`: Swagger UI from the installed package, under the policy of the console.

It has the origin of the console, so that a script in it could read the console's token, and a page of another site that
shows it in a frame could have users click in it. It keeps no credential of its own.
"""

from __future__ import annotations

import asyncio
from functools import cache
from importlib import resources

from fastapi import APIRouter, Response

from mooring.api.page_headers import PAGE_HEADERS
from mooring.model.tenancy.access import not_there

router = APIRouter(include_in_schema=False)

_MEDIA_TYPES = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "favicon-32x32.png": "image/png",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Mooring - Swagger UI</title>
<link rel="stylesheet" href="swagger/swagger-ui.css">
<link rel="icon" href="swagger/favicon-32x32.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="swagger/swagger-ui-bundle.js"></script>
<script src="swagger/start.js"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  layout: "BaseLayout",
  deepLinking: true,
  displayRequestDuration: true,
  filter: true,
  persistAuthorization: false,
  presets: [SwaggerUIBundle.presets.apis],
  showCommonExtensions: true,
  showExtensions: true,
  tryItOutEnabled: true,
});
"""


@router.get("/docs")
async def page() -> Response:
    """Return the page, whose addresses are relative, so that it works behind a proxy with a prefix."""
    return Response(_PAGE, media_type="text/html; charset=utf-8", headers=PAGE_HEADERS)


@router.get("/swagger/start.js")
async def start() -> Response:
    return Response(_START, media_type="text/javascript; charset=utf-8", headers=PAGE_HEADERS)


@router.get("/swagger/{name}")
async def file(name: str) -> Response:
    """Return a file of Swagger UI."""
    if name not in _MEDIA_TYPES:
        raise not_there(f"file {name[:63]!r}")
    content = await asyncio.to_thread(_read, name)
    return Response(content, media_type=_MEDIA_TYPES[name], headers={**PAGE_HEADERS, "Cache-Control": "max-age=3600"})


@cache
def _read(name: str) -> bytes:
    return resources.files("fastapi_swagger.resources").joinpath(name).read_bytes()
