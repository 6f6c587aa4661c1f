"""Ctrl-C and SIGTERM as exceptions, held back while a step must not be interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class Interrupted(BaseException):
    """An interrupt by a signal. Like KeyboardInterrupt it is not an Exception."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(self.signal.name)


class Interrupts:
    """Context in which SIGINT and SIGTERM raise `Interrupted`, or wait for the end of `held`.

    `hang_up`: SIGHUP as well, the end of the user's terminal.
    """

    def __init__(self, *, hang_up: bool = False) -> None:
        self._signals = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hang_up else []))
        self._held = False
        self._pending: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in self._signals:
            self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._pending is not None:
            number, self._pending = self._pending, None
            raise Interrupted(number)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self._held:
            self._pending = number
        else:
            raise Interrupted(number)
