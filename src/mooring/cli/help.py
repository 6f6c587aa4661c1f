"""Commands and groups with plain help, which starts fast: Rich would take longer to import than all else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from mooring.cli.input.coercion import convert_fast

_COMMANDS = "Commands"
_OPTIONS = "Options"
HELP_WIDTH = 120


class Command(TyperCommand):
    """A command whose help lists its options by panel."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        convert_fast(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_parameters(self, ctx, formatter)


class Group(TyperGroup):
    """A group whose help lists its options and commands by panel."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        convert_fast(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_parameters(self, ctx, formatter)
        write_commands(self.described_commands(), formatter)

    def described_commands(self) -> list[tuple[str, str, str]]:
        """Return panel, name and description of each visible command."""
        return [
            (panel_of(command), name, command.get_short_help_str(limit=10_000))
            for name, command in self.commands.items()
            if not command.hidden
        ]


class App(typer.Typer):
    """A Typer application of these commands and groups."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("cls", Group)
        super().__init__(rich_markup_mode=None, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        settings.setdefault("cls", Command)
        return super().command(name, **settings)


def panel_of(command: Any, default: str = _COMMANDS) -> str:
    """Return the panel of a command or option. Typer represents a missing one as None or as a placeholder."""
    panel = getattr(command, "rich_help_panel", None)
    return panel if isinstance(panel, str) else default


def write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            default = "Arguments" if parameter.param_type_name == "argument" else _OPTIONS
            names, description = record
            panels.setdefault(panel_of(parameter, default), []).append((shown_names(names), description))
    for panel, records in panels.items():
        with formatter.section(panel):
            formatter.write_dl(records)


def shown_names(names: str) -> str:
    """Return the names of an option with `N` for a number."""
    for kind in ("<int range>", "<int>", "<float range>", "<float>"):
        names = names.replace(kind, "N")
    return names


def write_commands(described: Iterable[tuple[str, str, str]], formatter: Any) -> None:
    panels: dict[str, list[tuple[str, str]]] = {}
    for panel, name, description in described:
        panels.setdefault(panel, []).append((name, description))
    for panel, rows in panels.items():
        with formatter.section(panel):
            formatter.write_dl(rows)
