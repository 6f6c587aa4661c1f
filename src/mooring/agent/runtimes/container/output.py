"""Output of containers: continued after a restart, and saved before they are removed from the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from mooring.agent.access.logs import CHUNK
from mooring.agent.options import Options
from mooring.agent.runtimes.container.engine import Engine, EngineRefused, EngineTransient
from mooring.agent.runtimes.process.supervisor.output import RotatedFile
from mooring.model.workloads.output import OutputPosition

log = structlog.get_logger(__name__)


async def save_output(engine: Engine, name: str, path: Path, options: Options, *, terminal: bool) -> None:
    """Save the output to files at this path, replacing existing ones."""
    for number in range(options.log_files):
        path.with_name(f"{path.name}.{number}" if number else path.name).unlink(missing_ok=True)
    file = RotatedFile(str(path), options.log_bytes, options.log_files)
    waiting = bytearray()
    try:
        try:
            async for data in engine.output(name, terminal=terminal, tail=None, follow=False):
                waiting += data
                if len(waiting) > CHUNK:
                    await asyncio.to_thread(file.write, bytes(waiting))
                    waiting.clear()
        except EngineTransient:
            raise
        except EngineRefused as refusal:
            log.warning("what a container said is lost", container=name, reason=refusal.message)
        await asyncio.to_thread(file.write, bytes(waiting))
    finally:
        file.close()


async def unread_output(
    engine: Engine, name: str, position: OutputPosition, *, terminal: bool, from_start: bool
) -> AsyncIterator[bytes]:
    """Yield the output after this position until the container ends; all of it if the position is no longer stored."""
    stored = b"".join([data async for data in engine.output(name, terminal=terminal, tail=None, follow=False)])
    skip = position.found_in(stored, from_start=from_start) or 0
    async for data in engine.output(name, terminal=terminal, tail=None, follow=True):
        if skip >= len(data):
            skip -= len(data)
        else:
            yield data[skip:]
            skip = 0
