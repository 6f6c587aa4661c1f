"""Root of the command line: the commands of the table, and error handling."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from mooring.cli.command_table import ENTRIES, LazyCommands
from mooring.cli.exits import EPILOG, report
from mooring.cli.help import HELP_WIDTH, App, Group
from mooring.cli.unexpected_errors import report_unexpected
from mooring.model.errors import MooringError


class _Root(Group):
    """Root group that loads a command when it is invoked, and turns errors into messages and exit codes.

    No traceback reaches the user.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands()

    def described_commands(self) -> list[tuple[str, str, str]]:
        return [(entry.panel, name, entry.description) for name, entry in ENTRIES.items() if entry.panel is not None]

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        from typer._click.shell_completion import CompletionItem

        named = [
            CompletionItem(name, help=description)
            for _, name, description in self.described_commands()
            if name.startswith(incomplete)
        ]
        # The method of a plain command completes the options.
        return named + super(typer.core.TyperGroup, self).shell_complete(ctx, incomplete)

    def _main_shell_completion(self, ctx_args: Any, prog_name: str, complete_var: str | None = None) -> None:
        from typer import _completion_classes

        # Typer imports Rich to remove markup from descriptions. They have none.
        _completion_classes._sanitize_help_text = lambda text: text
        super()._main_shell_completion(ctx_args, prog_name, complete_var)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MooringError as error:
            raise typer.Exit(report(error)) from error
        except (typer.Exit, typer.Abort, TyperException, BrokenPipeError):
            raise
        except Exception as error:
            raise typer.Exit(report_unexpected(error)) from error


app = App(
    cls=_Root,
    help="Mooring: a multi-tenant cluster scheduler.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from mooring import __version__

        print(f"mooring {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
