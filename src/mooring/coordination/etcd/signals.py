"""Signals between processes through etcd: one key that every commit touches, and that whoever waits watches."""

from __future__ import annotations

import asyncio

import structlog

from mooring.coordination.etcd.client import Compacted, EtcdClient, EtcdError
from mooring.coordination.signals import Signal

_log = structlog.get_logger(__name__)
_AGAIN_SECONDS = 1.0
_DEBOUNCE_SECONDS = 0.02
KEY = b"/mooring/signal"


async def listen(client: EtcdClient, signal: Signal, *, key: bytes = KEY) -> None:
    """Pass on to `signal` what others announce, for ever."""
    while True:
        try:
            revision = (await client.get(key)).header.revision
            # What was announced while nobody listened.
            signal.send()
            async for _ in client.watch(key, since=revision + 1):
                signal.send()
        except Compacted:
            continue
        except EtcdError as error:
            _log.warning("Cannot listen for signals; passes run on the timer", error=str(error))
            await asyncio.sleep(_AGAIN_SECONDS)


class Announcer:
    """Tells the others that something was committed: many commits in a short time make one announcement."""

    def __init__(self, client: EtcdClient, name: str, *, key: bytes = KEY) -> None:
        self._client = client
        self._name = name.encode()
        self._key = key
        self._due = asyncio.Event()

    def announce(self) -> None:
        self._due.set()

    async def run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._client.put(self._key, self._name)
            except EtcdError as error:
                _log.warning("Cannot announce a change; others see it on their timer", error=str(error))
            await asyncio.sleep(_DEBOUNCE_SECONDS)
