"""`mooring forward`: forward a local port to a port of a workload."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.help import App
from mooring.cli.input.options import (
    WORK,
    ServerOption,
    TaskOption,
    WorkloadArgument,
)

if TYPE_CHECKING:
    from mooring.client import AsyncClient
    from mooring.client.channels import Channel

app = App()

_PIECE_BYTES = 64 * 1024
_PAUSES_SECONDS = (0.1, 0.3, 1.0, 2.0, 4.0)


@app.command(rich_help_panel=WORK)
def forward(
    name: WorkloadArgument,
    port: Annotated[
        str | None,
        typer.Argument(
            metavar="[LOCAL:]PORT",
            help="The task's port, or LOCAL:PORT for a different local port (default: its first assigned port).",
        ),
    ] = None,
    index: TaskOption = None,
    server: ServerOption = None,
) -> None:
    """Forward a local port to a port of a workload until Ctrl-C: `mooring forward notebook 8888`.

    Every connection goes to a ready task; without PORT, to the first port that was assigned to it.
    """
    local, remote = _ports(port)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_forward(server, name, index, local, remote))


def _ports(written: str | None) -> tuple[int, int | None]:
    """Return the local port (0: any) and the task's port."""
    if written is None:
        return 0, None
    local, _, remote = written.rpartition(":")
    try:
        ports = int(local or remote), int(remote)
    except ValueError:
        ports = -1, -1
    if not (0 <= ports[0] <= 65535 and 1 <= ports[1] <= 65535):
        raise typer.BadParameter(f"{written!r} is not a port; write 8888, or 9000:8888 for a different local port")
    return ports


async def _forward(server: str | None, name: str, index: int | None, local: int, remote: int | None) -> None:
    from mooring.cli.connection import connect_async
    from mooring.cli.interaction.terminal import running_task

    async with connect_async(server) as client:
        # A missing permission or an unknown name is reported before the first connection.
        detail = await client.workload(name)
        task = str(running_task(detail, index).id) if index is not None else None

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.closing(writer):
                await _connect(client, str(detail.id), task, remote, reader, writer)

        listening = await asyncio.start_server(serve, "127.0.0.1", local)
        port = listening.sockets[0].getsockname()[1]
        print(f"http://127.0.0.1:{port} forwards to {detail.name}{f':{remote}' if remote else ''}", flush=True)
        async with listening:
            await listening.serve_forever()


async def _connect(
    client: AsyncClient,
    workload: str,
    task: str | None,
    remote: int | None,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Forward one connection until it is closed."""
    from mooring.model.errors import MooringError

    try:
        async with AsyncExitStack() as stack:
            channel = await _opened(
                stack,
                lambda: client.forward(workload, remote) if task is None else client.forward_to_task(task, remote),
            )
            handing_in = asyncio.create_task(_forward_input(channel, reader))
            stack.callback(handing_in.cancel)
            while (piece := await channel.read()) is not None:
                writer.write(piece[0])
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            await channel.exit_code()
    except MooringError as problem:
        say(f"a connection failed: {problem}")
    except OSError:
        return


async def _opened(stack: AsyncExitStack, way: Callable[[], AbstractAsyncContextManager[Channel]]) -> Channel:
    """Return a channel to a ready task. The connection waits a short time for one."""
    from mooring.model.errors import TooManyAttempts, Unavailable

    for pause in _PAUSES_SECONDS:
        try:
            return await stack.enter_async_context(way())
        except (Unavailable, TooManyAttempts):
            await asyncio.sleep(pause)
    return await stack.enter_async_context(way())


async def _forward_input(channel: Channel, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE_BYTES):
            await channel.write(data)
    await channel.write(b"")
