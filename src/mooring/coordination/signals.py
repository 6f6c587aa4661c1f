"""Signals of commits. A lost signal delays work until the next timer but never loses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Protocol, TypeVar

from mooring.model.events import Topic, Topics


class Receiver(Protocol):
    def receive(self, topics: Topics) -> None: ...


R = TypeVar("R", bound=Receiver)


class Signal:
    """A commit signal for any number of waiters; each waiter sees signals sent since its last wait."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._receivers: list[Receiver] = []

    def send(self, topics: Topics = None) -> None:
        """Notify the waiters, and pass the topics to the receivers."""
        self._notify()
        for receiver in self._receivers:
            receiver.receive(topics)

    def subscribe(self, receiver: R) -> R:
        self._receivers.append(receiver)
        return receiver

    def _notify(self) -> None:
        self._count += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    @property
    def count(self) -> int:
        return self._count

    async def wait(self, timeout: float, seen: int | None = None) -> int:
        """Wait for a signal after `seen` (default: now) or the timeout. Return the count to pass as the next `seen`."""
        if seen is not None and seen != self._count:
            return self._count
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(future)
        return self._count


class Subscription(Signal):
    """A signal for some commits: it ignores commits that can give its waiters no work."""

    def __init__(
        self,
        ignores: Callable[[], Set[Topic]],
        *,
        can_wait: Set[Topic] = frozenset(),
        wait_seconds: float = 0.0,
    ) -> None:
        """`ignores` returns the topics that are of no concern now. A commit with nothing but those and topics that
        `can_wait` is signalled after `wait_seconds`, together with the others until then.
        """
        super().__init__()
        self._ignores = ignores
        self._can_wait = can_wait
        self._wait_seconds = wait_seconds
        self._later: asyncio.TimerHandle | None = None

    def receive(self, topics: Topics) -> None:
        if topics is not None:
            concerning = topics - self._ignores()
            if not concerning:
                return
            if concerning <= self._can_wait:
                if self._later is None:
                    self._later = asyncio.get_running_loop().call_later(self._wait_seconds, self.send)
                return
        self.send()

    def _notify(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        super()._notify()
