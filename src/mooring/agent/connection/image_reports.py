"""Tells the server which images are on the node, whenever they are others than it was told."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress

import structlog

from mooring.agent.runtime import ImageKeeping, Runtime
from mooring.agent.stream import Connection
from mooring.model.errors import InvalidInput, MooringError, Unavailable
from mooring.model.images import MOST_REPORTED, parse_image
from mooring.wire.agent import Images

_log = structlog.get_logger(__name__)
_LOOK_SECONDS = 60.0
"""Others than the agent fetch and remove images, too."""


class ImageReports:
    def __init__(self) -> None:
        self._look = asyncio.Event()
        self._used: frozenset[str] = frozenset()

    def used(self, digests: frozenset[str]) -> None:
        """The images that tasks were started from: where there are new ones, some were fetched."""
        if not digests <= self._used:
            self._look.set()
        self._used = digests

    async def run(self, connection: Connection, runtimes: Collection[Runtime]) -> None:
        """On one connection, which has been told of none so far."""
        keeping = [runtime for runtime in runtimes if isinstance(runtime, ImageKeeping)]
        told: Mapping[str, int] | None = None
        while keeping:
            self._look.clear()
            with suppress(Unavailable):
                present = await _present(keeping)
                if present is not None and present != told:
                    await connection.send(Images(images=present))
                    told = present
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._look.wait()


async def _present(keeping: Collection[ImageKeeping]) -> dict[str, int] | None:
    """None where a runtime does not say, for now."""
    try:
        return largest([await runtime.images() for runtime in keeping])
    except (MooringError, OSError) as problem:
        _log.debug("cannot list images", reason=str(problem))
        return None


def largest(listed: Collection[Mapping[str, int]]) -> dict[str, int]:
    """As many as are told, by their whole names."""
    sizes: dict[str, int] = {}
    for images in listed:
        for name, size in images.items():
            with suppress(InvalidInput):
                sizes[str(parse_image(name))] = size
    most = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:MOST_REPORTED]
    return dict(sorted(most))
