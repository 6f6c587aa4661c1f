"""Progress on stderr while a command waits: an animated line on a terminal, a line per change elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from mooring.cli.exits import say
from mooring.model.names import shown

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID
    from rich.status import Status


class Progress:
    """Display of the current wait, which shows each text once."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._last: str | None = None
        self._status: Status | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty() and not self._quiet:
            from rich.console import Console
            from rich.status import Status

            self._status = Status("", console=Console(stderr=True, highlight=False, markup=False, emoji=False))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def show(self, text: str) -> None:
        if self._quiet or text == self._last:
            return
        self._last = text
        if self._status is None:
            say(text)
            return
        from rich.text import Text

        self._status.update(Text(shown(text)))
        self._status.start()

    def clear(self) -> None:
        """Clear the line for output; the next `show` draws it again."""
        self._last = None
        if self._status is not None:
            self._status.stop()


class ProgressBar:
    """A bar on standard error if that is a terminal; nothing otherwise."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressBar:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._title, total=None)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, total: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
