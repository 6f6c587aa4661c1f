"""Job scripts: options in their `#MOORING` lines, which stand before the first command."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mooring.cli.exits import say
from mooring.cli.help import Command
from mooring.cli.input.command_last import CommandLast
from mooring.cli.input.option_groups import (
    ContainerOptions,
    PlacementOptions,
    ScheduleOptions,
    StartOptions,
)
from mooring.model.errors import InvalidInput

_DIRECTIVE = re.compile(r"#MOORING(?:\s+(.*))?")
_NOT_IN_SCRIPTS = frozenset({"file", "key", "output", "columns", "server", "dry_run", "help"})
"""Options of the command line about the submission itself."""


@dataclass(frozen=True, slots=True)
class JobScript:
    name: str
    content: str

    @classmethod
    def read(cls, path: str) -> JobScript:
        """Return the script at this path; `-` is standard input."""
        from mooring.wire.fields import MAX_SCRIPT

        try:
            data = sys.stdin.buffer.read(4 * MAX_SCRIPT) if path == "-" else _read(path, 4 * MAX_SCRIPT)
            content = data.decode()
        except OSError as error:
            raise InvalidInput(f"cannot read {path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise InvalidInput(f"{path} is not a script: it is not UTF-8 text") from None
        name = "stdin" if path == "-" else Path(path).name
        if len(content) > MAX_SCRIPT:
            raise InvalidInput(f"{name} is longer than the {MAX_SCRIPT // 1024} KiB that a script may have")
        if not content.strip() or "\0" in content:
            raise InvalidInput(f"{name} is not a script: it is empty or not text")
        if "\r\n" in content:
            raise InvalidInput(f"{name} has DOS line ends, which interpreters do not accept; convert it with dos2unix")
        if content.lstrip()[:1] in ("{", "["):
            raise InvalidInput(f"{name} is JSON, not a script; submit it with -f {path}")
        return cls(name, content)

    def directives(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number and the words of each `#MOORING` line before the first command."""
        head = True
        for number, line in enumerate(self.content.splitlines(), 1):
            head = head and (not line.strip() or line.startswith("#"))
            found = _DIRECTIVE.fullmatch(line)
            if found is None:
                continue
            if not head:
                say(f"{self.name}, line {number}: #MOORING after the first command is ignored")
                continue
            try:
                yield number, shlex.split(found[1] or "", comments=True)
            except ValueError as error:
                raise InvalidInput(f"{self.name}, line {number}: {error}") from None


def _read(path: str, limit: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(limit)


class ScriptCommand(CommandLast):
    """A command whose first word is a job script. Options of the command line win over those of the script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = self.from_first_word(ctx, args)
        if not words or ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        script = JobScript.read(words[0])
        ctx.obj = script
        given: list[str] = []
        for number, directive in script.directives():
            self._check(script, number, directive)
            given += directive
        return super().parse_args(ctx, [*given, *args])

    def _check(self, script: JobScript, number: int, words: list[str]) -> None:
        """Raise InvalidInput that names the line if its options are unknown or have invalid values."""
        from typer._click.exceptions import ClickException

        options = [
            each for each in self.params if each.param_type_name == "option" and each.name not in _NOT_IN_SCRIPTS
        ]
        line = Command("#MOORING", params=options, add_help_option=False)
        try:
            values = line.make_context("#MOORING", list(words)).params
            ContainerOptions(**_of(ContainerOptions, values)).fields([script.name])
            for group in (PlacementOptions, StartOptions, ScheduleOptions):
                group(**_of(group, values)).fields()
        except ClickException as error:
            raise InvalidInput(f"{script.name}, line {number}: {error.format_message()}") from None
        except InvalidInput as error:
            raise InvalidInput(f"{script.name}, line {number}: {error.message}") from None


def _of(group: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    return {field.name: values[field.name] for field in fields(group) if values[field.name] not in ((), [])}
