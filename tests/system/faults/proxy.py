"""A TCP proxy between the parts of a cluster, whose connections can be cut, held and healed; it has its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

_PIECE_BYTES = 256 * 1024
_DROP_BYTES, _DROP_SECONDS = 8 * 1024, 0.1


class Link:
    """One's connections to another part. Cut: they are gone, and new ones fail. Held: nothing gets through, either way.
    Slow: everything does, drop by drop.

    What was on its way when it was held arrives when it is healed, as in a network that was interrupted.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ports: list[int] = []
        self._loop = loop
        self._passes = asyncio.Event()
        self._passes.set()
        self._cut = False
        self._slow = False
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._iterations = count()

    def cut(self) -> None:
        self._call(self._cut_now)

    def hold(self) -> None:
        self._call(self._passes.clear)

    def slow_down(self) -> None:
        self._slow = True

    def heal(self) -> None:
        self._call(self._heal_now)

    async def listen(self, targets: Sequence[int]) -> None:
        """A port that leads to the first of the targets that answers, each time beginning with another."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._serving.add(task)
            try:
                await self._serve(targets, reader, writer)
            except (OSError, asyncio.CancelledError):
                pass
            finally:
                self._serving.discard(task)
                self._drop(writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_PIECE_BYTES)
        self.ports.append(server.sockets[0].getsockname()[1])

    async def _serve(self, targets: Sequence[int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        await self._passes.wait()
        if self._cut:
            return
        found = await self._connect(targets)
        if found is None:
            return
        far_reader, far_writer = found
        self._open.add(far_writer)
        ways = [asyncio.create_task(self._pass_on(*way)) for way in ((reader, far_writer), (far_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._drop(far_writer)

    async def _connect(self, targets: Sequence[int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        first = next(self._iterations)
        for iterate in range(len(targets)):
            with contextlib.suppress(OSError):
                port = targets[(first + iterate) % len(targets)]
                return await asyncio.open_connection("127.0.0.1", port, limit=_PIECE_BYTES)
        return None

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_DROP_BYTES if self._slow else _PIECE_BYTES):
            await self._passes.wait()
            writer.write(piece)
            await writer.drain()
            if self._slow:
                await asyncio.sleep(_DROP_SECONDS)
        await self._passes.wait()

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        writer.close()

    def _cut_now(self) -> None:
        self._cut = True
        for writer in self._open:
            writer.transport.abort()
        for task in self._serving:
            task.cancel()

    def _heal_now(self) -> None:
        self._cut = self._slow = False
        self._passes.set()

    def _call(self, change: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(change)


class Proxy:
    """Makes links; use `running_proxy`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def link(self, *routes: Sequence[int]) -> Link:
        """A link with one port per route; a route is the ports that it may lead to."""

        async def make() -> Link:
            link = Link(self._loop)
            for targets in routes:
                await link.listen(targets)
            return link

        return asyncio.run_coroutine_threadsafe(make(), self._loop).result()


@contextmanager
def running_proxy() -> Iterator[Proxy]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="proxy", daemon=True)
    thread.start()
    try:
        yield Proxy(loop)
    finally:
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
