"""Requests at a rate that does not ask whether the server keeps up, from processes of their own.

Each is sent when it is due, over a connection that is free or a new one, and its answer is timed from then on.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import cast
from urllib.parse import urlsplit

import uvloop

_PROCESSES = 2
_MAX_CONNECTIONS = 500
"""Of one process."""
_ANSWER_SECONDS = 30.0


@dataclass
class Answers:
    statuses: Counter[int] = field(default_factory=Counter)
    accepted_seconds: list[float] = field(default_factory=list)
    unexplained: int = 0
    """Refused without a word of when to come back."""
    unanswered: int = 0
    """Not even sent, since no connection was free any more, or broken off."""
    cpu_seconds: float = 0.0
    """Of those who asked."""

    @property
    def total(self) -> int:
        return self.statuses.total() + self.unanswered

    def add(self, other: Answers) -> None:
        self.statuses += other.statuses
        self.accepted_seconds += other.accepted_seconds
        self.unexplained += other.unexplained
        self.unanswered += other.unanswered
        self.cpu_seconds += other.cpu_seconds


def request(method: str, path: str, headers: Mapping[str, str], body: object = None) -> bytes:
    """Return the complete bytes to send, so that the flooding clients need little CPU."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: mooring", f"Content-Length: {len(content)}"]
    lines += ["Content-Type: application/json"] if content else []
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def flood(url: str, requests: Sequence[bytes], per_second: float, seconds: float) -> Answers:
    """Send these in a cycle at this rate."""
    found = Answers()
    with ProcessPoolExecutor(_PROCESSES, multiprocessing.get_context("spawn")) as pool:
        shares = [requests[number::_PROCESSES] for number in range(_PROCESSES)]
        for part in [pool.submit(_flood, url, share, per_second / _PROCESSES, seconds) for share in shares]:
            found.add(part.result())
    return found


def ask_in_turn(
    url: str, requests: Sequence[bytes], connections: int, seconds: float, per_second: float | None = None
) -> Answers:
    """Send them over so many connections, each as soon as the one before it was answered, or at most at this rate."""

    async def work() -> Answers:
        return await _Flood(url, requests).run_in_turn(connections, seconds, per_second)

    return uvloop.run(work())


def flood_in_turn(url: str, requests: Sequence[bytes], connections: int, seconds: float) -> Answers:
    """The same from a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(ask_in_turn, url, requests, connections, seconds).result()


def _flood(url: str, requests: Sequence[bytes], per_second: float, seconds: float) -> Answers:
    async def work() -> Answers:
        return await _Flood(url, requests).run(per_second, seconds)

    began = time.process_time()
    found = uvloop.run(work())
    found.cpu_seconds = time.process_time() - began
    return found


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, flood: _Flood) -> None:
        self._flood = flood
        self._received = bytearray()
        self._due: float | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, content: bytes, due: float) -> None:
        assert self._transport is not None
        self._due = due
        self._transport.write(content)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0 or self._due is None:
            return
        head = bytes(self._received[:head_end]).lower()
        length = head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
        if len(self._received) < head_end + 4 + int(length or b"0"):
            return
        self._received.clear()
        due, self._due = self._due, None
        self._flood.answered(self, int(head.split(b" ", 2)[1]), b"\r\nretry-after: " in head, due)

    def connection_lost(self, error: Exception | None) -> None:
        self._flood.lost(self, broken_off=self._due is not None)


class _Flood:
    def __init__(self, url: str, requests: Sequence[bytes]) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        self._host, self._port = address.hostname, address.port
        self._requests = cycle(requests)
        self._time = asyncio.get_running_loop().time
        self._again_until = 0.0
        """Until then a connection asks again as soon as it has its answer."""
        self._pause_seconds = 0.0
        self._idle: list[_Connection] = []
        self._connections = 0
        self._unfinished = 0
        self._progress = asyncio.Event()
        self._opening: set[asyncio.Task[None]] = set()
        self._found = Answers()

    async def run(self, per_second: float, seconds: float) -> Answers:
        began = self._time()
        for number in range(int(per_second * seconds)):
            due = began + number / per_second
            await asyncio.sleep(max(0.0, due - self._time()))
            self._send(due)
        return await self._rest()

    async def run_in_turn(self, connections: int, seconds: float, per_second: float | None = None) -> Answers:
        self._again_until = self._time() + seconds
        self._pause_seconds = 0.0 if per_second is None else connections / per_second
        for _ in range(connections):
            self._send(self._time())
        await asyncio.sleep(seconds)
        return await self._rest()

    async def _rest(self) -> Answers:
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                while self._unfinished:
                    self._progress.clear()
                    await self._progress.wait()
        self._found.unanswered += self._unfinished
        return self._found

    def _finish(self) -> None:
        self._unfinished -= 1
        self._progress.set()

    def answered(self, connection: _Connection, status: int, explained: bool, due: float) -> None:
        self._finish()
        self._found.statuses[status] += 1
        if 200 <= status < 300:
            self._found.accepted_seconds.append(self._time() - due)
        elif status == 429 and not explained:
            self._found.unexplained += 1
        self._idle.append(connection)
        if self._time() < self._again_until:
            again = max(due + self._pause_seconds, self._time())
            asyncio.get_running_loop().call_at(again, self._send, again)

    def lost(self, connection: _Connection, *, broken_off: bool) -> None:
        self._connections -= 1
        if broken_off:
            self._finish()
            self._found.unanswered += 1
        elif connection in self._idle:
            self._idle.remove(connection)

    def _send(self, due: float) -> None:
        content = next(self._requests)
        if self._idle:
            self._unfinished += 1
            self._idle.pop().send(content, due)
        elif self._connections < _MAX_CONNECTIONS:
            self._unfinished += 1
            self._connections += 1
            opening = asyncio.create_task(self._open(content, due))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
        else:
            self._found.unanswered += 1

    async def _open(self, content: bytes, due: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: _Connection(self), self._host, self._port)
        except OSError:
            self._connections -= 1
            self._finish()
            self._found.unanswered += 1
            return
        connection.send(content, due)
