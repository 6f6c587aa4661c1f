"""What a container has said, kept when it is removed from the engine."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from mooring.agent.containers.engine import Engine, EngineRefused
from mooring.agent.logs import CHUNK
from mooring.agent.options import Options
from mooring.agent.supervisor.output import RotatedFile


async def keep_output(engine: Engine, name: str, path: Path, options: Options, *, terminal: bool) -> None:
    """Into files at this path, in place of those that are there."""
    for number in range(options.log_files):
        path.with_name(f"{path.name}.{number}" if number else path.name).unlink(missing_ok=True)
    file = RotatedFile(str(path), options.log_bytes, options.log_files)
    waiting = bytearray()
    try:
        with contextlib.suppress(EngineRefused):
            async for data in engine.output(name, terminal=terminal, tail=None, follow=False):
                waiting += data
                if len(waiting) > CHUNK:
                    await asyncio.to_thread(file.write, bytes(waiting))
                    waiting.clear()
        await asyncio.to_thread(file.write, bytes(waiting))
    finally:
        file.close()
