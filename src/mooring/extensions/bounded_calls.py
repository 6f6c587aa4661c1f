"""Calls into third-party code: in a separate thread and with a time limit, so that a hang does not block Mooring."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Hangs(Exception):
    """The call did not return in time."""


class Contained:
    """Calls with a time limit. A thread cannot be killed, so while a call hangs, no further ones are made."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._idle: list[_Worker] = []
        self._hanging: list[_Worker] = []

    @property
    def hangs(self) -> bool:
        return any(worker.busy for worker in self._hanging)

    def call(self, work: Callable[[], R]) -> R:
        """Return the result of the call or raise its exception; raise Hangs at the timeout."""
        if self.hangs:
            raise Hangs("still hangs in an earlier call")
        self._hanging.clear()
        worker = self._idle.pop() if self._idle else _Worker()
        answer: _Answer[R] = _Answer()
        worker.ask(work, answer)
        try:
            result = answer.wait(self._seconds)
        except Empty:
            self._hanging.append(worker)
            raise Hangs(f"did not answer within {self._seconds:g} s") from None
        self._idle.append(worker)
        if isinstance(result, _Raised):
            raise result.error
        return result


class _Raised:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Answer(Generic[R]):
    """The result of a call, even if nothing waits for it any more."""

    def __init__(self) -> None:
        self._box: SimpleQueue[R | _Raised] = SimpleQueue()

    def put(self, result: R | _Raised) -> None:
        self._box.put(result)

    def wait(self, seconds: float) -> R | _Raised:
        return self._box.get(timeout=seconds)


class _Worker:
    """A thread that makes one call after the other, and does not keep the process from ending."""

    def __init__(self) -> None:
        self.busy = False
        self._asked: SimpleQueue[tuple[Callable[[], Any], _Answer[Any]]] = SimpleQueue()
        Thread(target=self._run, name="contained", daemon=True).start()

    def ask(self, work: Callable[[], R], answer: _Answer[R]) -> None:
        self.busy = True
        self._asked.put((work, answer))

    def _run(self) -> None:
        while True:
            work, answer = self._asked.get()
            try:
                result = work()
            except BaseException as error:
                result = _Raised(error)
            self.busy = False
            answer.put(result)
