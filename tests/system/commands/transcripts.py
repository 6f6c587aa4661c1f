"""Examples in the documentation: commands in indented blocks, and the output that the page shows for them.

In a block with `$ ` prompts, the lines after a command are its output. A block without prompts is a list of commands
whose output is not shown. `…` stands for any text, alone on a line for any lines, and `^C` for pressing Ctrl-C. The
comment `<!-- not executed: reason -->` before a block excludes it. The comment `<!-- setup: command -->` is a command
that the page does not show, for what a reader already has; it must succeed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ANY = "…"
INTERRUPT = "^C"
_SETUP = re.compile(r"^<!-- setup: (?P<command>\S.*) -->$")
_EXCLUDED = re.compile(r"^<!-- not executed: (?P<reason>\S.*) -->$")
_INDENT = "    "
_PROMPT = "$ "
_PROGRAMS = ("mooring ", "make run")

# A step between submission and start is shown if the client happens to see it.
_PROGRESS = re.compile(r"^\S+: (pending|reserved|scheduled|preparing)\b")
_VARYING = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?"), "<time>"),
    (re.compile(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d( [AP]M)? \S+ \d{4}"), "<time>"),
    (re.compile(r"\b(?<=-)[0-9a-f]{8}\b"), "<id>"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d+"), "<port>"),
    (re.compile(r"\b\d+(\.\d+)?(ms|s|m|h|d)\b"), "<duration>"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True)
class Example:
    """One command of a page and the output that the page shows; None if it shows none."""

    line: int
    command: str
    output: tuple[str, ...] | None
    hidden: bool = False
    """The page does not show the command."""

    @property
    def interrupted(self) -> bool:
        return self.output is not None and self.output[-1:] == (INTERRUPT,)


def examples(page: Path) -> Iterator[Example]:
    """Yield the examples of a page that are executed, in order."""
    text = page.read_text()
    hidden = [
        Example(number, found["command"], None, hidden=True)
        for number, line in enumerate(text.splitlines(), start=1)
        if (found := _SETUP.match(line))
    ]
    shown = [example for number, lines in _blocks(text) for example in _block_examples(number, lines)]
    yield from sorted([*hidden, *shown], key=lambda example: example.line)


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each indented block that is not excluded, with the number of its first line."""
    block: list[str] = []
    start = 0
    excluded = False
    for number, line in enumerate([*text.splitlines(), "end"], start=1):
        if line.startswith(_INDENT) or (block and not line):
            start = start if block else number
            block.append(line.removeprefix(_INDENT))
            continue
        if block and not excluded:
            yield start, block
        excluded = (excluded and not block and (not line or _SETUP.match(line) is not None)) or _EXCLUDED.match(
            line
        ) is not None
        block = []


def _block_examples(number: int, lines: Sequence[str]) -> Iterator[Example]:
    prompts = any(line.startswith(_PROMPT) for line in lines)
    at = 0
    while at < len(lines):
        first = at
        command = lines[at].removeprefix(_PROMPT) if prompts else lines[at]
        is_command = lines[at].startswith(_PROMPT) if prompts else command.startswith(_PROGRAMS)
        at += 1
        if not is_command:
            continue
        while command.endswith("\\") and at < len(lines):
            command = command[:-1] + lines[at].strip()
            at += 1
        output = []
        while prompts and at < len(lines) and not lines[at].startswith(_PROMPT):
            output.append(lines[at])
            at += 1
        yield Example(number + first, command, tuple(_stripped(output)) if prompts else None)


def _stripped(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def difference(shown: Sequence[str], printed: Sequence[str], names: Mapping[str, str]) -> str | None:
    """Return the first line of the page that the output does not have, or None.

    `names` maps words of this machine to those of the page. Times, ages, ids, ports and column widths may differ.
    """
    wanted = [_normalised(line, {}) for line in shown if line != INTERRUPT and not _PROGRESS.match(line)]
    found = [_normalised(line, names) for line in printed if not _PROGRESS.match(line)]
    wanted, found = [line for line in wanted if line], [line for line in found if line]
    at, skipping = 0, False
    for line in wanted:
        if line == ANY:
            skipping = True
            continue
        pattern = re.compile(".*".join(map(re.escape, line.split(ANY))))
        while skipping and at < len(found) and not pattern.fullmatch(found[at]):
            at += 1
        if at == len(found) or not pattern.fullmatch(found[at]):
            return line
        at, skipping = at + 1, False
    return None if skipping or at == len(found) else f"nothing more after {wanted[-1:]}, not {found[at]!r}"


def _normalised(line: str, names: Mapping[str, str]) -> str:
    for own, documented in names.items():
        line = line.replace(own, documented)
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return line.strip()


def table_rows(lines: Sequence[str]) -> Iterator[str]:
    """Yield the header and the rows of each table in the output; an empty line ends a table."""
    inside = False
    for line in lines:
        inside = _is_table_header(line) or (inside and bool(line.strip()))
        if inside:
            yield line


def _is_table_header(line: str) -> bool:
    words = line.split()
    return len(words) > 1 and line == line.upper() and all(re.fullmatch(r"[A-Z0-9-]+", word) for word in words)
