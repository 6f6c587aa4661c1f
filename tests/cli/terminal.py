"""The real command in a process of its own, in a pipe or on a pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

MOORING = [sys.executable, "-c", "from mooring.cli import main; main()"]
# The terminal must be the controlling one, or Ctrl-C is only a byte.
# Background processes ignore Ctrl-C, and their children inherit that; a terminal does not.
_TAKE_TERMINAL = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)
_PATIENCE_SECONDS = 60.0


def run_in_pipe(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MOORING, *arguments], capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS
    )


class Terminal:
    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self._process = process
        self._master = master
        self._seen = 0
        self.text = ""

    def expect(self, wanted: str) -> None:
        """Read until the text appears after what was expected before."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (found := self.text.find(wanted, self._seen)) < 0:
            if time.monotonic() > deadline or not self._read():
                raise AssertionError(f"{wanted!r} did not appear in {self.text!r}")
        self._seen = found + len(wanted)

    def expect_hidden_input(self) -> None:
        """Wait until nothing typed is shown; what is typed before is thrown away by the prompt."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while termios.tcgetattr(self._master)[3] & termios.ECHO:
            assert time.monotonic() < deadline, "input is still shown"
            time.sleep(0.01)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        self.type("\x03")

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        """Close the window."""
        self._process.send_signal(signal.SIGHUP)

    def exit_code(self) -> int:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._read():
            assert time.monotonic() < deadline, f"it goes on after {self.text!r}"
        return self._process.wait(_PATIENCE_SECONDS)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], 1.0)
        if not ready:
            return self._process.poll() is None
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)


@contextlib.contextmanager
def run_on_terminal(*arguments: str, size: tuple[int, int] | None = None) -> Iterator[Terminal]:
    """Run the command on a new terminal; `size`: rows and columns of its window."""
    master, slave = pty.openpty()
    if size is not None:
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _TAKE_TERMINAL, *MOORING, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(_PATIENCE_SECONDS)
        os.close(master)
