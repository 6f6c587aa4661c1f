"""Signals between processes through etcd: commits update one key, which all servers watch."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from mooring.coordination.etcd.client import EtcdClient, EtcdError
from mooring.coordination.outage import Outage
from mooring.coordination.signals import Signal
from mooring.model.events import Topics

_AGAIN_SECONDS = 1.0
_DEBOUNCE_SECONDS = 0.02
KEY = b"/mooring/signal"


async def listen(client: EtcdClient, signal: Signal, *, key: bytes = KEY, own: str = "") -> None:
    """Forward the announcements of other servers to `signal` indefinitely; `own` is the name of this one.

    They carry no topics: announcements may be missed while the watch is broken, and the next one stands for all.
    """
    outage = Outage("etcd", "signals of other servers do not arrive; the timer finds their work")
    while True:
        try:
            async with aclosing(client.observe(key)) as changes:
                async for change in changes:
                    outage.over()
                    if change is None or not own or change.value != own.encode():
                        signal.send()
        except EtcdError as error:
            outage.failed(error)
            await asyncio.sleep(_AGAIN_SECONDS)


class Announcer:
    """Announces commits to other servers; commits in quick succession share one announcement."""

    def __init__(self, client: EtcdClient, name: str, *, key: bytes = KEY) -> None:
        self._client = client
        self._name = name.encode()
        self._key = key
        self._due = asyncio.Event()

    def announce(self, _topics: Topics = None) -> None:
        self._due.set()

    async def run(self) -> None:
        outage = Outage("etcd", "other servers notice the commits of this one only by their timers")
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._client.put(self._key, self._name)
            except EtcdError as error:
                outage.failed(error)
                # It is owed until it succeeds: nothing else may follow for hours.
                self._due.set()
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                outage.over()
                await asyncio.sleep(_DEBOUNCE_SECONDS)
