"""Client of the resource controller, the HTTP service that creates nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp

from mooring.model.errors import Conflict, Unavailable
from mooring.model.names import shown

_PATH = "/api/internal/workers/scale-up"
_SECONDS = 10.0
_AGAIN_LATER = frozenset({408, 429})
_SHOWN_BYTES = 300


class ResourceController:
    def __init__(self, url: str, token: str | None = None, *, seconds: float = _SECONDS) -> None:
        """`token` travels as a bearer. A call that takes longer than `seconds` is given up."""
        self._url = url.rstrip("/") + _PATH
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout = aiohttp.ClientTimeout(total=seconds)

    async def scale_up(self, key: str, facts: Mapping[str, Any]) -> None:
        """Ask for nodes; the same key again is the same request.

        Raise Unavailable if a retry may succeed, Conflict if the controller refuses. Neither tells the address,
        which may have a password in it.
        """
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout) as session,
                session.post(
                    self._url,
                    json=dict(facts),
                    headers={**self._headers, "Idempotency-Key": key},
                    allow_redirects=False,
                ) as answer,
            ):
                if answer.ok and answer.status < 300:
                    return
                said = (await answer.content.read(_SHOWN_BYTES)).decode(errors="replace")
        except TimeoutError:
            raise Unavailable("the resource controller did not answer in time") from None
        except aiohttp.InvalidURL:
            raise Conflict("CONTROL_PLANE_API_URL is not a valid address") from None
        except aiohttp.ClientError as error:
            raise Unavailable(f"the resource controller cannot be reached ({type(error).__name__})") from None
        problem = f"the resource controller answered {answer.status}: {shown(said)}".rstrip(": ")
        if answer.status >= 500 or answer.status in _AGAIN_LATER:
            raise Unavailable(problem)
        raise Conflict(problem)
