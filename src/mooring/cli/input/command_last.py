"""Commands whose last words are another command with its own options."""

from __future__ import annotations

from typing import Any

from mooring.cli.help import Command


class CommandLast(Command):
    """Options stand before the name or right after it; the rest is the command with its own options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, *rest = self.from_first_word(ctx, args) or [""]
        command = self.from_first_word(ctx, rest)
        before = args[: len(args) - len(command)]
        return super().parse_args(ctx, args if "--" in before else [*before, "--", *command])

    def from_first_word(self, ctx: Any, words: list[str]) -> list[str]:
        """Return the words after the leading options."""
        options = [each for each in self.params if each.param_type_name == "option"]
        parser = Command(self.name, params=options).make_parser(ctx)
        parser.allow_interspersed_args = False
        _, rest, _ = parser.parse_args(list(words))
        return rest
