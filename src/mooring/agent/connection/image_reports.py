"""Reports of the images on the node, sent whenever they change."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress

import structlog

from mooring.agent.connection.stream import Connection
from mooring.agent.runtimes.contract import ImageKeeping, Runtime
from mooring.model.errors import InvalidInput, MooringError, Unavailable
from mooring.model.workloads.images import MAX_REPORTED_IMAGES, parse_image
from mooring.wire.agents.agent_protocol import Images

_log = structlog.get_logger(__name__)
_POLL_SECONDS = 60.0
"""Polling interval, since images are also pulled and removed without the agent."""


class ImageReports:
    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self._used: frozenset[str] = frozenset()

    def used(self, digests: frozenset[str]) -> None:
        """Note the images of running tasks: a new one means that an image was pulled."""
        if not digests <= self._used:
            self._requested.set()
        self._used = digests

    async def run(self, connection: Connection, runtimes: Collection[Runtime]) -> None:
        """Send reports on one connection, on which none has been sent so far."""
        keeping = [runtime for runtime in runtimes if isinstance(runtime, ImageKeeping)]
        sent: Mapping[str, int] | None = None
        if not keeping:
            await asyncio.Event().wait()
        while True:
            self._requested.clear()
            with suppress(Unavailable):
                present = await _present(keeping)
                if present is not None and present != sent:
                    await connection.send(Images(images=present))
                    sent = present
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._requested.wait()


async def _present(keeping: Collection[ImageKeeping]) -> dict[str, int] | None:
    """Return the images of all runtimes, or None if a runtime cannot list them now."""
    try:
        return largest([await runtime.images() for runtime in keeping])
    except (MooringError, OSError) as problem:
        _log.debug("cannot list images", reason=str(problem))
        return None


def largest(listed: Collection[Mapping[str, int]]) -> dict[str, int]:
    """Return the images by full name, up to the number that is reported."""
    sizes: dict[str, int] = {}
    for images in listed:
        for name, size in images.items():
            with suppress(InvalidInput):
                sizes[str(parse_image(name))] = size
    most = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:MAX_REPORTED_IMAGES]
    return dict(sorted(most))
