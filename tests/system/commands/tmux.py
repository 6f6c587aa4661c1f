"""A real terminal of a given size: tmux, driven by key presses and read as a screen."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.system.servers import eventually

_ROWS = 200
_PROMPT = re.compile(r"^<(?P<number>\d+):(?P<status>\d+)> ", re.MULTILINE)


class Terminal:
    """One window with a shell."""

    def __init__(self, socket: Path, columns: int, environment: Mapping[str, str], folder: Path) -> None:
        self._socket = socket
        self._finished = 0
        variables = [f"{name}={value}" for name, value in environment.items()]
        size = ["-x", str(columns), "-y", str(_ROWS)]
        shell = ["env", "-i", *variables, "bash", "--norc", "--noprofile"]
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "-c", str(folder), *shell)
        # On a line of its own, whatever the output ends with.
        self.type(r"PS1='\n<\#:$?> '")
        self._wait_for_prompt()

    def run(self, command: str) -> tuple[int, list[str]]:
        """Return the exit code and the screen's lines between the command and the next prompt."""
        self.begin(command)
        return self.end()

    def begin(self, command: str) -> None:
        self._tmux("send-keys", "-R")
        self._tmux("clear-history")
        self.type(command)

    def end(self) -> tuple[int, list[str]]:
        status = self._wait_for_prompt()
        return status, self.lines()

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)
        self.press("Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def lines(self) -> list[str]:
        """Return the output so far, without the prompts; lines that the terminal wrapped are put together again."""
        screen = self._tmux("capture-pane", "-p", "-J", "-S", "-")
        lines = [line.rstrip() for line in screen.rstrip("\n").splitlines()]
        # The command itself was typed at the end of a prompt that was cleared, so it is the first line.
        output = lines[1:]
        while output and (not output[-1] or _PROMPT.match(output[-1] + " ")):
            output.pop()
        return output

    def wait_for(self, text: str) -> None:
        eventually(lambda: any(text in line for line in self.lines()))

    def wait_for_lines(self, count: int) -> None:
        eventually(lambda: len(self.lines()) >= count)

    def _wait_for_prompt(self) -> int:
        def finished() -> re.Match[str] | None:
            screen = self._tmux("capture-pane", "-p", "-S", "-")
            last = next((line for line in reversed(screen.splitlines()) if line.strip()), "")
            found = _PROMPT.match(last + " ")
            return found if found and int(found["number"]) > self._finished else None

        try:
            prompt = eventually(finished)
            assert prompt is not None
        except AssertionError:
            raise AssertionError("\n".join(["the command does not end:", *self.lines()])) from None
        self._finished = int(prompt["number"])
        return int(prompt["status"])

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-S", str(self._socket), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    def close(self) -> None:
        self._tmux("kill-server")


@contextmanager
def terminal(socket: Path, columns: int, environment: Mapping[str, str], folder: Path) -> Iterator[Terminal]:
    window = Terminal(socket, columns, environment, folder)
    try:
        yield window
    finally:
        window.close()
